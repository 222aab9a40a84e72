"""Errors of boundaries that are planted; what counts as a boundary at silence; words that cannot be matched."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.boundaries import KINDS, compare, match, read_sides, read_word_files, report, run_together, within
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.hmm.pictures import Span

SIDE = ("sw02001", "A")
TRUTH = [Span("one", 10.1, 10.5), Span("two", 10.5, 10.8), Span("[laughter]", 11.0, 11.2), Span("[laughter-three]", 11.2, 11.6)]


def data(*words: str) -> DataDir:
    recording = Recording("sw02001-A", Path("none.sph"), 0, *SIDE, 8000 * 60)
    utterance = Utterance("sw02001-A_001000-001200", "sw02001-A", "sw02001-A", 10.0, 12.0, words)
    return DataDir({recording.id: recording}, {utterance.id: utterance})


def moved(spans: list[Span], start: float, end: float) -> list[Span]:
    return [
        Span(span.label.replace("laughter-three", "three").strip("[]"), span.start + start, span.end + end) for span in spans
    ]


def test_planted_errors_come_back_by_kind() -> None:
    aligned = [
        Span("[laughter]", span.start, span.end) if span.label == "laughter" else span for span in moved(TRUTH, 0.02, -0.03)
    ]
    errors = compare(data("one", "two", "[laughter]", "three"), {SIDE: TRUTH}, {SIDE: aligned})
    counts = {kind: len(values) for kind, values in errors.kinds.items()}
    # one starts at silence, two ends there; the laughter before three is no silence, but behind it nothing follows
    assert counts == dict(zip(KINDS, (1, 2, 2, 1, 0), strict=True))
    for kind, values in errors.kinds.items():
        assert values == pytest.approx([0.02 if kind.startswith("start") else -0.03] * len(values))
    assert (errors.words, errors.unmatched) == (3, 0)
    rows = [line.split(" | ") for line in report(errors).splitlines()]
    assert rows[2] == ["| all boundaries of words", "6", "25.0", "-5.0", "50.0", "100.0 |"]


def test_words_are_matched_in_order_and_the_lost_counted() -> None:
    truth = [Span(label, 10 + place / 10, 10.1 + place / 10) for place, label in enumerate(("a", "b", "a", "c"))]
    aligned = [truth[0], truth[2], truth[3]]
    assert list(match(truth, aligned)) == [(0, 0), (2, 1), (3, 2)]
    errors = compare(data("a", "b", "a", "c"), {SIDE: truth}, {SIDE: aligned})
    assert errors.unmatched == 1
    assert all(value == 0 for values in errors.kinds.values() for value in values)


def test_phones_are_compared_where_they_are_as_many() -> None:
    words = [Span("one", 10.0, 10.4), Span("two", 10.5, 10.8)]
    known = [*(Span("x", 10 + place / 10, 10.1 + place / 10) for place in range(4)), Span("x", 10.5, 10.8)]
    mine = [Span("y", 10, 10.11), Span("y", 10.11, 10.22), Span("y", 10.22, 10.33), Span("y", 10.33, 10.4)]
    more = [Span("y", 10.5, 10.6), Span("y", 10.6, 10.8)]
    errors = compare(data("one", "two"), {SIDE: words}, {SIDE: words}, ({SIDE: known}, {SIDE: [*mine, *more]}))
    assert errors.kinds[KINDS[4]] == pytest.approx([0.01, 0.02, 0.03])
    assert (errors.same_phones, errors.with_phones) == (1, 2)


def test_evenly_shared_times_are_not_known() -> None:
    words = [Span("did", 10.0, 10.2), Span("you", 10.2, 10.4), Span("see", 10.4, 10.7), Span("it", 10.8, 11.1)]
    assert run_together(words) == {1}
    errors = compare(data("did", "you", "see", "it"), {SIDE: words}, {SIDE: words}, ({SIDE: []}, {SIDE: []}))
    assert errors.unknown == 2  # the end of "did", the start of "you"
    assert sum(map(len, errors.kinds.values())) == 6


def test_spans_belong_where_their_middle_lies() -> None:
    assert within(TRUTH, 10.3, 11.1) == TRUTH[:2]
    assert within(TRUTH, 10.31, 11.11) == TRUTH[1:3]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "sw2001A-ms98-a-word.text").write_text(
        "sw2001A-ms98-a-0001 0.0 1.0 [silence]\nsw2001A-ms98-a-0002 1.25 1.5 so\nsw2001A-ms98-a-0002 1.5 2.0 [noise]\n"
    )
    assert read_word_files(tmp_path) == {SIDE: [Span("so", 1.25, 1.5), Span("[noise]", 1.5, 2.0)]}
    (tmp_path / "words.ctm").write_text("sw02001 A 2.5 0.5 b\nsw02001 A 1.25 0.5 a\n")
    assert read_sides(tmp_path / "words.ctm") == {SIDE: [Span("a", 1.25, 1.75), Span("b", 2.5, 3.0)]}
    (tmp_path / "words.ctm").write_text("sw02001 A 1.25 a\n")
    with pytest.raises(RecipeError, match=r"words.ctm:1: expected 'file side start length label', found 'sw02001 A 1.25 a"):
        read_sides(tmp_path / "words.ctm")
