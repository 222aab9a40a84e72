"""Score a decoded set as NIST does.

    python -m local.score --stm data/eval2000/stm --glm data/eval2000/glm --ctm hyp.ctm --out score/tri4/eval2000

Writes ``wer.json``, ``report.sys`` (percentages by speaker and label), ``report.raw`` (the same in counts), ``report.pra``
(every alignment) and ``alignments.jsonl`` (the same for programs). Where NIST's SCTK is installed, ``hubscr.pl`` scores too,
and a count that differs is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from local.cli import run
from local.files import atomic_dir
from local.score import sctk
from local.score.align import Counts
from local.score.reports import alignment_report, system_report
from local.score.wer import Reference, Result, cross_entropy, total, warn


def as_json(counts: Counts, interval: tuple[float, float]) -> dict[str, float]:
    """Counts, error rate in percent, and its 95 % interval."""
    return {
        "N": counts.words,
        "corr": counts.correct,
        "sub": counts.substituted,
        "del": counts.deleted,
        "ins": counts.inserted,
        "wer": 100 * counts.errors / max(counts.words, 1),
        "low": interval[0],
        "high": interval[1],
    }


def summary(result: Result, label: str | None = None) -> dict[str, float | None]:
    """The counts of a label or of all, the number of segments they are of, and how good the confidences are."""
    lines = result.of(label)
    wrong = sum(line.counts.errors > 0 for line in lines)
    more = {"sentences": len(lines), "wrong_sentences": wrong, "nce": cross_entropy(lines)}
    return as_json(result.total(label), result.interval(label)) | more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--stm", "--glm", "--ctm", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    result = Reference(arguments.stm, arguments.glm).score(arguments.ctm)
    warn(result, arguments.ctm)
    content: dict[str, object] = {"all": summary(result)}
    for label, about in result.labels.items():
        if result.total(label).words:
            content[label] = summary(result, label) | {"name": about.name, "category": about.category}
    content["silent"] = {"sides": result.silent_sides, "segments": [line.name for line in result.silent_segments()]}
    folder = sctk.find()
    if folder is None:
        content["sctk"] = None
        print("NIST's SCTK is not installed: these counts are ours alone", file=sys.stderr)
    else:
        speakers = {name: total(lines) for name, lines in result.speakers().items()}
        theirs = sctk.compare(folder, arguments.stm, arguments.glm, arguments.ctm, speakers)
        content["sctk"] = as_json(theirs, result.interval())
        print(f"sclite: {theirs}, the same as ours: {result.total()}", file=sys.stderr)
    texts = {
        "wer.json": json.dumps(content, indent=2) + "\n",
        "report.sys": system_report(result, arguments.ctm.name, percent=True),
        "report.raw": system_report(result, arguments.ctm.name, percent=False),
        "report.pra": alignment_report(result),
        "alignments.jsonl": "".join(line.as_json() + "\n" for line in result.lines),
    }
    with atomic_dir(arguments.out) as out:
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    run(main)
