"""The text rules as a table, Kaldi's faults avoided."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recipes.swbd.text
from local.score.nist import split_acronym
from recipes.swbd.text import from_stm, map_word, map_words, to_stm


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("[laughter-story]", "story"),
        ("[it'n/isn't]", "it'n"),
        ("[lem[guini]-/linguini]", "lem-"),
        ("-[an]y", "-y"),
        ("ab[solute]-", "ab-"),
        ("{Yuppieish}", "yuppieish"),
        ("them_1", "them"),
        ("-[a]b[out]-", "-b-"),
        ("[laughter-sh[e]-]", "sh-"),
        ("[laughter-[it'n/isn't]]", "it'n"),
        ("[silence]", None),
        ("<B_ASIDE>", None),
        ("<e_aside>", None),
        ("[NOISE]", "[noise]"),
        ("[vocalized-noise]", "[vocalized-noise]"),
        ("[laughter]", "[laughter]"),
        ("U.S.", "u._s."),
        ("I.B.M.", "i._b._m."),
        ("T.V.s", "t._v.s"),
        ("I.B.M.'s", "i._b._m.'s"),
        ("a.", "a."),
        ("uh-huh", "uh-huh"),
        ("laughter", "laughter"),
        ("we-", "we-"),
        # what other recipes do to these: ammn-t-, --, h[e]--, th[ey]-, and the second _1 kept
        ("ammu[n]it-", "ammu-it-"),
        ("[noise]-", "[noise]"),
        ("h[e]-[noise]", "h-"),
        ("th[ey]_1-", "th-"),
        ("about_1_1", "about"),
    ],
)
def test_a_word(written: str, word: str | None) -> None:
    assert map_word(written) == word
    if word is not None:
        assert map_word(word) == word  # mapping twice changes nothing


def test_a_line() -> None:
    assert map_words("[silence] <b_aside> Well [laughter] <e_aside>") == ("well", "[laughter]")
    assert map_words("[silence]") == ()


def test_to_nists_form_and_back() -> None:
    words = ("uh", "we-", "went", "to", "the", "u._s.", "[noise]")
    assert to_stm(words) == "(%HESITATION) (WE-) WENT TO THE U. S."
    assert from_stm("(%HESITATION) (WE-) WENT TO THE U. S. {IT'S / IT IS}") == (
        "uh",
        "we-",
        "went",
        "to",
        "the",
        "u._s.",
        "it's",
    )


@given(st.lists(st.sampled_from("abcxyz"), min_size=1, max_size=5))
def test_acronyms_split_into_their_letters(letters: list[str]) -> None:
    joined = map_word("".join(f"{letter}." for letter in letters))
    assert joined is not None
    assert split_acronym(joined) == [f"{letter}." for letter in letters]


def test_the_examples() -> None:
    assert doctest.testmod(recipes.swbd.text).failed == 0
