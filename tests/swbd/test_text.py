"""The text rules as a table, Kaldi's faults avoided."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recipes.swbd.text
from local.score.nist import split_acronym
from recipes.swbd.text import NOISE_TAGS, from_stm, map_callhome, map_fisher, map_word, map_words, to_stm


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


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("Yeah [laughter] [laugh] okay", "yeah [laughter] [laughter] okay"),
        ("[noise] [sigh] [cough] [mn] [breath] [lipsmack] [sneeze]", "[noise] " * 6 + "[noise]"),
        ("[pause] [[skip]] so", "so"),
        ("i._b._m. t._v. a.m.", "i._b._m. t._v. a._m."),
        ("it's wa- -- uh-huh o'clock", "it's wa- uh-huh o'clock"),
        ("an f16 and a 401k", "an f. sixteen and a four o one k."),
        ("well, yes?", "well yes"),
        ("one (( two )) three", None),
        ("(( ))", None),
        ("", ""),
    ],
)
def test_a_line_of_fisher(written: str, words: str | None) -> None:
    assert map_fisher(written) == (None if words is None else tuple(words.split()))


def test_an_unknown_tag_of_fisher_is_named() -> None:
    with pytest.raises(ValueError, match=r"\[mumble\]"):
        map_fisher("so [mumble]")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("%um, &Bob said {laugh} yes.", "um bob said [laughter] yes"),
        ("{cough} {breath} {lipsmack}", "[vocalized-noise] [vocalized-noise] [vocalized-noise]"),
        ("[static] [/background] [background/] [distortion]", "[noise] [noise]"),
        ("[[speaker moves away]] hello?", "hello"),
        ("//go to bed// I'm **goodified** +fillum+ #oh#", "go to bed i'm goodified fillum oh"),
        ("so wh- -- -at -- uh-huh", "so wh- -at uh-huh"),
        ("&U.S. &I. &B.M.W. T.V.", "u._s. i b._m._w. t._v."),
        ("he ((might have)) gone", None),
        ("<Spanish hola> yes", None),
        ("...", ""),
    ],
)
def test_a_turn_of_callhome(written: str, words: str | None) -> None:
    assert map_callhome(written) == (None if words is None else tuple(words.split()))


WRITTEN = st.text(st.sampled_from("abiz.-'[]{}/_1<>&%+*# "), max_size=20)


@given(WRITTEN)
def test_mapping_twice_changes_nothing(written: str) -> None:
    once = map_words(written)
    assert map_words(" ".join(once)) == once


@given(WRITTEN)
def test_every_rule_gives_words_that_may_stand_in_a_text(written: str) -> None:
    for mapped in (map_words(written), map_callhome(written)):
        for word in mapped or ():
            assert word in NOISE_TAGS or (word and word == word.lower() and " " not in word)


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
