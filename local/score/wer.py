"""The error counts of a hypothesis file against a reference file: all of it, by label, by side, by speaker."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from local.cli import RecipeError
from local.score.align import Counts, Pair, align, judge, lattice, lengths, tokens
from local.score.glm import Glm
from local.score.nist import Label, Segment, Word, cleaned, read_ctm, read_stm

_RESAMPLES = 2000
_SEED = 1
_CERTAIN = 1e-7  # sclite takes no confidence as nearer to 0 or 1 than this


@dataclass
class Line:
    """A reference segment and its alignment."""

    segment: Segment
    pairs: list[Pair]
    counts: Counts
    confidences: list[float | None]  # of each pair's hypothesis word; None where it has none

    @property
    def name(self) -> str:
        """Where the segment lies: file, side, start and end in seconds."""
        return f"{self.segment.file} {self.segment.side} {self.segment.start:.2f} {self.segment.end:.2f}"

    @property
    def verdicts(self) -> str:
        """``C``, ``S``, ``D`` or ``I`` of every pair."""
        return "".join(judge(pair.word, pair.heard) for pair in self.pairs)

    def as_json(self) -> str:
        """The line as JSON: the segment's fields, the words, the verdicts."""
        aligned = {
            "ref": [pair.word for pair in self.pairs],
            "hyp": [pair.heard for pair in self.pairs],
            "eval": self.verdicts,
            "confidence": self.confidences,
        }
        return json.dumps(dataclasses.asdict(self.segment) | aligned)


@dataclass
class Result:
    """Every segment's alignment, and what a reader should be told."""

    lines: list[Line]
    labels: dict[str, Label]  # of the reference
    silent_sides: list[str] = field(default_factory=list)  # of the reference, without a hypothesis word

    def of(self, label: str | None = None) -> list[Line]:
        """The segments of a label, or all."""
        return [line for line in self.lines if label is None or label in line.segment.labels]

    def total(self, label: str | None = None) -> Counts:
        """The sum over the segments of a label, or over all."""
        return total(self.of(label))

    def silent_segments(self) -> list[Line]:
        """The segments of which every word was missed for want of a hypothesis."""
        return [line for line in self.lines if line.counts.deleted and not any(pair.heard for pair in line.pairs)]

    def speakers(self) -> dict[str, list[Line]]:
        """The segments by the reference's speakers, in lower case as sclite writes them."""
        return grouped(self.lines, lambda line: line.segment.speaker.lower())

    def interval(self, label: str | None = None) -> tuple[float, float]:
        """A 95 % interval of the error rate (percent) by drawing the conversation sides anew."""
        sides = [total(lines) for lines in grouped(self.of(label), side_of).values()]
        return bootstrap([counts.errors for counts in sides], [counts.words for counts in sides])


def total(lines: Iterable[Line]) -> Counts:
    """The sum of their counts."""
    return sum((line.counts for line in lines), Counts())


def grouped(lines: Iterable[Line], key: Callable[[Line], str]) -> dict[str, list[Line]]:
    """The lines by what ``key`` says of them, in the order in which that first came."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(key(line), []).append(line)
    return groups


def side_of(line: Line) -> str:
    """The conversation side of a line; case does not count."""
    return f"{line.segment.file} {line.segment.side}".lower()


def bootstrap(errors: Sequence[float], words: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of ``100 * sum(errors) / sum(words)`` by drawing its terms anew (Bisani & Ney 2004).

    :param errors: of each conversation side, shape (sides,); the difference of two systems' for that of their rates.
    :param words: of each side's reference.
    """
    table = np.stack([errors, words], axis=1).astype(float)
    if not table[:, 1].sum():
        return float("nan"), float("nan")
    draws = np.random.default_rng(_SEED).integers(len(table), size=(_RESAMPLES, len(table)))
    drawn_errors, drawn_words = table[draws].sum(1).T
    low, high = np.percentile(100 * drawn_errors / np.maximum(drawn_words, 1), [2.5, 97.5])
    return float(low), float(high)


def cross_entropy(lines: Sequence[Line]) -> float | None:
    """The normalised cross entropy of the confidences: 1 for perfect ones, 0 for those that know the mean rate only.

    As sclite has it: ``(H + sum over right words of log2 c + sum over wrong words of log2(1 - c)) / H``, where H is the
    entropy of as many right and wrong words at the mean rate; optional words left out count as right in H. None where
    words lack a confidence, or all are right or all wrong: H is 0 then, and sclite prints no number.
    """
    counts = total(lines)
    judged = [
        (verdict == "C", confidence)
        for line in lines
        for verdict, pair, confidence in zip(line.verdicts, line.pairs, line.confidences, strict=True)
        if pair.heard
    ]
    wrong = counts.substituted + counts.inserted
    if not counts.correct or not wrong or not judged or any(confidence is None for _, confidence in judged):
        return None
    rate = counts.correct / (counts.correct + wrong)
    entropy = -counts.correct * np.log2(rate) - wrong * np.log2(1 - rate)
    right, confidence = np.array(judged, dtype=float).T
    confidence = np.clip(confidence, _CERTAIN, 1 - _CERTAIN)
    return float(1 + np.log2(np.where(right, confidence, 1 - confidence)).sum() / entropy)


class Reference:
    """An stm and a glm, filtered once, to score any number of hypotheses against."""

    def __init__(self, stm: Path, glm: Path) -> None:
        self.path = stm
        self.segments, self.labels = read_stm(stm)
        self.glm = Glm(glm)
        self._aligned = lru_cache(maxsize=1 << 17)(lambda ref, hyp: align(tokens(ref), tokens(hyp)))
        self._lengths = lru_cache(maxsize=None)(lambda ref: lengths(tokens(ref)))
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
        """The word after the glm: the pieces it was split into share its time, each has its confidence.

        Readings stay together, at the time of the last one's last piece: by that sclite gives them to a segment.
        """
        readings = self.glm.hypothesis(word.text)
        pieces = readings[-1]
        share = word.duration / max(len(pieces), 1)
        placed = [
            replace(word, start=round(word.start + share * place, 3), duration=round(share, 3), text=piece)
            for place, piece in enumerate(pieces)
        ]
        if len(readings) == 1:
            return placed
        return [replace(placed[-1], text="{ " + " / ".join(map(" ".join, readings)) + " }")]

    def _align(self, segment: Segment, words: Sequence[Word]) -> Line:
        """:raises RecipeError: where the alignment does not hold every word of the reference."""
        text = self.glm.reference(segment.text)
        counts, pairs = self._aligned(text, " ".join(word.text for word in words))
        fewest, most = self._lengths(text)
        if not fewest <= counts.words <= most:
            raise RecipeError(
                f"{self.path}: {segment.file} {segment.side} {segment.start:.2f}: {counts.words} words scored, the "
                f"reference has {fewest} to {most}: {text[:80]!r}; please report this"
            )
        confidences: list[float | None] = [None]  # of each place: 0 is none
        for word in words:
            readings = word.text.startswith("{")
            confidences += [word.confidence] * (len(lattice(tokens(word.text)).words) - 1 if readings else 1)
        return Line(segment, pairs, counts, [confidences[pair.place] for pair in pairs])

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
    """Say which sides of the reference have no hypothesis word at all, and which segments of the others have none."""
    if result.silent_sides:
        print(
            f"warning: {ctm}: {len(result.silent_sides)} sides of the reference have no hypothesis word, all of theirs "
            f"count as deleted: {', '.join(result.silent_sides)}",
            file=sys.stderr,
        )
    if segments := [line for line in result.silent_segments() if side_of(line) not in result.silent_sides]:
        print(
            f"warning: {ctm}: {len(segments)} of {len(result.lines)} segments have no hypothesis word though others of their "
            f"sides have, which deletes {total(segments).deleted} words: {', '.join(line.name for line in segments)}",
            file=sys.stderr,
        )
