"""Train the acoustic model with one of adpsgd's strategies.

    torchrun --nproc-per-node 2 -m local.am.train --strategy adpsgd-random --egs egs/train --heldout egs/train_dev \\
        --am '{...}' --conf '{...}' --out train/adpsgd-random

A run that was ended goes on from its newest checkpoint; on SIGTERM, SIGUSR1 or SIGINT it writes one first and ends with exit
code 75. ``final.pt`` holds the average of all learners' models.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

import adpsgd
from local.am.egs import NO_TARGET, FrameStore
from local.am.model import AcousticModel, AmConf
from local.cli import RecipeError, parse_conf, run
from local.files import write_text
from local.saved import save
from local.team import Team

_EVALUATION_BATCH = 256
_NORMALISATION_BATCHES = 20


@dataclass(frozen=True)
class TrainConf:
    """How the network is trained. The paper's (from memory of it): 16 epochs, 10 of them warm-up, no momentum."""

    epochs: int
    batch: int  # subsequences a learner and step
    initial_rate: float
    peak_rate: float
    warmup_epochs: float
    momentum: float  # each learner's own
    weight_decay: float
    clip_norm: float
    seed: int
    threads: int  # of each learner
    schedule: str  # after the warm-up: adpsgd.Schedule's shapes
    micro_batches: int  # a batch is computed in so many parts, for less memory
    precision: str  # float32, or bfloat16: matrix products under autocast, weights and mixing stay float32
    mix_momentum: bool
    checkpoint_minutes: float  # besides those after every epoch
    keep_learners: bool  # each learner's own model too, as learner-R.pt
    tensorboard: bool
    slow: dict[str, float]  # for experiments: a rank's factor of slowness
    slow_link: dict[str, float]  # for experiments: megabytes a second of a rank's exchanges

    def identity(self) -> dict[str, Any]:
        """What the result depends on."""
        beside = ("threads", "checkpoint_minutes", "keep_learners", "tensorboard", "slow", "slow_link")
        return {name: value for name, value in asdict(self).items() if name not in beside}


_PRECISIONS = ("float32", "bfloat16")


def evaluate(model: AcousticModel, store: FrameStore, world: adpsgd.World) -> tuple[float, float]:
    """Cross-entropy and share of frames classified right, over all learners' shares of ``store``."""
    sums = torch.zeros(3, dtype=torch.float64)
    model.eval()
    with torch.inference_mode():
        for first in range(world.rank * _EVALUATION_BATCH, len(store), world.size * _EVALUATION_BATCH):
            indices = torch.arange(first, min(first + _EVALUATION_BATCH, len(store))).numpy()
            inputs, targets = (tensor.to(world.device) for tensor in store.batch(indices))
            logits = model(inputs).flatten(0, 1)
            targets = targets.flatten()
            counted = targets != NO_TARGET
            sums[0] += float(functional.cross_entropy(logits, targets, ignore_index=NO_TARGET, reduction="sum"))
            sums[1] += int((logits.argmax(1)[counted] == targets[counted]).sum())
            sums[2] += int(counted.sum())
    model.train()
    world.all_reduce(sums)
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def train(
    strategy: str,
    train_store: FrameStore,
    heldout: FrameStore,
    am: AmConf,
    conf: TrainConf,
    world: adpsgd.World,
    out: Path,
) -> None:
    """Train, with a checkpoint and the held-out loss of the averaged model after every epoch.

    :raises RecipeError: where the sets belong to different models or have different inputs.
    """
    if heldout.num_pdfs != train_store.num_pdfs:
        raise RecipeError(f"the training set has {train_store.num_pdfs} pdfs, the held-out one {heldout.num_pdfs}")
    if (heldout.kinds, heldout.inputs) != (train_store.kinds, train_store.inputs):
        raise RecipeError(
            f"the training set has {train_store.inputs} inputs of {train_store.kinds}, the held-out one {heldout.inputs} of "
            f"{heldout.kinds}; make both frame stores anew"
        )
    if conf.precision not in _PRECISIONS:
        raise RecipeError(f"train.precision: {conf.precision!r} is none of {', '.join(_PRECISIONS)}")
    torch.manual_seed(conf.seed)
    model = AcousticModel(train_store.inputs, train_store.num_pdfs, am)
    sample = torch.linspace(0, len(train_store) - 1, _NORMALISATION_BATCHES * conf.batch).long().unique().numpy()
    model.normalise_by(train_store.batch(sample)[0].flatten(0, 1))
    model.to(world.device)
    torch.manual_seed(conf.seed + 1 + world.rank)  # dropout
    identity = {"strategy": strategy, "samples": len(train_store), "pdfs": train_store.num_pdfs}
    identity |= {f"am.{name}": value for name, value in asdict(am).items()}
    identity |= {f"train.{name}": value for name, value in conf.identity().items()}
    world.agree(identity)
    learner = adpsgd.Learner(
        model,
        lambda parameters: torch.optim.SGD(
            parameters, lr=conf.initial_rate, momentum=conf.momentum, weight_decay=conf.weight_decay
        ),
        adpsgd.strategy(strategy, conf.seed),
        world,
        adpsgd.Schedule(conf.initial_rate, conf.peak_rate, conf.warmup_epochs, conf.schedule, epochs=conf.epochs),
        clip_norm=conf.clip_norm,
        mix_momentum=conf.mix_momentum,
        slow={int(rank): factor for rank, factor in conf.slow.items()},
        slow_link={int(rank): megabytes for rank, megabytes in conf.slow_link.items()},
        telemetry=adpsgd.Telemetry(
            out / "log" / f"learner-{world.rank}.jsonl",
            out / "tensorboard" / f"learner-{world.rank}" if conf.tensorboard else None,
        ),
    )
    checkpoints = adpsgd.Checkpoints(out / "checkpoints", learner, identity)
    shared = {"history": [], "seconds": 0.0, "processor_seconds": 0.0} | (checkpoints.resume() or {})
    history: list[dict[str, Any]] = shared["history"]
    bar = tqdm(
        total=conf.epochs,
        initial=learner.position,
        desc=strategy,
        mininterval=5,
        disable=world.rank != 0,
        unit="epoch",
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {n:.2f}/{total:.0f} epochs [{elapsed}<{remaining}{postfix}]",
    )
    while learner.epoch < conf.epochs:
        began, used, epoch = time.perf_counter(), time.process_time(), learner.epoch
        for indices in learner.work(len(train_store), conf.batch, conf.seed, 60 * conf.checkpoint_minutes):
            for part in np.array_split(indices, min(conf.micro_batches, len(indices))):
                inputs, targets = (tensor.to(world.device) for tensor in train_store.batch(part))
                with torch.autocast(world.device.type, torch.bfloat16, enabled=conf.precision == "bfloat16"):
                    logits = model(inputs).flatten(0, 1)
                loss = functional.cross_entropy(logits.float(), targets.flatten(), ignore_index=NO_TARGET)
                learner.backward(loss, len(part))
            learner.step()
            bar.update(learner.position - bar.n)
        shared["seconds"] += time.perf_counter() - began
        spent = torch.tensor([time.process_time() - used], dtype=torch.float64)
        world.all_reduce(spent)
        shared["processor_seconds"] += float(spent)
        if learner.epoch == epoch:  # paused or stopped in the middle
            checkpoints.save(shared)
            if learner.stopped:
                bar.close()
                print(f"learner {world.rank} stops with a checkpoint at epoch {learner.position:.3f}", file=sys.stderr)
                sys.exit(adpsgd.STOPPED)
            continue
        train_loss, claimed = learner.tally()
        with learner.averaged() as distance:
            heldout_loss, accuracy = evaluate(model, heldout, world)
        history.append(
            {
                "epoch": learner.epoch,
                "samples": sum(claimed),
                "claimed": claimed,
                "train_loss": train_loss,
                "heldout_loss": heldout_loss,
                "heldout_accuracy": accuracy,
                "consensus_distance": distance,
                "rate": learner.optimizer.param_groups[0]["lr"],
                "seconds": shared["seconds"],
                "processor_seconds": shared["processor_seconds"],
                "gpus": world.size if world.device.type == "cuda" else 0,
                "skipped": learner.skipped,
            }
        )
        shared["seconds"] = shared["processor_seconds"] = 0.0
        checkpoints.save(shared)
        bar.set_postfix(heldout=f"{heldout_loss:.3f}", accuracy=f"{accuracy:.3f}")
    bar.close()
    content: dict[str, Any] = {
        "am": asdict(am),
        "inputs": train_store.inputs,
        "kinds": train_store.kinds,
        "pdfs": train_store.num_pdfs,
        "log_priors": torch.from_numpy(train_store.log_priors()),
        "strategy": strategy,
        "learners": world.size,
    }

    def save_network(name: str) -> None:
        weights = {key: value.detach().cpu().clone() for key, value in model.state_dict().items()}
        save(out / name, content | {"model": weights})

    if conf.keep_learners:
        save_network(f"learner-{world.rank}.pt")
    with learner.averaged():
        if world.rank == 0:
            write_text(out / "history.jsonl", "".join(json.dumps(line) + "\n" for line in history))
            save_network("final.pt")
    checkpoints.clear()  # a later run, on other data, begins anew


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", required=True, help=f"{', '.join(adpsgd.STRATEGIES)}; options after commas")
    for name in ("--egs", "--heldout", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--am", required=True, help="JSON of AmConf")
    parser.add_argument("--conf", required=True, help="JSON of TrainConf")
    arguments = parser.parse_args()
    am, conf = parse_conf(AmConf, arguments.am, "am"), parse_conf(TrainConf, arguments.conf, "train")
    torch.set_num_threads(conf.threads)
    with Team.join(cuda=True) as team:
        team.world.stop_on_signals()
        stores = FrameStore.read(arguments.egs), FrameStore.read(arguments.heldout)
        train(arguments.strategy, *stores, am, conf, team.world, arguments.out)


if __name__ == "__main__":
    run(main)
