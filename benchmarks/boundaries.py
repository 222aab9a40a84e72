"""Word and phone boundaries of an alignment against known ones.

    python -m benchmarks.boundaries --words align/network/train/words.ctm --data data/train --truth TRUTH

TRUTH is a folder with ``words.ctm`` and ``phones.ctm`` (the synthetic corpora's ``truth``) or with ISIP's word files
``sw2001A-ms98-a-word.text``. Prints a Markdown table; an error is the alignment's time minus the true one.

Words count, noises do not. They are matched within their utterance, by order; each has a start and an end. A boundary is
at silence where the truth leaves a gap of more than a frame, or nothing follows. Phones are compared inside of words that
have as many of them in the truth as in the alignment: the names differ, as the synthesiser's are not the dictionary's.

An alignment gives the time of frame i as i * 10 ms, the start of its window (Kaldi's convention). The window is 25 ms
wide, and a boundary half-way between the centres of the frames i - 1 and i is 7.5 ms later: so much too early is an
alignment that does best. Nothing is added for it here.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from local.cli import run
from local.datadir import DataDir
from local.features import FRAME_SHIFT
from local.hmm.pictures import Side, Span, read_ctm
from recipes.swbd.corpus import find_files
from recipes.swbd.swbd1 import read_transcript
from recipes.swbd.text import NOISE_TAGS, map_word

WORD_FILE = r"sw(\d{4}[AB])-ms98-a-word\.text"
_EVEN = 0.0015  # seconds: lengths written in milliseconds that differ by no more are the same
_GAP = FRAME_SHIFT


def read_sides(path: Path) -> dict[Side, list[Span]]:
    """The spans of each side of a ctm, by time.

    :raises RecipeError: for a line of another form, with its number.
    """
    spans: dict[Side, list[Span]] = {}
    for side, span in read_ctm(path):
        spans.setdefault(side, []).append(span)
    return {side: sorted(items, key=lambda span: span.start) for side, items in spans.items()}


def read_word_files(folder: Path) -> dict[Side, list[Span]]:
    """The words of each side by time, silences left out, from ISIP's word files anywhere below ``folder``.

    :raises RecipeError: where there are none, or a line cannot be read.
    """
    files = find_files([folder], WORD_FILE, "words.ctm, or word files as in swb_ms98_transcriptions")
    return {
        (f"sw0{side[:4]}", side[4]): sorted(
            (Span(text, float(start), float(end)) for start, end, text, _ in read_transcript(path, side) if map_word(text)),
            key=lambda span: span.start,
        )
        for side, path in files.items()
    }


def within(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """Those of ``spans``, in order of time, whose middle lies between ``start`` and ``end``."""
    middle = [(span.start + span.end) / 2 for span in spans]
    return list(spans[bisect.bisect_left(middle, start) : bisect.bisect_left(middle, end)])


def match(truth: Sequence[Span], aligned: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Places of the same words in both, in order; noises are matched too, so that they keep words apart."""
    labels = [map_word(span.label) for span in truth], [span.label for span in aligned]
    for block in SequenceMatcher(None, *labels, autojunk=False).get_matching_blocks():
        yield from zip(range(block.a, block.a + block.size), range(block.b, block.b + block.size), strict=True)


@dataclass
class Errors:
    """Errors in seconds by kind of boundary, and what could not be compared."""

    kinds: dict[str, list[float]]
    words: int = 0
    unmatched: int = 0
    same_phones: int = 0
    with_phones: int = 0
    unknown: int = 0
    by_side: dict[Side, list[float]] = field(default_factory=dict)  # of words' boundaries


KINDS = (
    "start of a word, at silence",
    "end of a word, at silence",
    "start of a word, at a word",
    "end of a word, at a word",
    "between phones of a word",
)


def run_together(truth: Sequence[Span]) -> set[int]:
    """Places of words whose start is not known: the synthesiser ran them together and they share their time evenly."""
    return {
        place
        for place, (before, after) in enumerate(itertools.pairwise(truth), 1)
        if abs(after.start - before.end) < _EVEN and abs((after.end - after.start) - (before.end - before.start)) < _EVEN
    }


def compare(
    data: DataDir,
    truth: Mapping[Side, Sequence[Span]],
    aligned: Mapping[Side, Sequence[Span]],
    phones: tuple[Mapping[Side, Sequence[Span]], Mapping[Side, Sequence[Span]]] | None = None,
) -> Errors:
    """Compare the boundaries of every utterance that both know.

    :param phones: of truth and alignment; with them goes that evenly shared times in the truth are not known.
    """
    errors = Errors({kind: [] for kind in KINDS})
    for utterance in data.utterances.values():
        recording = data.recordings[utterance.recording]
        side = (recording.file, recording.side)
        known, found = (within(of.get(side, ()), utterance.start, utterance.end) for of in (truth, aligned))
        shared = run_together(known) if phones else set()
        matched = [(i, j) for i, j in match(known, found) if found[j].label not in NOISE_TAGS]
        words = sum(word not in NOISE_TAGS for word in utterance.words)
        errors.words += words
        errors.unmatched += words - len(matched)
        for i, j in matched:
            true, mine = known[i], found[j]
            silent_before = i == 0 or true.start - known[i - 1].end > _GAP
            silent_behind = i + 1 == len(known) or known[i + 1].start - true.end > _GAP
            start, end = KINDS[0 if silent_before else 2], KINDS[1 if silent_behind else 3]
            for place, kind, error in ((i, start, mine.start - true.start), (i + 1, end, mine.end - true.end)):
                if place in shared:
                    errors.unknown += 1
                else:
                    errors.kinds[kind].append(error)
                    errors.by_side.setdefault(side, []).append(error)
            if phones and not {i, i + 1} & shared:
                true_phones, my_phones = (
                    within(of.get(side, ()), span.start, span.end) for of, span in zip(phones, (true, mine), strict=True)
                )
                errors.with_phones += 1
                if len(true_phones) == len(my_phones):
                    errors.same_phones += 1
                    errors.kinds[KINDS[4]] += [
                        there.start - here.start for here, there in zip(true_phones[1:], my_phones[1:], strict=True)
                    ]
    return errors


def report(errors: Errors) -> str:
    """The errors as a Markdown table, and below it what was left out."""
    kinds = errors.kinds
    every = {"all boundaries of words": list(itertools.chain(*(kinds[kind] for kind in KINDS[:4]))), **kinds}
    lines = ["| boundaries | N | mean abs. error, ms | mean error, ms | within 20 ms, % | within 50 ms, % |", "|---" * 6 + "|"]
    for name, values in every.items():
        if values:
            e = 1000 * np.array(values)
            near = " | ".join(f"{_near(values, limit):.1f}" for limit in (20, 50))
            lines.append(f"| {name} | {len(e)} | {np.abs(e).mean():.1f} | {e.mean():+.1f} | {near} |")
    lines.append(f"\n{errors.unmatched} of {errors.words} words could not be matched.")
    sides = sorted((_near(values, 50), *side) for side, values in errors.by_side.items())
    if sides:
        worst = ", ".join(f"{file}-{side} {share:.0f}" for share, file, side in sides[:10])
        lines.append(f"Within 50 ms by side, %: median {sides[len(sides) // 2][0]:.0f}; the worst: {worst}.")
    if errors.with_phones:
        lines.append(
            f"{errors.unknown} boundaries are not known: the synthesiser ran the words together.\n"
            f"{errors.same_phones} of {errors.with_phones} words ({100 * errors.same_phones / errors.with_phones:.0f} %) "
            f"have as many phones in the truth as in the alignment."
        )
    return "\n".join(lines)


def _near(errors: Sequence[float], limit: float) -> float:
    """Percent of ``errors`` (seconds) that are at most ``limit`` ms."""
    return 100 * float(np.mean(np.abs(errors) <= limit / 1000 + 1e-9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=Path, required=True, help="words.ctm of an alignment, with phones.ctm beside it")
    parser.add_argument("--data", type=Path, required=True, help="the data directory that was aligned")
    parser.add_argument("--truth", type=Path, required=True)
    arguments = parser.parse_args()
    data, aligned = DataDir.read(arguments.data), read_sides(arguments.words)
    if (arguments.truth / "words.ctm").exists():
        phones = read_sides(arguments.truth / "phones.ctm"), read_sides(arguments.words.with_name("phones.ctm"))
        print(report(compare(data, read_sides(arguments.truth / "words.ctm"), aligned, phones)))
    else:
        print(report(compare(data, read_word_files(arguments.truth), aligned)))


if __name__ == "__main__":
    run(main)
