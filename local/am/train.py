"""Train the acoustic model with one of adpsgd's strategies.

    torchrun --nproc-per-node 2 -m local.am.train --strategy adpsgd-random --egs egs/train --heldout egs/train_dev \\
        --am '{...}' --conf '{...}' --out train/adpsgd-random

A run that was ended goes on from its newest checkpoint. ``final.pt`` holds the average of all learners' models.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from tqdm import tqdm

import adpsgd
from local.am.egs import NO_TARGET, FrameStore
from local.am.model import AcousticModel, AmConf
from local.cli import RecipeError, parse_conf, run
from local.files import atomic_path, write_text

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


def evaluate(model: AcousticModel, store: FrameStore, world: adpsgd.World) -> tuple[float, float]:
    """Cross-entropy and share of frames classified right, over all learners' shares of ``store``."""
    sums = torch.zeros(3, dtype=torch.float64)
    model.eval()
    with torch.inference_mode():
        for first in range(world.rank * _EVALUATION_BATCH, len(store), world.size * _EVALUATION_BATCH):
            indices = torch.arange(first, min(first + _EVALUATION_BATCH, len(store))).numpy()
            inputs, targets = store.batch(indices)
            logits = model(inputs).flatten(0, 1)
            targets = targets.flatten()
            counted = targets != NO_TARGET
            sums[0] += functional.cross_entropy(logits, targets, ignore_index=NO_TARGET, reduction="sum")
            sums[1] += (logits.argmax(1)[counted] == targets[counted]).sum()
            sums[2] += counted.sum()
    model.train()
    if world.size > 1:
        dist.all_reduce(sums)
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

    :raises RecipeError: where the sets belong to different models.
    """
    if heldout.num_pdfs != train_store.num_pdfs:
        raise RecipeError(f"the training set has {train_store.num_pdfs} pdfs, the held-out one {heldout.num_pdfs}")
    torch.manual_seed(conf.seed)
    model = AcousticModel(train_store.inputs, train_store.num_pdfs, am)
    sample = torch.linspace(0, len(train_store) - 1, _NORMALISATION_BATCHES * conf.batch).long().unique().numpy()
    model.normalise_by(train_store.batch(sample)[0].flatten(0, 1))
    identity = {"am": asdict(am), "train": asdict(conf), "samples": len(train_store), "pdfs": train_store.num_pdfs}
    world.agree(identity)
    folder = out / "checkpoints"
    learner = adpsgd.Learner(
        model,
        lambda parameters: torch.optim.SGD(
            parameters, lr=conf.initial_rate, momentum=conf.momentum, weight_decay=conf.weight_decay
        ),
        adpsgd.strategy(strategy, conf.seed),
        world,
        adpsgd.Schedule(conf.initial_rate, conf.peak_rate, conf.warmup_epochs),
        clip_norm=conf.clip_norm,
        telemetry=out / "log" / f"learner-{world.rank}.jsonl",
    )
    checkpoints = adpsgd.Checkpoints(folder, world)
    digest = hashlib.sha256(json.dumps([strategy, identity], sort_keys=True).encode()).hexdigest()
    begun, history = 0, []
    if (newest := checkpoints.newest()) is not None:
        begun, state, shared = newest
        if shared["configuration"] != digest:
            raise RecipeError(f"{folder} belongs to another configuration; remove it to begin anew")
        learner.restore(state)
        history = shared["history"]
    batches = -(-len(train_store) // conf.batch)
    bar = tqdm(
        total=conf.epochs * batches,
        initial=begun * batches,
        desc=strategy,
        mininterval=5,
        disable=world.rank != 0,
        unit="batch",
    )
    for epoch in range(begun, conf.epochs):
        began = time.perf_counter()
        loss_sum = torch.zeros(2, dtype=torch.float64)
        for indices in learner.work(epoch, len(train_store), conf.batch, conf.seed):
            inputs, targets = train_store.batch(indices)
            loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)
            loss.backward()
            value = float(loss.detach())
            learner.step(value, len(indices))
            loss_sum += torch.tensor([value * len(indices), len(indices)], dtype=torch.float64)
            bar.update(world.size)
        seconds = time.perf_counter() - began
        claimed = [0] * world.size
        if world.size > 1:
            counts = torch.zeros(world.size, dtype=torch.float64)
            counts[world.rank] = loss_sum[1]
            dist.all_reduce(counts)
            dist.all_reduce(loss_sum)
            claimed = counts.long().tolist()
        with learner.averaged() as distance:
            heldout_loss, accuracy = evaluate(model, heldout, world)
        history.append(
            {
                "epoch": epoch + 1,
                "samples": int(loss_sum[1]),
                "claimed": claimed,
                "train_loss": float(loss_sum[0] / loss_sum[1]),
                "heldout_loss": heldout_loss,
                "heldout_accuracy": accuracy,
                "consensus_distance": distance,
                "rate": learner.optimizer.param_groups[0]["lr"],
                "seconds": seconds,
                "skipped": learner.skipped,
            }
        )
        checkpoints.save(epoch + 1, learner.state(), {"configuration": digest, "history": history})
        bar.set_postfix(heldout=f"{heldout_loss:.3f}", accuracy=f"{accuracy:.3f}")
    bar.close()
    with learner.averaged():
        if world.rank == 0:
            write_text(out / "history.jsonl", "".join(json.dumps(line) + "\n" for line in history))
            content: dict[str, Any] = {
                "am": asdict(am),
                "inputs": train_store.inputs,
                "pdfs": train_store.num_pdfs,
                "log_priors": torch.from_numpy(train_store.log_priors()),
                "strategy": strategy,
                "learners": world.size,
                "model": {name: value.clone() for name, value in model.state_dict().items()},
            }
            with atomic_path(out / "final.pt") as temporary:
                torch.save(content, temporary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", required=True, choices=sorted(adpsgd.STRATEGIES))
    for name in ("--egs", "--heldout", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--am", required=True, help="JSON of AmConf")
    parser.add_argument("--conf", required=True, help="JSON of TrainConf")
    arguments = parser.parse_args()
    am, conf = parse_conf(AmConf, arguments.am, "am"), parse_conf(TrainConf, arguments.conf, "train")
    torch.set_num_threads(conf.threads)
    world = adpsgd.World.join()
    try:
        stores = FrameStore.read(arguments.egs), FrameStore.read(arguments.heldout)
        train(arguments.strategy, *stores, am, conf, world, arguments.out)
    except (adpsgd.AdpsgdError, RecipeError, RuntimeError) as error:
        if world.size > 1:  # the others may be waiting for this learner; after an error there is no orderly way out
            world.abandon(str(error))
        raise RecipeError(str(error)) from error
    world.leave()


if __name__ == "__main__":
    run(main)
