"""sclite's alignment of a reference to a hypothesis, both with alternatives.

Costs: substitution 4, insertion 3, deletion 3. A word in parentheses may be left out: it then counts as correct. A fragment,
``WE-``, is matched by what begins (or ends) like it. ``{ A / B C / @ }`` are alternatives, ``@`` being none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SUBSTITUTION, INSERTION, DELETION, OPTIONAL = 4, 3, 3, 2


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


Arc = tuple[int, str]  # the node it comes from, the word ("" for none)


def network(tokens: Sequence[str]) -> list[list[Arc]]:
    """The arcs into each node of a text; node 0 is the start, the last one the end. Alternatives may nest."""
    arcs: list[list[Arc]] = [[]]
    _sequence(tokens, 0, 0, arcs)
    return arcs


def _sequence(tokens: Sequence[str], place: int, node: int, arcs: list[list[Arc]]) -> tuple[int, int]:
    """Lay out tokens behind ``node`` up to a ``/``, a ``}`` or the end; return that place and the last node."""
    while place < len(tokens) and tokens[place] not in ("/", "}"):
        if tokens[place] == "{":
            place, node = _choice(tokens, place + 1, node, arcs)
        else:
            arcs.append([(node, "" if tokens[place] == "@" else tokens[place])])
            place, node = place + 1, len(arcs) - 1
    return place, node


def _choice(tokens: Sequence[str], place: int, node: int, arcs: list[list[Arc]]) -> tuple[int, int]:
    """Lay out alternatives behind ``node`` up to their ``}``; return the place behind it and the node where they meet."""
    meeting: list[Arc] = []
    while True:
        place, end = _sequence(tokens, place, node, arcs)
        if end == node:
            meeting.append((node, ""))
        else:  # the last words lead straight to the meeting place; their own is left without an entry
            meeting += arcs[end]
            arcs[end] = []
        if tokens[place] == "}":
            break
        place += 1
    arcs.append(meeting)
    return place + 1, len(arcs) - 1


def matches(reference: str, hypothesis: str) -> bool:
    """Whether a hypothesis word is the reference word, or a fragment of either begins or ends like the other."""
    if reference == hypothesis:
        return True
    for fragment, other in ((reference, hypothesis), (hypothesis, reference)):
        if len(fragment) > 1 and fragment.endswith("-") and other.startswith(fragment[:-1]):
            return True
        if len(fragment) > 1 and fragment.startswith("-") and other.endswith(fragment[1:]):
            return True
    return False


Pair = tuple[str, str]  # reference word, hypothesis word; "" where there is none


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> tuple[Counts, list[Pair]]:
    """Align two filtered texts; return the counts and the pairs of the cheapest alignment."""
    ref, hyp = network(reference), network(hypothesis)
    infinite = 10**9
    cost = [[infinite] * len(hyp) for _ in ref]
    back: list[list[tuple[int, int, str, str] | None]] = [[None] * len(hyp) for _ in ref]
    cost[0][0] = 0
    for r, ref_arcs in enumerate(ref):
        for h, hyp_arcs in enumerate(hyp):
            best, step = cost[r][h], back[r][h]
            for r0, word in ref_arcs:
                for h0, heard in hyp_arcs:
                    if word and heard:
                        plain = word[1:-1] if word.startswith("(") else word
                        total = cost[r0][h0] + (0 if matches(plain, heard) else SUBSTITUTION)
                        if total < best:
                            best, step = total, (r0, h0, word, heard)
            for h0, heard in hyp_arcs:
                total = cost[r][h0] + (INSERTION if heard else 0)
                if total < best:
                    best, step = total, (r, h0, "", heard)
            for r0, word in ref_arcs:
                total = cost[r0][h] + (0 if not word else OPTIONAL if word.startswith("(") else DELETION)
                if total < best:
                    best, step = total, (r0, h, word, "")
            cost[r][h], back[r][h] = best, step
    pairs: list[Pair] = []
    r, h = len(ref) - 1, len(hyp) - 1
    while (step := back[r][h]) is not None:
        r, h, word, heard = step
        if word or heard:
            pairs.append((word, heard))
    pairs.reverse()
    return count(pairs), pairs


def judge(word: str, heard: str) -> str:
    """``C``, ``S``, ``D`` or ``I`` of a pair."""
    if not word:
        return "I"
    optional = word.startswith("(")
    if not heard:
        return "C" if optional else "D"
    return "C" if matches(word[1:-1] if optional else word, heard) else "S"


def count(pairs: Sequence[Pair]) -> Counts:
    """Sum up an alignment."""
    judged = [judge(*pair) for pair in pairs]
    return Counts(*(judged.count(kind) for kind in "CSDI"))
