"""The text rules: what the transcripts of Switchboard, Fisher and CallHome and the stm write, as the recipe's words.

The recipe's words are lower case; acronyms are joined as ``u._s.``; an unfinished word keeps its dash, ``we-``; the
noise tags are ``[noise]``, ``[vocalized-noise]`` and ``[laughter]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

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


@lru_cache(maxsize=1 << 16)
def map_word(word: str) -> str | None:
    """Map one token of an ISIP transcript to the recipe's word, or to ``None`` where it is no word.

    >>> [map_word(word) for word in ("[laughter-story]", "[it'n/isn't]", "ammu[n]it-", "{Yuppie}", "[silence]")]
    ['story', "it'n", 'ammu-it-', 'yuppie', None]
    """
    mapped = _unmarked(word.lower())
    while mapped is not None and (once_more := _unmarked(mapped)) != mapped:  # the markings nest
        mapped = once_more
    return mapped


def _unmarked(word: str) -> str | None:
    if word in _DROPPED:
        return None
    if word.rstrip("-") in NOISE_TAGS:
        return word.rstrip("-")
    # [laughter-sh[e]-], [lem[guini]-/linguini], h[e]-[noise]
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


_FISHER_TAGS = {
    "[laugh]": "[laughter]",
    "[laughter]": "[laughter]",
    "[noise]": "[noise]",
    **dict.fromkeys(("[sigh]", "[cough]", "[mn]", "[breath]", "[lipsmack]", "[sneeze]"), "[noise]"),
    "[pause]": None,
    "[[skip]]": None,
}
_FISHER_NUMBERS = {
    "401k": "four o one k.",
    "90210": "nine o two one o",
    "ak47": "a._k. forty seven",
    "dc3s": "d._c. threes",
    "espn2": "e._s._p._n. two",
    "f16": "f. sixteen",
    "m16": "m. sixteen",
    "mp3": "m._p. three",
    "s2b": "s. two b.",
    "u2": "u. two",
    "v8": "v. eight",
    "vh1": "v._h. one",
    "y2k": "y. two k.",
    "3d": "three d.",
    "2": "two",
}


def map_fisher(text: str) -> tuple[str, ...] | None:
    """Map a line of a Fisher transcript; ``None`` where part of it was not understood, ``(( ... ))``: no text to train on.

    >>> map_fisher("[laugh] i._b._m. [mn] wa- was y2k [pause]")
    ('[laughter]', 'i._b._m.', '[noise]', 'wa-', 'was', 'y.', 'two', 'k.')

    :raises ValueError: naming a tag that is not known.
    """
    if "((" in text or "))" in text:
        return None
    words: list[str] = []
    for word in text.lower().split():
        if word in _FISHER_TAGS:
            tag = _FISHER_TAGS[word]
            words += [tag] if tag else []
        elif "[" in word or "]" in word:
            raise ValueError(word)
        elif word.strip("-.,?!"):
            words += _FISHER_NUMBERS.get(word, _acronym(word.rstrip(",?!"))).split()
    return tuple(words)


_CALLHOME_COMMENT = re.compile(r"\[\[.*?\]\]")  # [[a remark of the transcriber's]]
_CALLHOME_SPAN = re.compile(r"\[/[^\]]*\]|\[[^\]]*/\]")  # where a long noise begins or ends
_CALLHOME_FOREIGN = re.compile(r"<[^>]*>")  # <French oui>
_CALLHOME_MARKS = re.compile(r"//|\*\*|[#+&%@^~*]")  # //aside//  **coined**  #both at once#  +mispronounced+  &Name  %um


def map_callhome(text: str) -> tuple[str, ...] | None:
    """Map a turn of a CallHome transcript; ``None`` where part of it was not understood, ``((...))``, or is not English.

    >>> map_callhome("{laugh} %um, &Bob //come here// said wha- -- &U.S. [distortion] {cough} **goody**.")
    ('[laughter]', 'um', 'bob', 'come', 'here', 'said', 'wha-', 'u._s.', '[noise]', '[vocalized-noise]', 'goody')
    """
    text = _CALLHOME_COMMENT.sub(" ", text)
    if "((" in text or "))" in text or _CALLHOME_FOREIGN.search(text):
        return None
    text = _CALLHOME_SPAN.sub(" ", text.lower())
    text = re.sub(r"\{\s*laugh(?:ing|ter|s)?\s*\}", " [laughter] ", text)
    text = re.sub(r"\{[^}]*\}", " [vocalized-noise] ", text)
    text = re.sub(r"\[(?!laughter\]|vocalized-noise\])[^\]]*\]", " [noise] ", text)
    words = []
    for token in text.split():
        if token in NOISE_TAGS:
            words.append(token)
            continue
        word = _CALLHOME_MARKS.sub("", token).strip('",?!;:')
        if not _LETTERS.match(word) or len(word) == 2:
            word = word.rstrip(".")
        if word.strip("-.'"):
            words.append(_acronym(_DASHES.sub("-", word)))
    return tuple(words)


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
