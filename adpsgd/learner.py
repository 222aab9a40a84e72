"""A learner: claims work, applies gradients by its strategy, tells what it does."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from adpsgd.errors import AdpsgdError
from adpsgd.flat import FlatModel
from adpsgd.schedule import Schedule
from adpsgd.strategies import Strategy
from adpsgd.world import World

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


class Learner:
    """One of the learners of a run, with a model, an optimizer and a strategy.

    The optimizer sees one flat parameter; its state (momentum) stays with the learner.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        strategy: Strategy,
        world: World,
        schedule: Schedule | None = None,
        clip_norm: float | None = None,
        max_skipped: int = 20,
        telemetry: Path | None = None,
    ) -> None:
        """Move ``module``'s parameters into a flat buffer and begin, together with the others, with learner 0's weights.

        :param schedule: the learning rate by epochs of global work; the optimizer's own rate without.
        :param clip_norm: scale the learner's gradient down to this 2-norm.
        :param max_skipped: steps in a row with a loss or gradient that is not finite before training stops.
        :param telemetry: a file for JSON lines, one a step.
        """
        self.world = world
        self.strategy = strategy
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.max_skipped = max_skipped
        self.flat = FlatModel(module)
        self.optimizer = make_optimizer([self.flat.parameter])
        self.steps = 0
        self.skipped = 0
        self._skipped_in_a_row = 0
        self._position = 0.0  # epochs of work claimed by all learners
        self._batch: np.ndarray = np.zeros(0, dtype=np.int64)
        self._log: IO[str] | None = None
        if telemetry is not None:
            telemetry.parent.mkdir(parents=True, exist_ok=True)
            self._log = open(telemetry, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        world.agree({"strategy": type(strategy).__name__, "parameters": self.flat.shapes, "learners": world.size})
        strategy.start(self.flat, world)
        self._since = time.perf_counter()

    def work(self, epoch: int, num_samples: int, batch_size: int, seed: int) -> Iterator[np.ndarray]:
        """Yield batches of sample indices until the epoch's work is gone; every sample goes to one learner, once.

        The epoch's permutation follows from (seed, epoch). Asynchronous learners claim its next block from a shared
        counter, so that a slow one simply claims less. Synchronous ones take every L-th block, and the same number of
        steps: with nothing left for it, a learner still takes part in the last one.
        """
        order = np.random.default_rng([seed, epoch]).permutation(num_samples)
        blocks = -(-num_samples // batch_size)
        size, rank = self.world.size, self.world.rank
        turn = 0
        self.strategy.begin()
        while True:
            if self.strategy.synchronous:
                first = turn * size
                block = first + rank
            else:
                first = block = self.world.store.add(f"claimed/{epoch}", 1) - 1
            if first >= blocks:
                break
            turn += 1
            self._position = epoch + first * batch_size / num_samples  # the same for all where they step together
            self._batch = order[block * batch_size : (block + 1) * batch_size]
            steps = self.steps
            self.flat.gradients.zero_()
            if len(self._batch):
                yield self._batch
                if self.steps == steps:
                    raise AdpsgdError("a batch was claimed, but step() was not called for it")
            else:
                self._apply(0, 0.0)
        self.strategy.drain()

    def step(self, loss: float, samples: int) -> None:
        """Apply the gradients in the model, a mean over ``samples`` samples.

        A loss or gradient that is not finite is left out and counted: the learner takes part in the step with nothing.

        :raises AdpsgdError: after ``max_skipped`` of them in a row, or where an exchange has failed.
        """
        norm = float(self.flat.gradient_norm())
        if not (np.isfinite(loss) and np.isfinite(norm)):
            self.skipped += 1
            self._skipped_in_a_row += 1
            if self._skipped_in_a_row >= self.max_skipped:
                raise AdpsgdError(
                    f"learner {self.world.rank}: {self._skipped_in_a_row} steps in a row were not finite (loss {loss}, "
                    f"gradient norm {norm}), the last on samples {self._batch[:5].tolist()}...; lower the learning rate "
                    "or look at these samples"
                )
            self.flat.gradients.zero_()
            samples = 0
        else:
            self._skipped_in_a_row = 0
            if self.clip_norm is not None and norm > self.clip_norm:
                self.flat.gradients.mul_(self.clip_norm / norm)
        self._apply(samples, loss)

    def _apply(self, samples: int, loss: float) -> None:
        rate = self.optimizer.param_groups[0]["lr"]
        if self.schedule is not None:
            rate = self.schedule(self._position)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        computed = time.perf_counter() - self._since
        self.strategy.step(self.optimizer, samples)
        self.steps += 1
        if self._log is not None:
            line = {
                "step": self.steps,
                "epoch": round(self._position, 6),
                "samples": samples,
                "loss": loss if np.isfinite(loss) else None,
                "lr": rate,
                "rounds": self.strategy.rounds,
                "staleness": self.strategy.merged,
                "compute_seconds": round(computed, 6),
                "wait_seconds": round(self.strategy.waited, 6),
                "mixing_seconds": round(self.strategy.mixing, 6),
            }
            self._log.write(json.dumps(line) + "\n")
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def averaged(self) -> Iterator[float]:
        """Give the model the average of all learners' weights for a while, and say how far apart these are.

        The consensus distance is the root mean square over the learners of the 2-norm of w_l - mean. Every learner must
        take part, between epochs.
        """
        own = self.flat.values.clone()
        distance = 0.0
        if self.world.size > 1:
            mean = own.double()
            dist.all_reduce(mean)
            mean /= self.world.size
            squared = ((own.double() - mean) ** 2).sum()
            dist.all_reduce(squared)
            distance = float((squared / self.world.size).sqrt())
            self.flat.values.copy_(mean)
        try:
            yield distance
        finally:
            self.flat.values.copy_(own)
            self._since = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """What this learner must keep to go on exactly: weights, optimizer, counters."""
        return {
            "values": self.flat.values.clone(),
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            "skipped": self.skipped,
            "rounds": self.strategy.rounds,
            "torch_rng": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` has given.

        :raises AdpsgdError: where the model is of another size.
        """
        if state["values"].shape != self.flat.values.shape:
            raise AdpsgdError(
                f"the checkpoint holds {len(state['values'])} parameters, the model has {len(self.flat.values)}; "
                "it belongs to another configuration: remove it, or use its own"
            )
        self.flat.values.copy_(state["values"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self.skipped = state["steps"], state["skipped"]
        self.strategy.rounds = state["rounds"]
        torch.set_rng_state(state["torch_rng"])
