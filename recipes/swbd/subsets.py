"""Split Switchboard-1 into train and train_dev, by whole calls.

    python -m recipes.swbd.subsets --data data/swbd1 --glm data/eval2000/glm --conf '{...}' --train T --dev D

train_dev is the front of the list as in Kaldi, but to the end of the last call, so that no side of a call is in both.
Persons recur over calls: where their numbers are not known, a person may be in both.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir
from recipes.swbd.text import to_stm

_STM_HEAD = ';; CATEGORY "0" "" ""\n;; LABEL "O" "Overall" "Overall"\n'


@dataclass(frozen=True)
class SubsetConf:
    """How the corpus is split."""

    dev_utterances: int  # train_dev is the calls from the front that reach this many utterances
    max_repeats: int  # utterances of one text in train; later ones are left out ("yeah", "uh-huh")


def split(data: DataDir, conf: SubsetConf) -> tuple[DataDir, DataDir, int]:
    """Return train, train_dev, and how many utterances of train the limit of repeats took.

    :raises RecipeError: where nothing is left for training.
    """
    by_call: dict[str, list[str]] = {}
    for utterance in data.utterances.values():
        by_call.setdefault(data.recordings[utterance.recording].file, []).append(utterance.id)
    dev: list[str] = []
    train: list[str] = []
    for _, ids in sorted(by_call.items()):
        (dev if len(dev) < conf.dev_utterances else train).extend(ids)
    if not train:
        raise RecipeError(
            f"holding out {conf.dev_utterances} utterances leaves nothing of {len(data.utterances)} to train on; "
            "lower data.dev_utterances"
        )
    seen: Counter[tuple[str, ...]] = Counter()
    kept = []
    for key in sorted(train):
        words = data.utterances[key].words
        seen[words] += 1
        if seen[words] <= conf.max_repeats:
            kept.append(key)
    return data.subset(kept), data.subset(dev), len(train) - len(kept)


def stm_of(data: DataDir) -> str:
    """The set's reference in NIST's form, sorted as sclite wants it: by call, side and time."""
    lines = []
    for utterance in data.utterances.values():
        recording = data.recordings[utterance.recording]
        text = to_stm(utterance.words)
        line = f"{recording.file} {recording.side} {recording.id} {utterance.start:.2f} {utterance.end:.2f} <O> {text}"
        lines.append(((recording.file, recording.side, utterance.start), line.rstrip()))
    return _STM_HEAD + "".join(f"{line}\n" for _, line in sorted(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--data", "--glm", "--train", "--dev"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of SubsetConf")
    arguments = parser.parse_args()
    train, dev, repeats = split(DataDir.read(arguments.data), parse_conf(SubsetConf, arguments.conf))
    train.write(arguments.train, {"text repeated too often": repeats})
    dev.write(arguments.dev, extra={"stm": stm_of(dev), "glm": arguments.glm.read_text(encoding="utf-8")})
    print(f"train: {train.stats()}\ntrain_dev: {dev.stats()}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
