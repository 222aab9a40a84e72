"""Probabilities of pronunciations and of silence: by hand, as they must be in the limit, and through their files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.cli import RecipeError
from local.lexicon import (
    END,
    START,
    Lang,
    LexiconConf,
    Pronunciation,
    SilenceProbabilities,
    Spoken,
    Variant,
    estimate,
    make_lang,
    read_pronunciations,
    write_pronunciations,
)
from tests.graph.toy import write_dictionary

A, A_LONG, B, C = ("a", ("x",)), ("a", ("x", "y")), ("b", ("x",)), ("c", ("y", "z"))  # of the toy's dictionary
LEXICON = {
    "a": [Pronunciation(0.6, ("x",), 0.5), Pronunciation(0.3, ("x", "y"), 0.5)],
    "b": [Pronunciation(1.0, ("x",), 0.5)],
    "c": [Pronunciation(0.8, ("y", "z"), 0.5)],
}


def utterance(*items: Variant | None) -> Counter[Spoken]:
    """An utterance's counts; ``None`` is silence."""
    counts: Counter[Spoken] = Counter()
    before, silence = START, False
    for item in [*items, END]:
        if item:
            counts[Spoken(before, item, silence)] += 1
            before = item
        silence = item is None
    return counts


COUNTS = utterance(None, A, None, B) + utterance(A, B, None) + utterance(A_LONG, B) + utterance(A, None)


def test_by_hand() -> None:
    """P(s) = 4 / 11, since 4 of the 11 places have silence."""
    lexicon, silence = estimate(LEXICON, COUNTS, "c")
    (short, long), (b,) = lexicon["a"], lexicon["b"]
    assert (short.phones, long.phones) == (("x",), ("x", "y"))
    # a thrice as x, once as x y; one more each: 4 to 2
    assert (short.probability, long.probability, b.probability) == (1.0, 0.5, 1.0)
    # of 3, 1 and 3 times, silence followed 2, 0 and 1 times; of 4 starts, 1
    assert short.silence_after == pytest.approx((2 + 2 * 4 / 11) / (3 + 2))  # 6/11
    assert long.silence_after == pytest.approx((0 + 2 * 4 / 11) / (1 + 2))  # 8/33
    assert b.silence_after == pytest.approx((1 + 2 * 4 / 11) / (3 + 2))  # 19/55
    assert silence[:2] == pytest.approx((4 / 11, (1 + 2 * 4 / 11) / (4 + 2)))  # 19/66
    # b came after a as x twice, as x y once: 2 * 6/11 + 8/33 = 4/3 silences expected, so 5/3 without; found 1 and 2
    assert b[3:] == pytest.approx(((1 + 2) / (4 / 3 + 2), (2 + 2) / (5 / 3 + 2)))
    # a as x came at the start thrice: 3 * 19/66 = 19/22 expected, found 1; as x y once, found without
    assert short[3:] == pytest.approx(((1 + 2) / (19 / 22 + 2), (2 + 2) / (47 / 22 + 2)))
    assert long[3:] == pytest.approx(((0 + 2) / (19 / 66 + 2), (1 + 2) / (47 / 66 + 2)))
    # the end came after b thrice, after a as x once: 3 * 19/55 + 6/11 = 87/55 expected, found 2
    assert silence[2:] == pytest.approx(((2 + 2) / (87 / 55 + 2), (2 + 2) / (133 / 55 + 2)))
    # c was never spoken
    assert lexicon["c"] == [Pronunciation(0.8, ("y", "z"), pytest.approx(4 / 11))]


def many(**silences_of: float) -> Counter[Spoken]:
    """A million utterances ``a``, then ``b`` or ``c``; how often silence lay before, between and behind."""
    counts: Counter[Spoken] = Counter()
    number = 1_000_000
    for second, name in ((B, "b"), (C, "c")):
        for left, right, share in (
            (START, A, 0.25),
            (A, second, silences_of[name]),
            (second, END, 0.5),
        ):
            counts[Spoken(left, right, True)] += round(number * share)
            counts[Spoken(left, right, False)] += round(number * (1 - share))
    return counts


def test_with_many_counts_silence_between_two_words_has_its_share() -> None:
    """Where all that stands before a word is one word, P(s | v) F(s | w) is C(v s w) / C(v w)."""
    lexicon, silence = estimate(LEXICON, many(b=0.9, c=0.2), "c")
    after = lexicon["a"][0].silence_after
    assert after == pytest.approx((0.9 + 0.2) / 2, rel=1e-4)
    for word, share in (("b", 0.9), ("c", 0.2)):
        entry = lexicon[word][0]
        assert after * entry.silence_before == pytest.approx(share, rel=1e-4)
        assert (1 - after) * entry.no_silence_before == pytest.approx(1 - share, rel=1e-4)
    assert silence.start == pytest.approx(0.25, rel=1e-4)


def test_where_silence_hangs_on_nothing_behind_it_corrections_are_one() -> None:
    lexicon, silence = estimate(LEXICON, many(b=0.3, c=0.3), "c")
    corrections = [factor for entries in lexicon.values() for entry in entries for factor in entry[3:]]
    assert [*corrections, *silence[2:]] == pytest.approx([1.0] * 10, abs=1e-4)


def test_no_cost_is_without_bounds() -> None:
    lexicon, _ = estimate(LEXICON, many(b=1.0, c=1.0), "c")
    assert lexicon["a"][0].silence_after == 0.99
    lexicon, _ = estimate(LEXICON, many(b=0.0, c=0.0), "c")
    assert lexicon["a"][0].silence_after == 0.01
    lexicon, _ = estimate(LEXICON, many(b=1.0, c=0.0), "c")
    assert (lexicon["b"][0].no_silence_before, lexicon["c"][0].silence_before) == (0.01, 0.01)


SPOKEN = st.lists(st.sampled_from([A, A_LONG, B, C, None]), max_size=6).filter(any)


@given(st.lists(SPOKEN, min_size=1))
def test_what_holds_for_any_counts(utterances: list[list[Variant | None]]) -> None:
    parts = [utterance(*spoken) for spoken in utterances]
    counts = sum(parts, Counter())
    lexicon, silence = estimate(LEXICON, counts, "c")
    assert (lexicon, silence) == estimate(LEXICON, sum(reversed(parts), Counter()), "c")  # whichever job comes first
    seen = Counter(variant for spoken in utterances for variant in spoken)
    for word, entries in lexicon.items():
        numbers = [seen[word, entry.phones] for entry in entries]
        if any(numbers):
            assert max(entry.probability for entry in entries) == 1.0
        else:
            assert [entry.probability for entry in entries] == [entry.probability for entry in LEXICON[word]]
        for entry, number in zip(entries, numbers, strict=True):
            assert 0 < entry.probability <= 1
            assert 0.01 <= entry.silence_after <= 0.99
            assert min(entry[3:]) >= 0.01
            if not number:
                assert entry[3:] == (1.0, 1.0)
                assert entry.silence_after == pytest.approx(min(max(silence.overall, 0.01), 0.99))
    assert silence.overall == pytest.approx(sum(n for spoken, n in counts.items() if spoken.silence) / counts.total())


def test_words_that_the_lexicon_lacks_count_as_the_unknown_word() -> None:
    unknown = utterance(None, A, ("mum's", ("y", "z")), None)
    assert estimate(LEXICON, unknown, "c") == estimate(LEXICON, utterance(None, A, C, None), "c")


def test_counts_of_another_lexicon_and_of_nothing() -> None:
    with pytest.raises(RecipeError, match="b as 'z', the lexicon does not"):
        estimate(LEXICON, utterance(("b", ("z",))), "c")
    with pytest.raises(RecipeError, match="no counts"):
        estimate(LEXICON, Counter(), "c")


def test_counts_through_a_file(tmp_path: Path) -> None:
    write_pronunciations(tmp_path / "counts", COUNTS)
    assert read_pronunciations(tmp_path / "counts") == COUNTS
    lines = (tmp_path / "counts").read_text().splitlines()
    assert lines == sorted(lines)
    assert lines[0] == "<s>\t\ta\tx\tnone\t2"
    (tmp_path / "counts").write_text("\n".join([*lines, "a\tx\tb\tx\tperhaps\t1"]))
    with pytest.raises(RecipeError, match=r"counts:10: expected .* found 'a\\tx"):
        read_pronunciations(tmp_path / "counts")


def test_language_directory_with_counts(tmp_path: Path) -> None:
    """The same words and phones as without, and the estimates to the last bit."""
    dictionary = write_dictionary(tmp_path / "dict")
    make_lang(dictionary, LexiconConf(0.3), tmp_path / "plain")
    make_lang(dictionary, LexiconConf(0.3), tmp_path / "estimated", COUNTS)
    plain, lang = Lang.read(tmp_path / "plain"), Lang.read(tmp_path / "estimated")
    assert (lang.words, lang.phones, lang.disambiguation) == (plain.words, plain.phones, plain.disambiguation)
    assert (lang.lexicon, lang.silence) == estimate(plain.lexicon, COUNTS, "<unk>")
    assert plain.silence == SilenceProbabilities(0.3, 0.3, 1.0, 1.0)
    rows = [line.split() for line in (tmp_path / "estimated/lexiconp_silprob.txt").read_text().splitlines()]
    assert [row[0] for row in rows] == ["<unk>", "a", "a", "b", "c", "d"]
    assert [float(x) for x in rows[2][1:5]] == pytest.approx([0.5, 8 / 33, 132 / 151, 198 / 179])  # as Kaldi orders them
    assert rows[2][5:] == ["x", "y"]
    silprob = dict(line.split() for line in (tmp_path / "estimated/silprob.txt").read_text().splitlines())
    assert {name: float(value) for name, value in silprob.items()} == pytest.approx(
        {"<s>": 19 / 66, "</s>_s": 220 / 197, "</s>_n": 220 / 243, "overall": 4 / 11}
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("lexiconp_silprob.txt", "a\t1.0\tx\n", "expected 'word<TAB>probability<TAB>three numbers"),
        ("lexiconp_silprob.txt", "a\t1.0\t1.0\t1.0\t1.0\tx\n", "probability of silence between 0 and 1"),
        ("lexiconp_silprob.txt", "a\t1.0\t0.5\t0.0\t1.0\tx\n", "factors above 0"),
        ("silprob.txt", "<s> 0.5\noverall 0.5\n</s>_s 1.0\n", "silprob.txt: expected a number for each of"),
        ("silprob.txt", "<s> 0.5\noverall half\n</s>_s 1.0\n</s>_n 1.0\n", "silprob.txt: expected a number for each of"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    make_lang(write_dictionary(tmp_path / "dict"), LexiconConf(0.3), tmp_path / "lang", COUNTS)
    (tmp_path / "lang" / name).write_text(content)
    with pytest.raises(RecipeError, match=message):
        Lang.read(tmp_path / "lang")
