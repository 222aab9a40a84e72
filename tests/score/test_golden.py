"""Counts that NIST's hubscr.pl (Debian sctk 2.4.10) gives, case by case."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.cli import RecipeError
from local.score import sctk as nist
from local.score.align import Counts, align
from local.score.glm import Glm
from local.score.nist import read_ctm, read_stm
from local.score.wer import Reference

HEAD = ';; CATEGORY "0" "" ""\n;; LABEL "O" "Overall" "Overall"\n'
RULES = """;; rules in NIST's forms, a few of each kind
* name "test"
* desc "test"
* format = 'NIST1'
* max_nrules = '100'
* copy_no_hit = 'T'
* case_sensitive = 'F'
UH => %HESITATION / [ ] __ [ ] ;; hesitation
UM => %HESITATION / [ ] __ [ ]
UH-HUH => %BCACK / [ ] __ [ ]
MHM => %BCACK / [ ] __ [ ]
UH-UH => %BCNACK / [ ] __ [ ]
HUH-UH => %BCNACK / [ ] __ [ ]
GONNA => GOING TO
ALRIGHT => ALL RIGHT
WEBSITE => WEB SITE / [ ] __ [ ]
OKAY => O. K. / [ ] __ [ ]
OK => O. K. / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "ctm"
[HE'S] => [{HE'S / HE IS / HE HAS}] / [ ] __ [ ]
[I'M] => [{I'M / I AM}] / [ ] __ [ ]
"""

# reference, hypothesis: N, correct, substituted, deleted, inserted
GOLDEN = [
    ("WELL (%HESITATION) YES", "well yes", (3, 3, 0, 0, 0)),
    ("WELL %HESITATION YES", "well yes", (3, 2, 0, 1, 0)),
    ("UH-HUH", "mhm", (1, 1, 0, 0, 0)),
    ("UH-HUH", "yeah", (1, 0, 1, 0, 0)),
    ("UH-UH", "huh-uh", (1, 1, 0, 0, 0)),
    ("HE IS HERE", "he's here", (3, 3, 0, 0, 0)),
    ("HE HAS GONE", "he's gone", (3, 3, 0, 0, 0)),
    ("HE'S HERE", "he is here", (2, 1, 1, 0, 1)),
    ("I AM GOING TO GO", "i'm gonna go", (5, 5, 0, 0, 0)),
    ("I WE- WENT", "i went", (3, 2, 0, 1, 0)),
    ("I WE- WENT", "i we went", (3, 3, 0, 0, 0)),
    ("(WE-) WENT", "well went", (2, 2, 0, 0, 0)),
    ("OKAY FINE", "ok fine", (3, 3, 0, 0, 0)),
    ("ALL RIGHT THEN", "alright then", (3, 3, 0, 0, 0)),
    ("WEB SITE", "website", (2, 2, 0, 0, 0)),
    ("WELL-KNOWN MAN", "well known man", (3, 3, 0, 0, 0)),
    ("U. S. A. TODAY", "u. s. a. today", (4, 4, 0, 0, 0)),
    ("U S A TODAY", "u. s. a. today", (4, 1, 3, 0, 0)),
    ("I HEARD LAUGHTER", "i heard laughter", (3, 3, 0, 0, 0)),
    ("YEAH", "yea", (1, 0, 1, 0, 0)),
    ("(HELLO THERE) MAN", "man", (3, 3, 0, 0, 0)),
    ("", "hello", (0, 0, 0, 0, 1)),
    ("IGNORE_TIME_SEGMENT_IN_SCORING", "hello there", (0, 0, 0, 0, 0)),
    ("(THE) MAN", "a man", (2, 1, 1, 0, 0)),
    ("{ A / B D } C", "b d c", (3, 3, 0, 0, 0)),
    ("{ A / @ } C", "x c", (1, 1, 0, 0, 1)),
    ("A B C D", "b x y z w", (4, 1, 2, 1, 2)),
    ("A B C", "b d a", (3, 1, 1, 1, 1)),
]

# Cleaned before the glm: fillers, fragments and tags leave the hypothesis, acronyms are split.
CLEANED = [
    ("WELL (%HESITATION) YES", "well uh yes", (3, 3, 0, 0, 0)),
    ("WELL YES", "well uh yes", (2, 2, 0, 0, 0)),
    ("I WENT", "i we- went", (2, 2, 0, 0, 0)),
    ("I HEARD", "i heard [laughter]", (2, 2, 0, 0, 0)),
    ("I HEARD", "i heard <unk> [noise]", (2, 2, 0, 0, 0)),
    ("U. S. TODAY", "u._s. today", (3, 3, 0, 0, 0)),
]


def write(folder: Path, segments: list[tuple[float, float, str]], words: list[tuple[float, float, str]]) -> Reference:
    """A reference of one side, ``f A``, and ``hyp.ctm`` beside it."""
    rows = (f"f A f_A {start} {end} <O> {text}\n" for start, end, text in segments)
    (folder / "ref.stm").write_text(HEAD + "".join(rows))
    (folder / "glm").write_text(RULES)
    (folder / "hyp.ctm").write_text("".join(f"f A {start} {duration} {word}\n" for start, duration, word in words))
    return Reference(folder / "ref.stm", folder / "glm")


def timed(text: str) -> list[tuple[float, float, str]]:
    return [(round(0.1 + 0.3 * place, 2), 0.2, word) for place, word in enumerate(text.split())]


def counts(folder: Path, segments: list[tuple[float, float, str]], words: list[tuple[float, float, str]]) -> tuple[int, ...]:
    total = write(folder, segments, words).score(folder / "hyp.ctm").total()
    return total.words, total.correct, total.substituted, total.deleted, total.inserted


@pytest.mark.parametrize(("reference", "hypothesis", "expected"), GOLDEN + CLEANED)
def test_a_segment(reference: str, hypothesis: str, expected: tuple[int, ...], tmp_path: Path) -> None:
    assert counts(tmp_path, [(0, 9, reference)], timed(hypothesis)) == expected


A, B, X, C, D = (0.1, 0.2, "a"), (0.5, 0.2, "b"), (1.4, 0.2, "x"), (2.1, 0.2, "c"), (2.5, 0.2, "d")


@pytest.mark.parametrize(
    ("segments", "words", "expected"),
    [
        ([(0, 1, "A B"), (2, 3, "C D")], [A, B, X, C, D], (4, 4, 0, 0, 1)),  # a word in a gap is inserted
        ([(0, 1, "A B"), (1, 2, "IGNORE_TIME_SEGMENT_IN_SCORING"), (2, 3, "C D")], [A, B, X, C, D], (4, 4, 0, 0, 0)),
        ([(0, 1, "A B"), (2, 3, "C D")], [A, (1.1, 0.2, "b"), C, D], (4, 3, 0, 1, 1)),
        ([(0, 1, "A B"), (1, 3, "C D")], [A, (0.9, 0.2, "b"), C, D], (4, 3, 0, 1, 1)),  # its middle is the next one's
        ([(0, 1, "A B"), (1, 3, "C D")], [A, (0.9, 0.18, "b"), C, D], (4, 4, 0, 0, 0)),
        ([(1, 2, "A B")], [A, (1.5, 0.2, "b")], (2, 2, 0, 0, 0)),  # before the first segment
        ([(1, 2, "A B")], [(1.1, 0.2, "a"), (2.5, 0.2, "b")], (2, 2, 0, 0, 0)),  # behind the last
        ([(0, 1.5, "A B"), (1, 3, "C D")], [A, (1.2, 0.2, "b"), (1.3, 0.2, "c"), D], (4, 3, 0, 1, 1)),
        ([(0, 1, "A"), (1, 2, "B")], [], (2, 0, 0, 2, 0)),
    ],
)
def test_words_go_to_segments_by_their_middle(segments, words, expected, tmp_path: Path) -> None:
    assert counts(tmp_path, segments, words) == expected


def _random_text(rng: random.Random, vocabulary: list[str], least: int) -> str:
    return " ".join(rng.choice(vocabulary) for _ in range(rng.randint(least, 7)))


def test_random_sides_score_as_hubscr_scores_them(sctk: Path, tmp_path: Path) -> None:
    """Fragments, optional words, alternatives, contractions, gaps, a missing side: 250 sides in one file."""
    rng = random.Random(3)
    plain = ["A", "B", "C", "D", "WE", "WENT", "HE'S", "OKAY", "UH-HUH", "GONNA", "WELL-KNOWN", "HE", "IS"]
    marked = [*plain, *plain, "(A)", "(WE-)", "WE-", "-ENT", "{ A / B C }", "{ A / @ }", "(A B)", "(%HESITATION)", "U. S."]
    spoken = [word.lower() for word in [*plain, "u._s.", "uh", "we-", "[noise]", "mhm", "ok"]]
    stm, ctm = [HEAD], []
    for side in range(250):
        clock = 0.0
        for _ in range(rng.randint(1, 3)):
            clock += rng.choice([0, 0, 1.5])
            text = rng.choice([_random_text(rng, marked, 1)] * 9 + ["IGNORE_TIME_SEGMENT_IN_SCORING"])
            stm.append(f"f{side:03d} A f{side:03d}_A {clock:.2f} {clock + 2:.2f} <O> {text}\n")
            clock += 2
        if side % 25:
            words = _random_text(rng, spoken, 1).split()
            places = sorted(rng.uniform(0, clock) for _ in words)
            ctm += [f"f{side:03d} A {at:.2f} 0.20 {word}\n" for at, word in zip(places, words, strict=True)]
    ctm.append("f249 A 0.10 0.20 a\n")  # sclite crashes where the last sides are missing
    for name, content in (("ref.stm", stm), ("hyp.ctm", ctm), ("glm", [RULES])):
        (tmp_path / name).write_text("".join(content))
    result = Reference(tmp_path / "ref.stm", tmp_path / "glm").score(tmp_path / "hyp.ctm")
    assert len(result.silent_sides) >= 9
    ours: dict[str, Counts] = {}
    for line in result.lines:
        key = line.segment.speaker.lower()
        ours[key] = ours.get(key, Counts()) + line.counts
    theirs = nist.compare(sctk, tmp_path / "ref.stm", tmp_path / "glm", tmp_path / "hyp.ctm", ours)
    assert theirs == result.total()
    ours["f000_a"] += Counts(inserted=1)
    with pytest.raises(RecipeError, match="speaker f000_a: our counts"):
        nist.compare(sctk, tmp_path / "ref.stm", tmp_path / "glm", tmp_path / "hyp.ctm", ours)


def test_nists_own_case(shared_data: Path) -> None:
    """SCTK's test1-notag: reference and hypothesis as its filter left them, and the counts of its report."""
    case = shared_data / "sctk/src/hubscr/test1-notag.base"
    expected = nist._read_raw((case / "lvc_hyp.notag.ctm.filt.raw").read_text(encoding="latin-1"))
    result = Reference(case / "lvc_refe.notag.noat.stm", case / "example.glm").score_words(read_ctm(case / "lvc_hyp.notag.ctm"))
    found: dict[str, Counts] = {}
    for line in result.lines:
        key = line.segment.speaker.lower()
        found[key] = found.get(key, Counts()) + line.counts
    assert found == expected


@given(st.lists(st.sampled_from(["A", "B", "C", "D"]), max_size=8), st.lists(st.sampled_from(["A", "B", "C", "D"]), max_size=8))
def test_counts_add_up(reference: list[str], hypothesis: list[str]) -> None:
    found, pairs = align(reference, hypothesis)
    assert found.words == len(reference)
    assert found.correct + found.substituted + found.inserted == len(hypothesis)
    assert [word for word, _ in pairs if word] == reference
    assert [heard for _, heard in pairs if heard] == hypothesis
    assert align(reference, reference)[0].errors == 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("glm", "A B C\n", r"glm:1: expected a rule"),
        ("glm", "A => B / [ ] __ [\n", r"glm:1: expected a context"),
        ("ref.stm", HEAD + "f A f_A 2 1 <O> HELLO\n", r"ref.stm:3: expected 'file side speaker start end"),
        ("ref.stm", "f A f_A 0 1 <X> HELLO\n", r"ref.stm:1: the label 'x' has no header"),
        ("ref.stm", HEAD + "f A f_A 0 1 <O> (HELLO ((THERE)\n", r"ref.stm:3: parentheses that do not match"),
        ("ref.stm", HEAD, "no segments to score against"),
        ("hyp.ctm", "f A 0.1 nan hello\n", r"hyp.ctm:1: expected 'file side start duration word"),
        ("hyp.ctm", "f 1 0.1 0.2 hello\n", r"f 1 is not in .*ref.stm.*are channels named 1 and 2"),
    ],
)
def test_bad_input_is_refused_by_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, [(0, 9, "HELLO")], [(0.1, 0.2, "hello")])
    (tmp_path / name).write_text(content)
    with pytest.raises(RecipeError, match=message):
        Reference(tmp_path / "ref.stm", tmp_path / "glm").score(tmp_path / "hyp.ctm")


def test_unsorted_input_is_sorted(tmp_path: Path) -> None:
    write(tmp_path, [(2, 3, "C D"), (0, 1, "A B")], [C, D, B, A])
    assert [segment.start for segment in read_stm(tmp_path / "ref.stm")[0]] == [0, 2]
    assert counts(tmp_path, [(2, 3, "C D"), (0, 1, "A B")], [C, D, B, A]) == (4, 4, 0, 0, 0)


def test_rules_apply_as_rfilter1_applies_them(tmp_path: Path) -> None:
    """Seen by running rfilter1: the first rule that fits, contexts on the text before any rule, no second pass."""
    cases = [
        ("AB => 1\nABC => 2\n", "abc ab", "1C 1"),
        ("A => X / [ ] __ [ ]\nB => Y / [A ] __ [ ]\nC => Z / [Y ] __ [ ]\n", "a b c", "X Y C"),
        ("A => B\nB => C\n", "a b", "B C"),
        ("A B => X / [ ] __ [ ]\nB C => Y / [ ] __ [ ]\n", "a b c", "X C"),
        ("A => [] / [ ] __ [ ]\n", "a b a", "B"),
        ("abc => Q\n", "abc", "ABC"),
    ]
    for rules, text, expected in cases:
        (tmp_path / "glm").write_text(f";; x\n{rules}")
        assert Glm(tmp_path / "glm").reference(text) == expected
