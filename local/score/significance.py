"""Which of two systems makes fewer errors, and whether that could be chance.

    python -m local.score.significance --systems tri4 adpsgd-random \\
        --scores score/tri4/eval2000 score/adpsgd-random/eval2000 --out score/significance.eval2000.json

For each pair of systems: the difference of their error rates with a 95 % interval over conversation sides, NIST's
matched-pairs test on the stretches that either got wrong, and McNemar's test on whole segments. Writes the table as JSON,
of all segments and of every label, and beside it as text (``.txt``). A p is of its pair alone: of twenty equal pairs, one
falls below 0.05.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from local.cli import RecipeError, run
from local.files import write_text
from local.score.wer import bootstrap

_SLOT = re.compile("I*[CSD]|I+$")  # a word of the reference, and what was inserted before it; what was inserted behind all
_BUFFER = 2  # words that both systems have right part two stretches


@dataclass
class Scored:
    """A segment as a system got it."""

    segment: dict[str, Any]  # file, side, speaker, start, end, labels, text of the reference
    verdicts: str  # C, S, D, I in order of the alignment

    @property
    def errors(self) -> int:
        """Substituted, deleted and inserted words."""
        return len(self.verdicts) - self.verdicts.count("C")

    @property
    def words(self) -> int:
        """N, the reference's words."""
        return len(self.verdicts) - self.verdicts.count("I")


def read_scored(folder: Path) -> list[Scored]:
    """Read what ``local.score`` wrote of a system.

    :raises RecipeError: where it has not.
    """
    path = folder / "alignments.jsonl"
    if not path.exists():
        raise RecipeError(f"{path}: no such file; score the system with python -m local.score first")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    aligned = ("ref", "hyp", "eval", "confidence")
    return [Scored({key: line[key] for key in line if key not in aligned}, line["eval"]) for line in lines]


def stretches(first: str, second: str) -> list[tuple[int, int]]:
    """Part a segment into stretches with errors; return both systems' errors in each.

    A stretch ends behind two words in a row that both systems have right, with nothing inserted between (Gillick & Cox
    1989, as SCTK's sc_stats does it). Systems that chose alternatives of other lengths are compared word by word.
    """
    found, errors, right = [], [0, 0], 0
    for slots in itertools.zip_longest(_SLOT.findall(first), _SLOT.findall(second), fillvalue=""):
        for system, slot in enumerate(slots):
            errors[system] += len(slot) - slot.count("C")
        if any(slot.startswith("I") for slot in slots):
            right = 0
        right = right + 1 if all(slot.endswith("C") for slot in slots) else 0
        if right >= _BUFFER and any(errors):
            found.append((errors[0], errors[1]))
            errors = [0, 0]
    return [*found, (errors[0], errors[1])] if any(errors) else found


@dataclass(frozen=True)
class MatchedPairs:
    """NIST's matched-pairs test on stretches with errors (MAPSSWE)."""

    stretches: int
    mean: float  # of the first system's errors less the second's, a stretch
    deviation: float
    z: float
    p: float  # two-tailed


def matched_pairs(errors: Sequence[tuple[int, int]]) -> MatchedPairs:
    """Test whether two systems' errors a stretch differ: ``z = mean / (deviation / sqrt(stretches))``, normal under chance.

    As in sc_stats, z is 0 where the difference is the same in every stretch.
    """
    differences = [first - second for first, second in errors]
    mean = fmean(differences) if differences else 0.0
    deviation = stdev(differences) if len(differences) > 1 else 0.0
    z = mean / (deviation / math.sqrt(len(differences))) if deviation else 0.0
    return MatchedPairs(len(differences), mean, deviation, z, math.erfc(abs(z) / math.sqrt(2)))


def mcnemar(first_only: int, second_only: int) -> float:
    """The two-tailed p of as uneven a share of the segments that just one of two systems got wrong (exact, binomial)."""
    n, fewer = first_only + second_only, min(first_only, second_only)
    if first_only == second_only:
        return 1.0
    return 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n


def compare(first: Sequence[Scored], second: Sequence[Scored]) -> dict[str, Any]:
    """Compare two systems on the same segments."""
    sides: dict[str, list[int]] = {}  # errors of the first, of the second, words
    for a, b in zip(first, second, strict=True):
        side = sides.setdefault(f"{a.segment['file']} {a.segment['side']}".lower(), [0, 0, 0])
        side[0] += a.errors
        side[1] += b.errors
        side[2] += a.words
    words = [side[2] for side in sides.values()]
    low, high = bootstrap([side[0] - side[1] for side in sides.values()], words)
    test = matched_pairs([pair for a, b in zip(first, second, strict=True) for pair in stretches(a.verdicts, b.verdicts)])
    only = [
        sum(bool(x.errors) > bool(y.errors) for x, y in zip(*pair, strict=True)) for pair in ((first, second), (second, first))
    ]
    rates = [100 * sum(s.errors for s in system) / max(sum(s.words for s in system), 1) for system in (first, second)]
    return {
        "wer": rates,
        "difference": rates[0] - rates[1],
        "low": low,
        "high": high,
        "matched_pairs": asdict(test),
        "mcnemar": {"wrong_in_one_only": only, "p": mcnemar(*only)},
    }


def table(systems: Sequence[str], scored: Sequence[list[Scored]]) -> list[dict[str, Any]]:
    """Compare every pair of systems, on all segments and on those of each label that not all have.

    :raises RecipeError: where two were not scored against the same reference.
    """
    reference = [s.segment for s in scored[0]]
    for name, some in zip(systems, scored, strict=True):
        if [s.segment for s in some] != reference:
            raise RecipeError(f"{systems[0]} and {name} were scored against different references; score them again")
    of_labels = Counter(label for segment in reference for label in segment["labels"])
    labels = [label for label, number in of_labels.items() if number < len(reference)]
    rows = []
    for (a, first), (b, second) in itertools.combinations(zip(systems, scored, strict=True), 2):
        for label in ("all", *labels):
            one, other = ([s for s in some if label == "all" or label in s.segment["labels"]] for some in (first, second))
            rows.append({"systems": [a, b], "label": label} | compare(one, other))
    return rows


def text_of(rows: Sequence[dict[str, Any]]) -> str:
    """The table in columns of characters."""
    width = max([7, *(len(name) for row in rows for name in row["systems"])])
    head = f"{'first':{width}}  {'second':{width}}  label     WER %, both   difference (95 % interval)"
    head += "  stretches       z       p  McNemar p"
    lines = [head, "-" * len(head)]
    for row in rows:
        (a, b), test = row["systems"], row["matched_pairs"]
        lines.append(
            f"{a:{width}}  {b:{width}}  {row['label']:6}  {row['wer'][0]:6.2f} {row['wer'][1]:6.2f}  "
            f"{row['difference']:+6.2f} ({row['low']:+6.2f} .. {row['high']:+6.2f})  {test['stretches']:9}  {test['z']:+6.2f}  "
            f"{test['p']:6.3f}  {row['mcnemar']['p']:9.3f}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="+", required=True, help="names")
    parser.add_argument("--scores", type=Path, nargs="+", required=True, help="each system's folder from local.score")
    parser.add_argument("--out", type=Path, required=True, help="the .json to write; the .txt goes beside it")
    arguments = parser.parse_args()
    if len(arguments.systems) != len(arguments.scores):
        raise RecipeError(f"{len(arguments.systems)} systems, but {len(arguments.scores)} folders of scores; give one each")
    rows = table(arguments.systems, [read_scored(folder) for folder in arguments.scores])
    write_text(arguments.out.with_suffix(".txt"), text_of(rows))
    write_text(arguments.out, json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    run(main)
