"""Choosing acoustic scale and word insertion penalty: those by which a set's lattices have the fewest errors.

    python -m local.tune --data data/train_dev --lattices decode/S/train_dev/all --lang lang --conf '{...}' --out best.json

Nothing is searched again. A best point on the edge of the grid widens it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from local.cli import parse_conf, run
from local.datadir import DataDir
from local.decode import DecodeConf
from local.files import read_archive, write_text
from local.lattice import Lattice, Point
from local.lexicon import Lang
from local.score.nist import Word, cleaned
from local.score.wer import Reference

_WIDENINGS = 5  # of the grid, at most


class Grid:
    """Scores the words that lattices give at any point."""

    def __init__(self, data: DataDir, lattices: Mapping[str, Lattice], names: Mapping[int, str], reference: Reference) -> None:
        self.data, self.lattices, self.names, self.reference = data, lattices, names, reference
        self.counts: dict[Point, dict[str, int]] = {}

    def score(self, scales: Sequence[float], penalties: Sequence[float]) -> None:
        """Score the points that have not been."""
        points = [point for scale in scales for penalty in penalties if (point := Point(scale, penalty)) not in self.counts]
        for point in tqdm(points, desc="tune", mininterval=2):
            words = [word for key, lattice in self.lattices.items() for word in self._words(key, lattice.best(point))]
            total = self.reference.score_words(cleaned(words)).total()
            self.counts[point] = {
                "N": total.words,
                "sub": total.substituted,
                "del": total.deleted,
                "ins": total.inserted,
            }

    def _words(self, key: str, numbers: Sequence[int]) -> Iterator[Word]:
        """An utterance's words, spread over its time: a segment of the reference gets them all the same."""
        utterance = self.data.utterances[key]
        recording = self.data.recordings[utterance.recording]
        share = (utterance.end - utterance.start) / max(len(numbers), 1)
        for place, number in enumerate(numbers):
            yield Word(recording.file, recording.side, utterance.start + place * share, share, self.names[number])

    def errors(self) -> dict[Point, int]:
        """Errors by point."""
        return {point: counts["sub"] + counts["del"] + counts["ins"] for point, counts in self.counts.items()}


def choose(errors: Mapping[Point, int]) -> tuple[Point, list[int]]:
    """Return the point with the fewest errors, and the axes of which it lies on the edge: -1, 1, or 0 for inside, of each.

    Of equal ones the nearest to the middle of the grid is taken: a tie is no reason to go to an edge.
    """
    axes = [sorted({point[axis] for point in errors}) for axis in range(2)]

    def off_centre(point: Point) -> float:
        return sum(
            abs(2 * values.index(value) - len(values) + 1) / len(values) for values, value in zip(axes, point, strict=True)
        )

    best = min(errors, key=lambda point: (errors[point], off_centre(point), point))
    edges = [
        (value == values[-1]) - (value == values[0]) if len(values) > 1 else 0 for values, value in zip(axes, best, strict=True)
    ]
    return best, edges


def widened(conf: DecodeConf, edges: Sequence[int]) -> DecodeConf:
    """The grid with a value more beyond each edge: scales go on by their last ratio, penalties by their last difference."""
    scales, penalties = list(conf.acoustic_scales), list(conf.insertion_penalties)
    if edges[0] > 0:
        scales.append(round(scales[-1] ** 2 / scales[-2], 6))
    elif edges[0] < 0:
        scales.insert(0, round(scales[0] ** 2 / scales[1], 6))
    if edges[1] > 0:
        penalties.append(2 * penalties[-1] - penalties[-2])
    elif edges[1] < 0:
        penalties.insert(0, 2 * penalties[0] - penalties[1])
    return replace(conf, acoustic_scales=tuple(scales), insertion_penalties=tuple(penalties))


def tune(grid: Grid, conf: DecodeConf, out: Path) -> None:
    """Write the best point of the grid, its word error rate in percent, and the counts of all points.

    A best point on the grid's edge widens the grid.
    """
    for _ in range(_WIDENINGS + 1):
        grid.score(conf.acoustic_scales, conf.insertion_penalties)
        best, edges = choose(grid.errors())
        if not any(edges):
            break
        print(f"warning: {best} is best, on the edge of the grid: widened", file=sys.stderr)
        conf = widened(conf, edges)
    counts = {point.name: values for point, values in sorted(grid.counts.items())}
    wer = 100 * grid.errors()[best] / grid.counts[best]["N"]
    print(f"tune: {best} is best of {len(counts)}: WER {wer:.2f} %", file=sys.stderr)
    write_text(out, json.dumps({**best._asdict(), "wer": wer, "edge": any(edges), "grid": counts}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="data directory with stm and glm")
    parser.add_argument("--lattices", type=Path, required=True, help="the decoded set")
    parser.add_argument("--lang", type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of DecodeConf")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    conf, data, lang = parse_conf(DecodeConf, arguments.conf), DataDir.read(arguments.data), Lang.read(arguments.lang)
    archive = read_archive(arguments.lattices / "lattices.scp")
    lattices = {key: Lattice.of_matrix(archive[key], key) for key in archive}
    tune(Grid(data, lattices, lang.names(), Reference(arguments.data / "stm", arguments.data / "glm")), conf, arguments.out)


if __name__ == "__main__":
    run(main)
