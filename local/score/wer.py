"""The error counts of a hypothesis file against a reference file: all of it, by label, by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from local.cli import RecipeError
from local.score.align import Counts, Pair, align, tokens
from local.score.glm import Glm
from local.score.nist import Segment, Word, cleaned, read_ctm, read_stm

_RESAMPLES = 2000
_SEED = 1


@dataclass
class Line:
    """A reference segment and its alignment."""

    segment: Segment
    pairs: list[Pair]
    counts: Counts


@dataclass
class Result:
    """Every segment's alignment, and what a reader should be told."""

    lines: list[Line]
    labels: dict[str, str]  # the reference's labels and their names
    silent_sides: list[str] = field(default_factory=list)  # of the reference, without a hypothesis word

    def total(self, label: str | None = None) -> Counts:
        """The sum over the segments of a label, or over all."""
        return sum((line.counts for line in self.lines if label is None or label in line.segment.labels), Counts())

    def sentences(self, label: str | None = None) -> int:
        """How many segments are scored."""
        return sum(label is None or label in line.segment.labels for line in self.lines)

    def silent_segments(self) -> list[Line]:
        """The segments of which every word was missed for want of a hypothesis."""
        return [line for line in self.lines if line.counts.deleted and not any(heard for _, heard in line.pairs)]

    def sides(self, label: str | None = None) -> dict[str, Counts]:
        """The sums by conversation side."""
        sides: dict[str, Counts] = {}
        for line in self.lines:
            if label is None or label in line.segment.labels:
                key = f"{line.segment.file} {line.segment.side}"
                sides[key] = sides.get(key, Counts()) + line.counts
        return sides

    def interval(self, label: str | None = None) -> tuple[float, float]:
        """A 95 % interval of the error rate (percent) by drawing the conversation sides anew (bootstrap)."""
        table = np.array([(counts.errors, counts.words) for counts in self.sides(label).values()], dtype=float)
        if not len(table) or not table[:, 1].sum():
            return float("nan"), float("nan")
        draws = np.random.default_rng(_SEED).integers(len(table), size=(_RESAMPLES, len(table)))
        errors, words = table[draws].sum(1).T
        low, high = np.percentile(100 * errors / np.maximum(words, 1), [2.5, 97.5])
        return float(low), float(high)


class Reference:
    """An stm and a glm, filtered once, to score any number of hypotheses against."""

    def __init__(self, stm: Path, glm: Path) -> None:
        self.path = stm
        self.segments, self.labels = read_stm(stm)
        self.glm = Glm(glm)
        self._aligned = lru_cache(maxsize=1 << 17)(lambda ref, hyp: align(tokens(ref), tokens(hyp)))
        self.sides: dict[tuple[str, str], list[Segment]] = {}
        for segment in self.segments:
            self.sides.setdefault(_key(segment), []).append(segment)

    def score(self, ctm: Path) -> Result:
        """Score a ctm, cleaned.

        :raises RecipeError: for a file or side that the reference does not have.
        """
        return self.score_words(cleaned(read_ctm(ctm)))

    def score_words(self, hypothesis: Sequence[Word]) -> Result:
        """Score words as they are, sorted by side and time."""
        words: dict[tuple[str, str], list[Word]] = {side: [] for side in self.sides}
        for word in hypothesis:
            if _key(word) not in words:
                raise RecipeError(
                    f"hypothesis: {word.file} {word.side} is not in {self.path}, whose sides are like "
                    f"{self.segments[0].file} {self.segments[0].side}; was another set decoded, or are channels named 1 and 2?"
                )
            words[_key(word)] += self._filtered(word)
        lines: list[Line] = []
        for side, segments in self.sides.items():
            for segment, mine in assign(segments, words[side]):
                if not segment.ignored:
                    lines.append(self._align(segment, mine))
        silent = [f"{file} {side}" for (file, side), mine in words.items() if not mine and self._speaks(file, side)]
        return Result(lines, self.labels, silent)

    def _filtered(self, word: Word) -> list[Word]:
        """The word after the glm: the pieces it was split into share its time.

        Readings stay together, at the time of the last one's last piece: by that sclite gives them to a segment.
        """
        readings = self.glm.hypothesis(word.text)
        pieces = readings[-1]
        share = word.duration / max(len(pieces), 1)
        placed = [
            Word(word.file, word.side, round(word.start + share * place, 3), round(share, 3), piece)
            for place, piece in enumerate(pieces)
        ]
        if len(readings) == 1:
            return placed
        return [replace(placed[-1], text="{ " + " / ".join(map(" ".join, readings)) + " }")]

    def _align(self, segment: Segment, words: Sequence[Word]) -> Line:
        text = self.glm.reference(segment.text)
        counts, pairs = self._aligned(text, " ".join(word.text for word in words))
        own = sum(token != "@" for token in tokens(text))
        if counts.words != own and "{" not in text:
            raise RecipeError(
                f"{self.path}: {segment.file} {segment.side} {segment.start:.2f}: {counts.words} words scored, the "
                f"reference has {own}: {text[:80]!r}; please report this"
            )
        return Line(segment, pairs, counts)

    def _speaks(self, file: str, side: str) -> bool:
        return any(segment.text and not segment.ignored for segment in self.sides[file, side])


def assign(segments: Sequence[Segment], words: Sequence[Word]) -> list[tuple[Segment, list[Word]]]:
    """Give each word to the first segment that ends behind the word's middle; words behind the last one belong to that.

    So a word in a gap goes to the segment after it, where it is an insertion or fills a place, as it does in sclite, which
    holds the times of segments in single precision and those of words in double.
    """
    shares: list[tuple[Segment, list[Word]]] = [(segment, []) for segment in segments]
    place = 0
    for word in words:
        while place < len(segments) - 1 and word.middle >= float(np.float32(segments[place].end)):
            place += 1
        shares[place][1].append(word)
    return shares


def _key(item: Segment | Word) -> tuple[str, str]:
    """The side it lies on; case does not count."""
    return item.file.lower(), item.side.lower()


def warn(result: Result, ctm: Path) -> None:
    """Say which sides of the reference have no hypothesis word at all, and how many segments have none."""
    if result.silent_sides:
        print(
            f"warning: {ctm}: {len(result.silent_sides)} sides of the reference have no hypothesis word, all of theirs "
            f"count as deleted: {', '.join(result.silent_sides)}",
            file=sys.stderr,
        )
    if segments := result.silent_segments():
        first = segments[0].segment
        print(
            f"warning: {ctm}: {len(segments)} of {result.sentences()} segments have no hypothesis word, which deletes "
            f"{sum(line.counts.deleted for line in segments)} words; the first is {first.file} {first.side} {first.start:.2f}",
            file=sys.stderr,
        )
