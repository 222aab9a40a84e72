"""Word error rates of the GMM stages with fixed scales, to stand beside those of Kaldi's recipes.

    python -m benchmarks.stages --exp exp/swbd/digits [--lm-weight 12] [--beam 13] [--every 1] [--stages mono tri1 tri3 tri4]

Needs a run whose `gmm_systems` name the stages: their models and graphs are taken, nothing is tuned. `--every 4` takes
every fourth utterance of the test set. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from local.cli import RecipeError, run
from local.datadir import DataDir
from local.files import write_text

ROOT = Path(__file__).resolve().parent.parent


def last_iteration(exp: Path, stage: str) -> Path:
    """The folder of a finished stage.

    :raises RecipeError: where there is none.
    """
    models = list(exp.glob(f"align/{stage}/*/model.pt"))
    if not models:
        raise RecipeError(f"{exp}: no model of stage {stage}; run the stage 'align' first")
    return max(models, key=lambda path: path.stat().st_mtime).parent  # of another schedule an older one may lie beside it


def part_of(test: Path, every: int, out: Path) -> DataDir:
    """Write every so-many-th utterance of a test set, with the stm lines that lie in it and the glm."""
    data = DataDir.read(test)
    part = data.subset(list(data.utterances)[::every])
    starts = {
        (part.recordings[u.recording].file, part.recordings[u.recording].side, round(u.start, 1))
        for u in part.utterances.values()
    }
    lines = [
        line
        for line in (test / "stm").read_text(encoding="utf-8").splitlines(keepends=True)
        if line.startswith(";;") or (line.split()[0], line.split()[1], round(float(line.split()[3]), 1)) in starts
    ]
    part.write(out, extra={"stm": "".join(lines), "glm": (test / "glm").read_text(encoding="utf-8")})
    return part


def command(*words: object) -> None:
    """Run a stage's command line quietly.

    :raises RecipeError: where it fails, with what it said.
    """
    done = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise RecipeError(f"{words[0]} failed: {done.stderr[-1000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exp", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", default=["mono", "tri1", "tri3", "tri4"])
    parser.add_argument("--lm-weight", type=float, default=12.0)
    parser.add_argument("--beam", type=float, default=13.0)
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    exp = arguments.exp
    conf = yaml.safe_load((ROOT / "conf" / "decode" / "mini.yaml").read_text(encoding="utf-8"))["gmm"]
    conf |= {"beam": arguments.beam, "max_active": 7000, "acoustic_scale": 1 / arguments.lm_weight}
    print("| stage | all | SWB | CH | N |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        test, out = Path(name) / "test", Path(name) / "decoded"
        part_of(exp / "data" / "eval2000", arguments.every, test)
        best = Path(name) / "best.json"
        write_text(best, json.dumps({"acoustic_scale": 1 / arguments.lm_weight, "insertion_penalty": 0.0}))
        for stage in arguments.stages:
            lang = exp / ("lang" if stage == "tri4" else "lang_nosp")
            options = {"graph": exp / "graph" / stage / "HCLG.fst", "model": last_iteration(exp, stage) / "model.pt"}
            options |= {"lang": lang, "data": test, "feats": exp / "feats" / "eval2000", "conf": json.dumps(conf)}
            options |= {"best": best, "job": 0, "jobs": 1, "out": out / stage}
            command("local.decode", "search", *(word for key, value in options.items() for word in (f"--{key}", value)))
            scored = {"stm": test / "stm", "glm": test / "glm", "ctm": out / stage / "hyp.ctm", "out": out / f"{stage}.score"}
            command("local.score", *(word for key, value in scored.items() for word in (f"--{key}", value)))
            wer = json.loads((out / f"{stage}.score" / "wer.json").read_text(encoding="utf-8"))
            rates = " | ".join(f"{wer[label]['wer']:.1f}" for label in ("all", "sw", "en"))
            print(f"| {stage} | {rates} | {wer['all']['N']} |", flush=True)


if __name__ == "__main__":
    run(main)
