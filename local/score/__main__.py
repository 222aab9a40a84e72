"""Score a decoded set as NIST does.

    python -m local.score --stm data/eval2000/stm --glm data/eval2000/glm --ctm hyp.ctm --out score/tri4/eval2000

Writes ``wer.json``, ``report.sys`` (a line a conversation side) and ``report.pra`` (every alignment). Where NIST's SCTK is
installed, ``hubscr.pl`` scores too, and a count that differs is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from local.cli import run
from local.files import atomic_dir
from local.score import sctk
from local.score.align import Counts, judge
from local.score.wer import Reference, Result, warn


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


def summary(result: Result, label: str | None = None) -> dict[str, float]:
    """The counts of a label or of all, and the number of segments they are of."""
    return as_json(result.total(label), result.interval(label)) | {"sentences": result.sentences(label)}


def sys_report(result: Result) -> str:
    """A table like sclite's ``.sys``, in counts."""
    rows = [*sorted(result.sides().items()), *((f"[{name}]", result.total(name)) for name in result.labels)]
    lines = [f"{'side':16}{'words':>8}{'corr':>8}{'sub':>7}{'del':>7}{'ins':>7}{'err %':>8}"]
    for name, c in rows:
        rate = 100 * c.errors / max(c.words, 1)
        lines.append(f"{name:16}{c.words:8}{c.correct:8}{c.substituted:7}{c.deleted:7}{c.inserted:7}{rate:8.1f}")
    return "\n".join(lines) + "\n"


def pra_report(result: Result) -> str:
    """Every segment's reference and hypothesis under each other, errors in capitals."""
    blocks = []
    for line in result.lines:
        segment = line.segment
        rows = ["REF: ", "HYP: ", "EVAL:"]
        for word, heard in line.pairs:
            verdict = judge(word, heard)
            shown = [(text or "***") if verdict == "C" else (text.upper() or "***") for text in (word.lower(), heard.lower())]
            width = max(len(text) for text in shown)
            for row, text in enumerate([*shown, "" if verdict == "C" else verdict]):
                rows[row] += f" {text:{width}}"
        head = f"{segment.file} {segment.side} {segment.start:.2f} {segment.end:.2f}"
        blocks.append("\n".join([head, *(row.rstrip() for row in rows)]) + "\n")
    return "\n".join(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--stm", "--glm", "--ctm", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    result = Reference(arguments.stm, arguments.glm).score(arguments.ctm)
    warn(result, arguments.ctm)
    content: dict[str, object] = {"all": summary(result)}
    for label, name in result.labels.items():
        if result.total(label).words:
            content[label] = summary(result, label) | {"name": name}
    content["silent"] = {"sides": result.silent_sides, "segments": len(result.silent_segments())}
    folder = sctk.find()
    if folder is None:
        content["sctk"] = None
        print("NIST's SCTK is not installed: these counts are ours alone", file=sys.stderr)
    else:
        speakers: dict[str, Counts] = {}
        for line in result.lines:
            key = line.segment.speaker.lower()
            speakers[key] = speakers.get(key, Counts()) + line.counts
        theirs = sctk.compare(folder, arguments.stm, arguments.glm, arguments.ctm, speakers)
        content["sctk"] = as_json(theirs, result.interval())
        print(f"sclite: {theirs}, the same as ours: {result.total()}", file=sys.stderr)
    with atomic_dir(arguments.out) as out:
        (out / "wer.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (out / "report.sys").write_text(sys_report(result), encoding="utf-8")
        (out / "report.pra").write_text(pra_report(result), encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    run(main)
