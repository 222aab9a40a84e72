"""What a run is going to need, before anything runs: processor and GPU hours, wall-clock, memory and disk of each stage.

    python -m local.plan --config '{...}'          # what `snakemake plan` does

Speeds are those measured on one core (README, Results); GPU hours go by the 146 to 253 V100 hours that publications name for
16 epochs of the paper's network on 2,000 hours. The hours of speech are taken from the audio files' headers: expect a third
more or less.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local.audio import info
from local.cli import RecipeError, run
from local.features import FRAME_SHIFT
from local.tables import Table, plain
from local.workflow import complete, paths_of

ROOT = Path(__file__).resolve().parents[1]
_AUDIO = {".sph", ".wav", ".flac"}
_SAMPLE = 100  # files of a corpus whose headers are read
_UTTERANCE_SECONDS = 3.1  # on average in Switchboard
_INPUTS = {"fmllr": 40, "fbank": 120}
# frames a second of one core
_FEATURES, _VITERBI, _E_STEP, _FMLLR, _IVECTORS, _STORE = 61_000, 81_000, 800_000, 327_000, 460_000, 500_000
# bytes a frame
_FEATURE_BYTES, _STORE_BYTES, _LABEL_BYTES, _LATTICE_BYTES = 212, 164, 12, 120
_GMM_MEMORY = 110  # bytes a frame in the memory of all processes together
_GRAPH_GB, _GRAPH_HOURS = 11.5, 0.25  # 85,000 words, 3.7 million n-grams, as of 2,000 hours of text
_REAL_TIME = 0.5  # of a search, of speech's length
_SEARCHES = {"tri4": 3}  # two before, for the speakers' transforms; of other systems 1
_TRAINING = 3e10  # floating-point operations a second of one core, on the paper's network
_TRAINING_SETS = ("swbd1", "fisher", "callhome")
_FULL_HOURS, _HUB5_AND_RT03_HOURS = 2000, 8
_PAPER_GPU_HOURS = (146, 253)
_PAPER_WORK = 43.15e6 * 16 * 2000  # parameters x epochs x hours


@dataclass(frozen=True)
class Cost:
    """Of a stage."""

    stage: str
    core_hours: float
    parallel: int  # processes at once at most
    memory_gb: float  # of a job
    disk_gb: float
    folder: str  # that the disk space is of; what is there need not be made
    gpu_hours: tuple[float, float] | None = None

    @property
    def hours(self) -> float:
        """Wall-clock with all processes at once, without GPUs."""
        return self.core_hours / self.parallel


def speech_hours(folders: Any) -> float:
    """Hours of speech below a corpus's folders: two sides share a conversation's time.

    :raises RecipeError: where there is no audio.
    """
    given = paths_of(folders)
    files = sorted(path for folder in given for path in Path(folder).rglob("*") if path.suffix.lower() in _AUDIO)
    if not files:
        raise RecipeError(f"{', '.join(given)}: no audio ({', '.join(sorted(_AUDIO))}) below it")
    sizes = [path.stat().st_size for path in files]
    sample = files[:: max(1, len(files) // _SAMPLE)]
    seconds = sum(found.num_samples * found.channels / found.sample_rate for found in map(info, sample))
    return seconds / 2 / 3600 * sum(sizes) / sum(path.stat().st_size for path in sample)


def parameters(config: Mapping[str, Any]) -> int:
    """Of the network: see :class:`local.am.model.AcousticModel`."""
    am, states = config["am"], config["gmm"]["network"]["leaves"]
    cells, sizes = am["cells"], _INPUTS | {"ivector": config["ivector"]["dims"]}
    inputs = sum(sizes[kind] for kind in config["inputs"])
    layers = [inputs, *[2 * cells] * (am["layers"] - 1)]
    lstm = sum(2 * 4 * cells * (size + cells + 2) for size in layers)
    return lstm + (2 * cells + 1) * am["bottleneck"] + (am["bottleneck"] + 1) * states


def costs(config: Mapping[str, Any], train: float, test: float) -> Iterator[Cost]:
    """The stages' costs.

    :param config: complete.
    :param train: hours of speech to train on; ``test``: to decode.
    """
    jobs = config["jobs"]
    frames, test_frames = (hours * 3600 / FRAME_SHIFT for hours in (train, test))
    both = frames + test_frames

    def core_hours(passes: float, speed: float, frames: float = frames) -> float:
        return passes * frames / speed / 3600

    yield Cost("data", 0.1 * train / 1000, 2, 1 + 4 * train / 2000, 0.4 * train / 1000, "data")
    yield Cost("feats", core_hours(1, _FEATURES, both), jobs["feats"], 1, both * _FEATURE_BYTES / 1e9, "feats")
    for stage, kind in config["gmm"].items():
        if not isinstance(kind, Mapping) or "iterations" not in kind:
            continue
        utterances = train * 3600 / _UTTERANCE_SECONDS
        share = min(1.0, (kind.get("utterances") or utterances) / utterances)
        of_stage = core_hours(len(kind["realign"]) + 1, _VITERBI) + core_hours(kind["iterations"], _E_STEP)
        of_stage += core_hours(len(kind.get("fmllr", ())), _FMLLR)
        memory = 2 + share * frames * _GMM_MEMORY / 1e9
        yield Cost(f"align: {stage}", share * of_stage, jobs["gmm"], memory, 0.1 * train / 1000, f"align/{stage}")
    yield Cost("align: all", core_hours(3, _VITERBI), jobs["align"], 4, frames * _LABEL_BYTES / 1e9, "align/network")
    if "ivector" in config["inputs"]:
        passes = 1 + config["ivector"]["ubm_iterations"] + config["ivector"]["iterations"]
        yield Cost(
            "ivectors", core_hours(passes, _IVECTORS), jobs["gmm"], 2 + frames * 160 / 1e9, 0.1 * train / 1000, "ivectors"
        )
    yield Cost("egs", core_hours(1, _STORE), 1, 8, frames * _STORE_BYTES / 1e9, "egs")
    size = parameters(config)
    work = size * config["train"]["epochs"] * train
    flops = 6 * work * 3600 / FRAME_SHIFT
    low, high = (hours * work / _PAPER_WORK for hours in _PAPER_GPU_HOURS)
    for strategy in config["strategies"]:
        disk = (1 + 2 * config["learners"]) * size * 4 / 1e9  # the newest checkpoint, and one being written
        yield Cost(
            f"train: {strategy}", flops / _TRAINING / 3600, config["learners"], 4, disk, f"train/{strategy}", (low, high)
        )
    systems = [*config["gmm_systems"], *config["strategies"]]
    graphs, share = 1 + len(config["gmm_systems"]), train / 2000
    yield Cost("graph", _GRAPH_HOURS * share * graphs, graphs, 1 + _GRAPH_GB * share, graphs * share, "graph")
    searches = sum(_SEARCHES.get(system, 1) for system in systems)
    lattices = len(systems) * test_frames * _LATTICE_BYTES / 1e9
    yield Cost("decode", searches * _REAL_TIME * test, jobs["decode"], 4, lattices, "decode")


def planned(config: Mapping[str, Any]) -> list[Cost]:
    """The costs of what the configuration names: by the hours of its sets that are made, of the others' audio files."""
    corpora, made = config["corpora"], config["embedded"]
    if made:
        return list(costs(config, made["train_minutes"] / 60, made["test_minutes"] / 60))

    def hours(name: str, key: str = "audio") -> float:
        stats = Path(config["exp"]) / config["corpus"] / "data" / name / "stats.json"
        if stats.exists():
            return float(json.loads(stats.read_text(encoding="utf-8"))["hours"])
        return speech_hours(corpora[name][key])

    train = sum(hours(name) for name in _TRAINING_SETS if (corpora.get(name) or {}).get("audio"))
    test = hours("eval2000") + (hours("rt03", "corpus") if corpora.get("rt03") else 0.0)
    return list(costs(config, train, test + config["data"]["dev_utterances"] * _UTTERANCE_SECONDS / 3600))


def check_disk(config: Mapping[str, Any], folder: Path) -> str:
    """Say how much disk space the stages need that are not yet in a run's ``folder``, and how much is free.

    :raises RecipeError: where it is not enough.
    """
    needed = sum(cost.disk_gb for cost in planned(config) if not (folder / cost.folder).exists())
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free / 1e9
    if free < needed:
        raise RecipeError(
            f"{folder}: the stages that are to come need about {needed:.1f} GB, {free:.1f} GB are free; make room, or set "
            "`exp` to a folder on another disk"
        )
    return f"disk: about {needed:.1f} GB needed, {free:.1f} GB free at {there}"


def full_run() -> list[Cost]:
    """The costs of the recipe's own configuration, with the 2,000 hours of Switchboard and Fisher."""
    recipe = ROOT / "recipes/swbd"
    given = yaml.safe_load((recipe / "config.yaml").read_text(encoding="utf-8"))
    return list(costs(complete(given, ROOT, recipe / "schema.yaml"), _FULL_HOURS, _HUB5_AND_RT03_HOURS))


def table_of(plan: list[Cost]) -> Table:
    """The plan, and its sums. Wall-clock hours are with all of a stage's processes at once and, of training, without GPUs."""
    table = [["stage", "core hours", "processes", "hours", "V100 hours", "GB of memory a job", "GB of disk"]]
    for cost in plan:
        gpu = "" if cost.gpu_hours is None else f"{cost.gpu_hours[0]:.1f} - {cost.gpu_hours[1]:.1f}"
        hours = (f"{cost.core_hours:.2f}", str(cost.parallel), f"{cost.hours:.2f}")
        table.append([cost.stage, *hours, gpu, f"{cost.memory_gb:.0f}", f"{cost.disk_gb:.2f}"])
    hours = (f"{sum(cost.core_hours for cost in plan):.2f}", "", f"{sum(cost.hours for cost in plan):.2f}")
    return [*table, ["all", *hours, "", "", f"{sum(cost.disk_gb for cost in plan):.2f}"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, help="JSON of the whole configuration")
    arguments = parser.parse_args()
    print(plain(table_of(planned(json.loads(arguments.config)))))
    print("hours: of wall-clock, with so many processes at once; of training without GPUs, with n of them V100 hours / n")


if __name__ == "__main__":
    run(main)
