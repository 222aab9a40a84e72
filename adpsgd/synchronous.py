"""Strategies in which all learners step side by side."""

from __future__ import annotations

import time
from abc import abstractmethod

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from adpsgd.flat import FlatModel
from adpsgd.strategy import Strategy, difference, receivers
from adpsgd.topology import Topology, partners, rounds_to_reach_all
from adpsgd.world import World


class Allreduce(Strategy):
    """w <- w - a mean_l g_l: synchronous SGD, the mean of the gradients over all samples of the step.

    Equal to torch's DistributedDataParallel at equal batches. Learners whose work has run out take part with no samples,
    so that the last step of an epoch needs no padding.
    """

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        self._message = flat.gradients.new_zeros(len(flat.gradients) + 2)

    def _step(self, optimizer: Optimizer, samples: int) -> None:
        began = time.perf_counter()
        samples, _ = self._mean_gradient(self._message, samples)
        self._exchanged(began, self._message)
        self.waited = time.perf_counter() - began
        self.rounds += 1
        if samples:
            optimizer.step()


class LocalSgd(Strategy):
    """Every learner by itself for ``period`` steps, then W <- W T_u (post-local SGD, Lin et al. 2018; K-step averaging)."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        self._message = torch.empty_like(flat.mixed)

    def _step(self, optimizer: Optimizer, samples: int) -> None:
        if samples:
            optimizer.step()
        if self.steps % self.period == 0:
            began = time.perf_counter()
            self._message.copy_(self.flat.mixed)
            self.world.all_reduce(self._message)
            self._exchanged(began, self._message)
            self.waited = time.perf_counter() - began
            self._message.div_(self.world.size)
            self.moved = float(torch.dist(self._message, self.flat.mixed))
            self.flat.mixed.copy_(self._message)
            self.merged = 1
            self.rounds += 1

    def steps_until_heard(self) -> int:
        return self.period - self.steps % self.period


class _Overlapped(Strategy):
    """An exchange that runs while the gradient is computed, and is waited for in the step."""

    _message: Tensor

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        self._group = dist.new_group() if world.size > 1 else None
        self._works: list[dist.Work] = []

    def _set_out(self) -> None:
        self._began = time.perf_counter()
        with self.world.exchange(f"round {self.rounds}"):
            self._works = self._post()

    def _post(self) -> list[dist.Work]:
        """Begin to exchange the message: unless told otherwise, to sum it over all learners."""
        return [dist.all_reduce(self._message, group=self._group, async_op=True)]

    def _wait(self) -> None:
        began = time.perf_counter()
        with self.world.exchange(f"round {self.rounds}"):
            for work in self._works:
                work.wait()
        self._exchanged(self._began, self._message)
        self.waited = time.perf_counter() - began
        self.rounds += 1
        self.merged = 1


class _OverlappedAveraging(_Overlapped):
    """W_{k+1} = W_k T - a G(W_k): what is exchanged while the gradient is computed are the models it is computed at."""

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        self._message = torch.empty_like(flat.mixed)

    def prepare(self) -> None:
        if self.world.size > 1:
            self._message.copy_(self.flat.mixed)
            self._set_out()

    def _step(self, optimizer: Optimizer, samples: int) -> None:
        self._wait()
        mixed = self._mixed()
        self.moved = float(mixed.norm())
        if samples:
            optimizer.step()
        self.flat.mixed.add_(mixed)

    @abstractmethod
    def _mixed(self) -> Tensor:
        """W_k T - W_k for this learner, after the exchange."""


class Dpsgd(_OverlappedAveraging):
    """W_{k+1} = W_k T_k - a G(W_k): synchronous, each learner waits for those it mixes with (Lian et al. 2017)."""

    def __init__(self, topology: Topology, seed: int) -> None:
        super().__init__()
        self._topology = topology
        self._seed = seed
        self._spare: list[Tensor] = []

    def _post(self) -> list[dist.Work]:
        sources, targets = partners(self._topology(self._seed, self.rounds, self.world.size), self.world.rank)
        self._arrivals = receivers(self._spare, len(sources), self._message)
        receives = zip(self._arrivals, sources, strict=True)
        operations = [dist.P2POp(dist.irecv, arrival, source, self._group) for arrival, source in receives]
        operations += [dist.P2POp(dist.isend, self._message, target, self._group) for target in targets]
        with self.world.exchange(f"round {self.rounds} with learners {sorted({*sources, *targets})}"):
            return dist.batch_isend_irecv(operations) if operations else []

    def _mixed(self) -> Tensor:
        return difference(self._message, self._arrivals)

    def steps_until_heard(self) -> int:
        return rounds_to_reach_all(self._topology, self._seed, self.rounds, self.world.rank, self.world.size)


class DelayByOne(_OverlappedAveraging):
    """W_{k+1} = W_k T_u - a G(W_k): the global average, by an allreduce that runs while the gradient is computed.

    A learner's own last gradient is in its model at full strength; the others' arrive with the next average, delayed by
    one. This is how we read 2110.11199 (reading A, see :class:`StaleGradient` for the other one).
    """

    def _mixed(self) -> Tensor:
        return self._message.div_(self.world.size).sub_(self.flat.mixed)


class StaleGradient(_Overlapped):
    """w_{k+1} = w_k - a mean_l g_l(w_{k-1}): the gradients' allreduce runs while the next ones are computed.

    The other reading (B) of delay-by-one, as in Pipe-SGD: all learners hold the same model. What is left where work ends,
    for an epoch or a pause, is applied there. Alone, there is nothing to wait for and no delay.
    """

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        self._message, self._next = (flat.gradients.new_zeros(len(flat.gradients) + 1) for _ in range(2))

    def _step(self, optimizer: Optimizer, samples: int) -> None:
        torch.mul(self.flat.gradients, samples, out=self._next[:-1])
        self._next[-1] = samples
        self._apply(optimizer)
        self._message, self._next = self._next, self._message
        self._optimizer = optimizer
        self._set_out()

    def _apply(self, optimizer: Optimizer) -> None:
        if not self._works:
            return
        self._wait()
        self._works = []
        samples = float(self._message[-1])
        if samples:
            torch.div(self._message[:-1], samples, out=self.flat.gradients)
            optimizer.step()

    def drain(self) -> None:
        if self._works:
            self._apply(self._optimizer)
