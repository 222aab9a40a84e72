"""sclite's alignment of a reference to a hypothesis, both with alternatives.

Costs: substitution 4, insertion 3, deletion 3. A word in parentheses may be left out: it then counts as correct. A fragment,
``WE-``, is matched by what begins (or ends) like it. ``{ A / B C / @ }`` are alternatives, ``@`` being none.

Equally cheap alignments give different counts, so ties are broken as sclite breaks them: substitution before insertion before
deletion, earlier alternatives before later ones, and words before ``@``, which costs 0.001 and shows that sclite adds in
single precision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

SUBSTITUTION, INSERTION, DELETION, OPTIONAL, NOTHING = 4, 3, 3, 2, 0.001
INFINITE = float("inf")


@dataclass(frozen=True)
class Counts:
    """N is correct + substituted + deleted."""

    correct: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0

    @property
    def words(self) -> int:
        """N, the reference's words."""
        return self.correct + self.substituted + self.deleted

    @property
    def errors(self) -> int:
        """Substituted, deleted and inserted."""
        return self.substituted + self.deleted + self.inserted

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.correct + other.correct,
            self.substituted + other.substituted,
            self.deleted + other.deleted,
            self.inserted + other.inserted,
        )


def tokens(text: str) -> list[str]:
    """The words and marks of a text: a ``/`` is a mark between braces, elsewhere part of a word."""
    depth, out = 0, []
    for part in re.split(r"([{}])", text):
        depth += (part == "{") - (part == "}")
        out += part.replace("/", " / ").split() if depth else part.split()
    return out


class Lattice(NamedTuple):
    """A text with alternatives. Word 0 is its start."""

    words: list[str]  # "" for none
    before: list[list[int]]  # the words that may stand right before each
    last: list[int]  # the words that may end the text


def lattice(text: Sequence[str]) -> Lattice:
    """Lay out tokens. Alternatives may nest; the text's end closes those that are open."""
    words, before = [""], [[]]

    def sequence(place: int, frontier: list[int], within: bool) -> tuple[int, list[int]]:
        """Go on behind the words ``frontier`` up to a ``/`` or ``}`` or the end; return that place and the last words."""
        while place < len(text) and not (within and text[place] in ("/", "}")):
            if text[place] == "{":
                place, frontier = choice(place + 1, frontier)
            else:
                words.append("" if text[place] == "@" else text[place])
                before.append(frontier)
                place, frontier = place + 1, [len(words) - 1]
        return place, frontier

    def choice(place: int, frontier: list[int]) -> tuple[int, list[int]]:
        ends: list[int] = []
        while True:
            place, last = sequence(place, frontier, within=True)
            ends += last
            place += 1
            if place > len(text) or text[place - 1] == "}":
                return place, ends

    return Lattice(words, before, sequence(0, [0], within=False)[1])


@lru_cache(maxsize=1 << 18)
def matches(reference: str, hypothesis: str) -> bool:
    """Whether a hypothesis word is the reference word, or begins or ends like a fragment. Either may be the fragment."""
    if reference == hypothesis:
        return True
    broken = reference[0] == "-" or reference[-1] == "-"
    fragment, other = (reference, hypothesis) if broken else (hypothesis, reference)
    if len(fragment) < 2:
        return False
    return (fragment[-1] == "-" and other.startswith(fragment[:-1])) or (fragment[0] == "-" and other.endswith(fragment[1:]))


class Pair(NamedTuple):
    """What an alignment puts beside each other."""

    word: str  # of the reference, "" where there is none
    heard: str  # of the hypothesis, "" where there is none
    place: int = 0  # of the latter among the hypothesis's words, its alternatives' included, from 1


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> tuple[Counts, list[Pair]]:
    """Align two filtered texts; return the counts and the pairs of the cheapest alignment."""
    ref, hyp = lattice(reference), lattice(hypothesis)
    exact = "" not in ref.words[1:] and "" not in hyp.words[1:]
    number = int if exact else np.float32
    insertion = [number(INSERTION if heard else NOTHING) for heard in hyp.words]
    cost: list[list[float]] = []  # of the best alignment that ends with the reference's word r and the hypothesis's word h
    back: list[list[tuple[int, int]]] = []
    for r, (word, ref_before) in enumerate(zip(ref.words, ref.before, strict=True)):
        optional = word.startswith("(")
        plain = word[1:-1] if optional else word
        deletion = number(OPTIONAL if optional else DELETION if word else NOTHING)
        row: list[float] = []
        steps: list[tuple[int, int]] = []
        cost.append(row)
        back.append(steps)
        for h, (heard, hyp_before) in enumerate(zip(hyp.words, hyp.before, strict=True)):
            best, step = number(0) if r == h == 0 else INFINITE, (0, 0)
            if word and heard:
                substitution = 0 if plain and matches(plain, heard) else SUBSTITUTION
                for r0 in ref_before:
                    for h0 in hyp_before:
                        if (total := cost[r0][h0] + substitution) < best:
                            best, step = total, (r0, h0)
            for h0 in hyp_before:
                if (total := row[h0] + insertion[h]) < best:
                    best, step = total, (r, h0)
            for r0 in ref_before:
                if (total := cost[r0][h] + deletion) < best:
                    best, step = total, (r0, h)
            row.append(best)
            steps.append(step)
    _, r, h = min(((cost[r][h], r, h) for r in ref.last for h in hyp.last), key=lambda end: end[0])
    pairs: list[Pair] = []
    while r or h:
        r0, h0 = back[r][h]
        pairs.append(Pair(ref.words[r] if r0 != r else "", *((hyp.words[h], h) if h0 != h else ("",))))
        r, h = r0, h0
    pairs = [pair for pair in reversed(pairs) if pair.word or pair.heard]
    return count(pairs), pairs


def judge(word: str, heard: str) -> str:
    """``C``, ``S``, ``D`` or ``I`` of a pair."""
    if not word:
        return "I"
    optional = word.startswith("(")
    if not heard:
        return "C" if optional else "D"
    return "C" if matches(word[1:-1] if optional else word, heard) else "S"


def lengths(text: Sequence[str]) -> tuple[int, int]:
    """The fewest and the most words that a text with alternatives can have."""
    words, before, last = lattice(text)
    few, many = [0], [0]
    for word, places in zip(words[1:], before[1:], strict=True):
        few.append(min(few[place] for place in places) + bool(word))
        many.append(max(many[place] for place in places) + bool(word))
    return min(few[place] for place in last), max(many[place] for place in last)


def count(pairs: Sequence[Pair]) -> Counts:
    """Sum up an alignment."""
    judged = [judge(pair.word, pair.heard) for pair in pairs]
    return Counts(*(judged.count(kind) for kind in "CSDI"))
