"""A learner: claims work, applies gradients by its strategy, tells what it does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adpsgd.claims import Claims
from adpsgd.errors import AdpsgdError
from adpsgd.flat import FlatModel
from adpsgd.schedule import Schedule
from adpsgd.strategy import Strategy
from adpsgd.telemetry import Telemetry
from adpsgd.world import World

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


class Learner:
    """One of the learners of a run, with a model, an optimizer and a strategy.

    The optimizer sees one flat parameter; its state (momentum) stays with the learner unless ``mix_momentum``.

    ``epoch`` is the number of epochs finished, and what :meth:`work` goes on with. ``stopped`` tells that work has ended
    before its time, for a signal: the caller saves a checkpoint and leaves with the exit code ``STOPPED``.
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
        mix_momentum: bool = False,
        slow: Mapping[int, float] | None = None,
        slow_link: Mapping[int, float] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Move ``module``'s parameters into a flat buffer and begin, together with the others, with learner 0's weights.

        :param schedule: the learning rate by epochs of global work; the optimizer's own rate without.
        :param clip_norm: scale the learner's gradient down to this 2-norm.
        :param max_skipped: steps in a row with a loss or gradient that is not finite before training stops.
        :param mix_momentum: average the momentum (of SGD) together with the weights.
        :param slow: for experiments, the factor by which learners compute more slowly, by rank: they sleep.
        :param slow_link: for experiments, megabytes a second that a learner's exchanges do not exceed, by rank.
        :raises AdpsgdError: where the learners differ in what must be equal.
        """
        self.world = world
        self.strategy = strategy
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.max_skipped = max_skipped
        self.flat = FlatModel(module, mix_momentum)
        self.optimizer = make_optimizer([self.flat.parameter])
        if mix_momentum:
            self.flat.share_momentum(self.optimizer)
        self._mix_momentum = mix_momentum
        self._slow = (slow or {}).get(world.rank, 1.0)
        strategy.link_megabytes = (slow_link or {}).get(world.rank, 0.0)
        self._telemetry = telemetry
        self.epoch = 0
        self.stopped = False
        self.skipped = 0
        self._skipped_in_a_row = 0
        self._loss_sum = 0.0  # over this learner's samples of the epoch
        self._samples = 0
        self._block = 0  # the first of the epoch's work that no one has claimed, while no one works
        self._position = 0.0  # epochs of work claimed by all learners
        self._batch: np.ndarray = np.zeros(0, dtype=np.int64)
        self._computed: list[tuple[Tensor, int]] = []  # loss and samples of the micro-batches since the last step
        options = self.optimizer.state_dict()["param_groups"]
        world.agree(
            {
                "strategy": strategy.description,
                "parameters": self.flat.shapes,
                "dtype": str(self.flat.values.dtype),
                "learners": world.size,
                "optimizer": [type(self.optimizer).__name__, str(options)],
                "schedule": repr(schedule),
                "clip_norm": clip_norm,
                "mix_momentum": mix_momentum,
            }
        )
        strategy.start(self.flat, world)
        self._since = time.perf_counter()

    @property
    def steps(self) -> int:
        """Steps this learner has made."""
        return self.strategy.steps

    @property
    def position(self) -> float:
        """Epochs of work that all learners together had claimed with the last claim."""
        return self._position

    def work(self, num_samples: int, batch_size: int, seed: int, pause_seconds: float | None = None) -> Iterator[np.ndarray]:
        """Yield batches of sample indices until the epoch's work is gone; every sample goes to one learner, once.

        The epoch's permutation follows from (seed, epoch). Asynchronous learners claim its next block from a shared
        counter, so that a slow one simply claims less. Synchronous ones take every L-th block, and the same number of
        steps: with nothing left for it, a learner still takes part in the last one. Super-learners claim for their group.

        The work ends early, at all learners, after a signal to any of them, or when ``pause_seconds`` have passed at
        learner 0: then ``epoch`` is the same as before, and the next call takes up the rest of the work.

        :raises AdpsgdError: where a batch was not followed by ``step()``, or another learner has gone.
        """
        if num_samples < 1 or batch_size < 1:
            raise AdpsgdError(f"there is no work: {num_samples} samples in batches of {batch_size}")
        order = np.random.default_rng([seed, self.epoch]).permutation(num_samples)
        blocks = -(-num_samples // batch_size)
        until = time.monotonic() + pause_seconds if pause_seconds is not None and self.world.rank == 0 else float("inf")
        self._claims = claims = Claims(self.world, self.strategy, self._block, blocks)
        self.strategy.begin()
        self._since = time.perf_counter()
        while (claim := claims.next(self.world.stop_requested, time.monotonic() > until)) is not None:
            first, block = claim
            self._position = self.epoch + first * batch_size / num_samples  # the same for all where they step together
            self._batch = order[block * batch_size : (block + 1) * batch_size]
            self._computed.clear()
            self.flat.gradients.zero_()
            self.strategy.prepare()
            if len(self._batch):
                steps = self.steps
                yield self._batch
                if self.steps == steps:
                    raise AdpsgdError("a batch was claimed, but step() was not called for it")
            else:
                self._apply(0, 0.0)
        self.strategy.drain()
        if claims.halt is None:
            self.epoch, self._block = self.epoch + 1, 0
        else:
            self._block, self.stopped = claims.halt
        self._position = self.epoch + self._block * batch_size / num_samples

    def backward(self, loss: Tensor, samples: int) -> None:
        """Add to the gradients: ``loss`` is a mean over ``samples`` samples, all of a batch or a micro-batch of it.

        However the batch is cut, the gradients are those of the mean over all its samples.
        """
        before = sum(count for _, count in self._computed)
        self._computed.append((loss.detach(), samples))
        if before:
            self.flat.gradients.mul_(before / (before + samples))
            loss = loss * (samples / (before + samples))
        loss.backward()

    def step(self) -> None:
        """Apply the gradients of the batch.

        A loss or gradient that is not finite is left out and counted: the learner takes part in the step with nothing.

        :raises AdpsgdError: after ``max_skipped`` of them in a row, where nothing was computed, or an exchange has failed.
        """
        samples = sum(count for _, count in self._computed)
        if not samples:
            raise AdpsgdError("step() needs gradients: call backward() first")
        loss = sum(float(value) * count for value, count in self._computed) / samples
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
            self._apply(0, loss)
            return
        self._skipped_in_a_row = 0
        if self.clip_norm is not None and norm > self.clip_norm:
            self.flat.gradients.mul_(self.clip_norm / norm)
        self._loss_sum += loss * samples
        self._samples += samples
        self._apply(samples, loss)

    def _apply(self, samples: int, loss: float) -> None:
        rate = self.optimizer.param_groups[0]["lr"]
        if self.schedule is not None:
            rate = self.schedule(self._position)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        if self._slow > 1:
            time.sleep((self._slow - 1) * (time.perf_counter() - self._since))
        computed = time.perf_counter() - self._since
        self.strategy.step(self.optimizer, samples)
        if self._telemetry is not None:
            self._telemetry.write(
                self.steps,
                {
                    "epoch": round(self._position, 6),
                    "samples": samples,
                    "loss": loss,
                    "lr": rate,
                    "rounds": self.strategy.rounds,
                    "staleness": self.strategy.merged,
                    "gradient_age": self._claims.age,
                    "moved": self.strategy.moved,
                    "compute_seconds": round(computed, 6),
                    "wait_seconds": round(self.strategy.waited, 6),
                    "mixing_seconds": round(self.strategy.mixing, 6),
                },
            )
        self._since = time.perf_counter()

    def tally(self) -> tuple[float, list[int]]:
        """The mean training loss of the epoch so far, and the samples each learner has computed on; then begin anew.

        Every learner must take part, after an epoch has ended and before the next begins.
        """
        sums = torch.zeros(self.world.size + 1, dtype=torch.float64)
        sums[self.world.rank] = self._samples
        sums[-1] = self._loss_sum
        self.world.all_reduce(sums)
        self._loss_sum, self._samples = 0.0, 0
        claimed = [int(count) for count in sums[:-1]]
        return float(sums[-1]) / max(sum(claimed), 1), claimed

    @contextlib.contextmanager
    def averaged(self) -> Iterator[float]:
        """Give the model the average of all learners' weights for a while, and say how far apart these are.

        Floating-point buffers such as batch norm's are averaged too. The consensus distance is the root mean square over
        the learners of the 2-norm of w_l - mean. Every learner must take part, between epochs.
        """
        tensors = [self.flat.values, *self.flat.statistics()]
        own = [tensor.clone() for tensor in tensors]
        distance = 0.0
        if self.world.size > 1:
            for tensor in tensors:
                mean = tensor.double()
                self.world.all_reduce(mean)
                tensor.copy_(mean.div_(self.world.size))
            squared = ((own[0].double() - self.flat.values.double()) ** 2).sum()
            self.world.all_reduce(squared)
            distance = float((squared / self.world.size).sqrt())
        if self._telemetry is not None:
            self._telemetry.write(self.steps, {"epoch": self._position, "consensus_distance": distance})
        try:
            yield distance
        finally:
            for tensor, before in zip(tensors, own, strict=True):
                tensor.copy_(before)
            self._since = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """What this learner must keep to go on exactly: weights, buffers, optimizer, counters, random numbers."""
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {  # clones: a view would bring the whole flat buffer into the file
            index: {name: value.clone() if isinstance(value, Tensor) else value for name, value in kept.items()}
            for index, kept in optimizer["state"].items()
        }
        state = {
            "values": self.flat.values.clone(),
            "buffers": {name: buffer.clone() for name, buffer in self.flat.module.named_buffers()},
            "optimizer": optimizer,
            "strategy": dict(self.strategy.state()),
            "epoch": self.epoch,
            "block": self._block,
            "loss_sum": self._loss_sum,
            "samples": self._samples,
            "skipped": self.skipped,
            "torch_rng": torch.get_rng_state(),
        }
        if self.world.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state` has given.

        :raises AdpsgdError: where the model is of another size.
        """
        if state["values"].shape != self.flat.values.shape:
            raise AdpsgdError(
                f"the checkpoint holds {len(state['values'])} parameters, the model has {len(self.flat.values)}; "
                "it belongs to another configuration: remove it, or use its own"
            )
        self.flat.values.copy_(state["values"])
        for name, buffer in self.flat.module.named_buffers():
            buffer.copy_(state["buffers"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        if self._mix_momentum:
            self.flat.share_momentum(self.optimizer)
        self.strategy.restore(state["strategy"])
        self.epoch, self._block = state["epoch"], state["block"]
        self._loss_sum, self._samples, self.skipped = state["loss_sum"], state["samples"], state["skipped"]
        torch.set_rng_state(state["torch_rng"])
        if "cuda_rng" in state and self.world.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_rng"])
