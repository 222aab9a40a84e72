"""Split the training corpora into train, train_dev and heldout, which share no call and, where they are known, no person.

    python -m recipes.swbd.subsets --data data/swbd1 [data/fisher data/callhome] --glm data/eval2000/glm --conf '{...}' \\
        --train T --dev D --heldout H

``train_dev``, for tuning the decoding, comes from the first corpus, Switchboard; ``heldout``, on which networks are measured
while they train, from all, spread over them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir, Utterance
from recipes.swbd.text import to_stm

_STM_HEAD = ';; CATEGORY "0" "" ""\n;; LABEL "O" "Overall" "Overall"\n'


@dataclass(frozen=True)
class SubsetConf:
    """How the corpora are split."""

    dev_utterances: int  # train_dev reaches so many utterances
    heldout_hours: float  # heldout reaches so many hours
    max_repeats: int  # utterances of one text in train; later ones are left out ("yeah", "uh-huh")


class Subsets(NamedTuple):
    """The three sets, and how many utterances went into none of them, by reason."""

    train: DataDir
    dev: DataDir
    heldout: DataDir
    left_out: dict[str, int]


def split(corpora: list[DataDir], conf: SubsetConf) -> Subsets:
    """Split the corpora.

    :raises RecipeError: where nothing is left for training, or two corpora share an id.
    """
    first = corpora[0]
    dev, pool, lost = hold_out(first, lambda held: len(held) >= conf.dev_utterances, 1)
    rest = merge([first.subset(pool), *corpora[1:]])
    spread = max(1, int(_hours(rest.utterances.values()) / conf.heldout_hours))
    heldout, train, lost_too = hold_out(rest, lambda held: _hours(held) >= conf.heldout_hours, spread)
    if not pool or not train:
        raise RecipeError(
            f"holding out {conf.dev_utterances} utterances and {conf.heldout_hours} h leaves nothing of "
            f"{sum(len(corpus.utterances) for corpus in corpora)} utterances to train on; lower data.dev_utterances or "
            "data.heldout_hours"
        )
    seen: Counter[tuple[str, ...]] = Counter()
    kept = []
    for key in sorted(train):
        words = rest.utterances[key].words
        seen[words] += 1
        if seen[words] <= conf.max_repeats:
            kept.append(key)
    left_out = {"other side of a call held out": lost + lost_too, "text repeated too often": len(train) - len(kept)}
    return Subsets(rest.subset(kept), first.subset(dev), rest.subset(heldout), left_out)


def hold_out(data: DataDir, enough: Callable[[list[Utterance]], bool], spread: int) -> tuple[list[str], list[str], int]:
    """Choose persons until their utterances are ``enough``; return these, those of the other calls, and how many are lost.

    Persons with the fewest calls come first, so that least is lost: all of a chosen person is held out, and what others say
    in the same calls goes into neither set. Where a person is not known, the two sides of a call stand for one.

    :param spread: take every so many-th person first, to draw from all of the set.
    """
    persons: dict[str, list[Utterance]] = {}
    for utterance in data.utterances.values():
        persons.setdefault(_person(data, utterance), []).append(utterance)
    calls = {
        person: {data.recordings[utterance.recording].file for utterance in utterances}
        for person, utterances in persons.items()
    }
    ranked = sorted(persons, key=lambda person: (len(calls[person]), person))
    held: list[Utterance] = []
    chosen: set[str] = set()
    gone: set[str] = set()
    for person in (person for begin in range(spread) for person in ranked[begin::spread]):
        if enough(held):
            break
        held += persons[person]
        chosen.add(person)
        gone |= calls[person]
    others = {
        utterance.id: data.recordings[utterance.recording].file in gone
        for person, utterances in persons.items()
        if person not in chosen
        for utterance in utterances
    }
    return [u.id for u in held], [key for key, lost in others.items() if not lost], sum(others.values())


def _person(data: DataDir, utterance: Utterance) -> str:
    file = data.recordings[utterance.recording].file
    return file if utterance.speaker.startswith(file) else utterance.speaker


def _hours(utterances: Iterable[Utterance]) -> float:
    return sum(utterance.duration for utterance in utterances) / 3600


def merge(corpora: list[DataDir]) -> DataDir:
    """All corpora as one set; genders are kept where all have them.

    :raises RecipeError: where two share an id.
    """
    recordings, utterances, genders = {}, {}, {}
    for corpus in corpora:
        if shared := corpus.recordings.keys() & recordings.keys():
            raise RecipeError(f"two corpora have a recording {min(shared)}; give each corpus once")
        recordings |= corpus.recordings
        utterances |= corpus.utterances
        genders |= corpus.genders
    return DataDir(recordings, utterances, genders if all(corpus.genders for corpus in corpora) else {})


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
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="Switchboard first")
    for name in ("--glm", "--train", "--dev", "--heldout"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of SubsetConf")
    arguments = parser.parse_args()
    subsets = split([DataDir.read(path) for path in arguments.data], parse_conf(SubsetConf, arguments.conf))
    subsets.train.write(arguments.train, {"left_out": subsets.left_out})
    subsets.dev.write(arguments.dev, extra={"stm": stm_of(subsets.dev), "glm": arguments.glm.read_text(encoding="utf-8")})
    subsets.heldout.write(arguments.heldout)
    for name, data in (("train", subsets.train), ("train_dev", subsets.dev), ("heldout", subsets.heldout)):
        print(f"{name}: {data.stats()}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
