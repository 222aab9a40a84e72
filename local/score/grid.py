"""Score every hypothesis of a grid of scales on the development set.

    python -m local.score.grid --stm data/train_dev/stm --glm data/train_dev/glm --ctm decode/hyp.*.ctm --out grid.json

The output maps ``<scale>_<penalty>`` of each ``hyp.<scale>_<penalty>.ctm`` to its counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tqdm import tqdm

from local.cli import run
from local.files import write_text
from local.score.wer import Reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--stm", "--glm", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--ctm", type=Path, nargs="+", required=True)
    arguments = parser.parse_args()
    reference = Reference(arguments.stm, arguments.glm)
    rates = {}
    for ctm in tqdm(sorted(arguments.ctm), desc="score", mininterval=2):
        counts = reference.score(ctm).total()
        name = ctm.name.removeprefix("hyp.").removesuffix(".ctm")
        rates[name] = {"N": counts.words, "sub": counts.substituted, "del": counts.deleted, "ins": counts.inserted}
    write_text(arguments.out, json.dumps(rates, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
