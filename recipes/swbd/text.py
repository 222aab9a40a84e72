"""Switchboard's text rules: what the ISIP transcripts and the stm write, as the recipe's words.

The recipe's words are lower case; acronyms are joined as ``u._s.``; an unfinished word keeps its dash, ``we-``; the
noise tags are ``[noise]``, ``[vocalized-noise]`` and ``[laughter]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from local.score.nist import FILLERS, split_acronym

NOISE_TAGS = frozenset({"[noise]", "[vocalized-noise]", "[laughter]"})
_DROPPED = frozenset({"[silence]", "<b_aside>", "<e_aside>"})

_LAUGHED = re.compile(r"^\[laughter-(.+)\]$")  # [laughter-story]: a word said laughing
_INTENDED = re.compile(r"^\[(.+)/(.+)\]$")  # [it'n/isn't]: what was said / what was meant
_COINED = re.compile(r"^\{(.+)\}$")  # {x}: a word made up by the speaker
_VARIANT = re.compile(r"_1(?=-?$)")  # them_1: a variant pronunciation
_UNSAID = re.compile(r"\[[^\]\[]*\]")  # ab[solute]-: the part that was not said
_DASHES = re.compile(r"-{2,}")
_LETTERS = re.compile(r"^(?:[a-z]\.)+(?:'?s)?$")  # u.s.  t.v.s  i.b.m.'s


def map_word(word: str) -> str | None:
    """Map one token of an ISIP transcript to the recipe's word, or to ``None`` where it is no word.

    >>> [map_word(word) for word in ("[laughter-story]", "[it'n/isn't]", "ammu[n]it-", "{Yuppie}", "[silence]")]
    ['story', "it'n", 'ammu-it-', 'yuppie', None]
    """
    word = word.lower()
    if word in _DROPPED:
        return None
    if word.rstrip("-") in NOISE_TAGS:
        return word.rstrip("-")
    # The markings nest: [laughter-sh[e]-], [lem[guini]-/linguini], h[e]-[noise].
    for tag in NOISE_TAGS:
        word = word.removesuffix(tag)
    if match := _LAUGHED.match(word):
        word = match[1]
    if match := _INTENDED.match(word):
        word = match[1]
    if match := _COINED.match(word):
        word = match[1]
    word = _VARIANT.sub("", word)
    word = _without_the_unsaid(word)
    word = _VARIANT.sub("", word)
    if not word.strip("-"):
        return None
    return _acronym(word)


def _without_the_unsaid(word: str) -> str:
    """Drop bracketed letters: at the word's edges nothing takes their place, within it a dash does.

    ``ab[solute]-`` was broken off, ``-[an]y`` begun late: the dash is in the transcript. ``ammu[n]it-`` has none where
    the sound is missing, so that the two pieces do not run together into a word nobody said.
    """
    pieces = _UNSAID.split(word)
    joined = pieces[0]
    for piece in pieces[1:]:
        inside = joined.strip("-") and piece.strip("-")
        joined += ("-" if inside else "") + piece
    return _DASHES.sub("-", joined)


def _acronym(word: str) -> str:
    """``u.s.`` as ``u._s.``, with an ending kept: ``t.v.s`` as ``t._v.s``; what is joined already stays."""
    if _LETTERS.match(word):
        return re.sub(r"\.(?=[a-z]\.)", "._", word)
    return word


def map_words(text: str) -> tuple[str, ...]:
    """Map a line of an ISIP transcript: empty where nothing was said."""
    return tuple(mapped for word in text.split() if (mapped := map_word(word)) is not None)


def to_stm(words: Iterable[str]) -> str:
    """Write the recipe's words as the text of a NIST stm segment.

    Upper case; acronyms by letters (``U. S.``); hesitations and unfinished words may be left out by the recogniser
    (``(%HESITATION)``, ``(WE-)``); noise is not scored.
    """
    written: list[str] = []
    for word in words:
        if word in NOISE_TAGS:
            continue
        if word in FILLERS:
            written.append("(%HESITATION)")
        elif word.startswith("-") or word.endswith("-"):
            written.append(f"({word.upper()})")
        else:
            written += split_acronym(word.upper())
    return " ".join(written)


def from_stm(text: str) -> tuple[str, ...]:
    """Read the text of an stm segment as the recipe's words; alternatives ``{ a / b }`` by their first form."""
    text = re.sub(r"\{\s*([^/{}]*?)\s*/[^{}]*\}", r"\1", text.lower())
    text = text.replace("(%hesitation)", "uh").replace("%hesitation", "uh")
    words = re.sub(r"[()]", "", text).split()
    letters = " ".join(words)
    return tuple(re.sub(r"\b([a-z]\.)(?: (?=[a-z]\.(?:\s|$)))", r"\1_", letters).split())
