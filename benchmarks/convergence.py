"""Held-out loss of every strategy at the same samples, over several seeds, on the embedded (synthetic) corpus.

    python -m benchmarks.convergence --exp exp/swbd/mini [--learners 2] [--seeds 3] [--strategies allreduce adpsgd-random ...]

Needs a run up to the stage 'egs'. Runs lie below --out and are not repeated; prints a Markdown table of mean and spread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import yaml
from tqdm import tqdm

STRATEGIES = ["allreduce", "dpsgd", "adpsgd-fixed", "adpsgd-random", "delay-by-one", "delay-by-one,stale_gradient=true"]
STRATEGIES += ["hierarchical,group_size=1", "local-sgd,period=8"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exp", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("exp/convergence"))
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--preset", default="mini", help="of conf/am and conf/train")
    parser.add_argument("--set", default="{}", help="JSON of what to change in the training's preset")
    arguments = parser.parse_args()
    am = yaml.safe_load(Path(f"conf/am/{arguments.preset}.yaml").read_text(encoding="utf-8"))
    conf = yaml.safe_load(Path(f"conf/train/{arguments.preset}.yaml").read_text(encoding="utf-8"))
    conf |= json.loads(arguments.set)
    losses: dict[str, list[float]] = {strategy: [] for strategy in arguments.strategies}
    runs = [(strategy, seed) for seed in range(1, arguments.seeds + 1) for strategy in arguments.strategies]
    for strategy, seed in tqdm(runs, unit="run"):
        out = arguments.out / f"{strategy}.{arguments.learners}.{seed}"
        if not (out / "history.jsonl").exists():
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={arguments.learners}"]
            command += ["-m", "local.am.train", "--strategy", strategy, "--egs", str(arguments.exp / "egs/train")]
            command += ["--heldout", str(arguments.exp / "egs/heldout"), "--am", json.dumps(am)]
            command += ["--conf", json.dumps(conf | {"seed": seed}), "--out", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"error: {strategy}, seed {seed}: {done.stderr[-2000:]}")
        history = [json.loads(line) for line in (out / "history.jsonl").read_text(encoding="utf-8").splitlines()]
        losses[strategy].append(history[-1]["heldout_loss"])
    print("| strategy | held-out loss, mean | least - greatest | of allreduce |\n|---|---|---|---|")
    base = statistics.mean(losses["allreduce"]) if "allreduce" in losses else float("nan")
    for strategy, found in losses.items():
        mean = statistics.mean(found)
        print(f"| `{strategy}` | {mean:.3f} | {min(found):.3f} - {max(found):.3f} | {mean / base:.3f} |")


if __name__ == "__main__":
    main()
