"""The strategies: what a step exchanges with the other learners, and whether it waits for it.

==================  =======================================================================================
``allreduce``       w <- w - a * (mean of all gradients): synchronous SGD, every learner waits for all
``adpsgd-fixed``    W <- W T_1 - a G(stale W), T_1 the ring 0, 1, ..., L - 1; nobody waits
``adpsgd-random``   the same with a freshly permuted ring each round
==================  =======================================================================================

(Cui et al., arXiv 2110.11199, equations from memory of the paper.)
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from adpsgd.errors import AdpsgdError
from adpsgd.flat import FlatModel
from adpsgd.topology import permuted_ring, ring_neighbours
from adpsgd.world import World

_STAMPS = 256  # a message names its round modulo this, which even bfloat16 holds exactly


class Strategy(ABC):
    """One learner's part. ``step`` alone changes the weights: autograd would not notice it from another thread."""

    synchronous: bool  # all learners make the same number of steps, side by side

    def __init__(self) -> None:
        self.rounds = 0  # exchanges this learner has taken part in
        self.merged = 0  # rounds whose outcome came into the weights with the last step
        self.waited = 0.0  # seconds the last step waited for others
        self.mixing = 0.0  # seconds spent on exchanges, in whatever thread, since the start

    def start(self, flat: FlatModel, world: World) -> None:
        """Take the model. All learners begin with learner 0's weights."""
        self.flat = flat
        self.world = world
        if world.size > 1:
            dist.broadcast(flat.values, 0)

    def begin(self) -> None:  # noqa: B027
        """Be ready for the others' exchanges: an epoch begins."""

    @abstractmethod
    def step(self, optimizer: Optimizer, samples: int) -> None:
        """Combine and apply: the gradients of ``samples`` samples, a mean over them, lie in the flat model.

        With no samples the learner takes part in exchanges, and its optimizer is left alone.
        """

    def drain(self) -> None:  # noqa: B027
        """Come to rest at the end of an epoch, when what others still need of this learner is given."""


class Allreduce(Strategy):
    """Synchronous SGD: the mean of the gradients over all samples of the step, one flat allreduce.

    Equal to torch's DistributedDataParallel at equal batches. Learners whose work has run out take part with no samples,
    so that the last step of an epoch needs no padding.
    """

    synchronous = True

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        self._message = torch.empty(len(flat.gradients) + 1, dtype=flat.gradients.dtype)

    def step(self, optimizer: Optimizer, samples: int) -> None:
        if self.world.size > 1:
            began = time.perf_counter()
            gradients, message = self.flat.gradients, self._message
            torch.mul(gradients, samples, out=message[:-1])
            message[-1] = samples
            dist.all_reduce(message)
            samples = int(message[-1])
            torch.div(message[:-1], max(samples, 1), out=gradients)
            self.waited = time.perf_counter() - began
            self.mixing += self.waited
            self.rounds += 1
        if samples:
            optimizer.step()


class RingAveraging(Strategy):
    """Asynchronous averaging with two neighbours on a ring, in a thread and process group of its own.

    A round's message is the model as it will be once everything known is applied: the weights and the difference still
    pending. What comes back is turned into a difference, mixed - sent, that joins the pending one; ``step`` adds it to the
    weights. Gradient steps made meanwhile survive, and because every learner sends what it subtracts, the mean over the
    learners does not change in any round.

    A round begins with a learner that has made a step. Its neighbours join in when its message reaches them, even in the
    middle of a long computation: nobody's computation waits for another's.
    """

    synchronous = False
    _POLL_SECONDS = 0.002

    def __init__(self, ring: Callable[[int, int], np.ndarray]) -> None:
        """:param ring: the order of the learners in a round, from its number and their number."""
        super().__init__()
        self._ring = ring
        self._lock = threading.Lock()  # of weights and pending difference, never held over an exchange
        self._news = 0  # steps made since the last round began
        self._epoch = 0
        self._draining = False
        self._last_round: int | None = None  # of the epoch, once the last learner has finished it
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._merged_next = 0

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        if world.size == 1:
            return
        self._group = dist.new_group()
        self._pending = torch.zeros_like(flat.values)
        self._sent = torch.empty(len(flat.values) + 1, dtype=flat.values.dtype)
        self._received = [torch.empty_like(self._sent) for _ in range(2)]

    def begin(self) -> None:
        if self.world.size == 1:
            return
        self._thread = threading.Thread(target=self._mix, daemon=True, name="adpsgd-mixing")
        self._thread.start()

    def step(self, optimizer: Optimizer, samples: int) -> None:
        if self.world.size == 1:
            if samples:
                optimizer.step()
            return
        if self._failure:
            raise AdpsgdError(self._failure)
        began = time.perf_counter()
        with self._lock:
            self.waited = time.perf_counter() - began
            if samples:
                optimizer.step()
            self._merge()
            self._news += 1

    def _merge(self) -> None:
        self.flat.values.add_(self._pending)
        self._pending.zero_()
        self.merged, self._merged_next = self._merged_next, 0

    def drain(self) -> None:
        """Take part in the others' rounds until every learner has ended its epoch; all end with the same round.

        The last one to finish names that round. Neighbours are at most one round apart, so that no learner can be more
        than L rounds ahead of it.
        """
        if self._thread is None:
            return
        self._draining = True
        if self.world.store.add(f"drain/{self._epoch}/finished", 1) == self.world.size:
            self.world.store.set(f"drain/{self._epoch}/last", str(self.rounds + self.world.size + 1))
        self._thread.join()
        self._thread = None
        if self._failure:
            raise AdpsgdError(self._failure)
        self._merge()
        self._draining, self._last_round, self._news = False, None, 0
        self._epoch += 1

    def _ending(self) -> bool:
        """Whether all learners have ended the epoch, so that the rounds up to the last one need no further cause."""
        key = f"drain/{self._epoch}/last"
        if self._draining and self._last_round is None and self.world.store.check([key]):
            self._last_round = int(self.world.store.get(key))
        return self._last_round is not None

    def _mix(self) -> None:
        """The thread: rounds until the last one of the epoch."""
        try:
            while not (self._ending() and self.rounds == self._last_round):
                self._round()
        except RuntimeError as error:
            partners = ring_neighbours(self._ring(self.rounds, self.world.size), self.world.rank)
            self._failure = f"round {self.rounds} with learners {partners} failed: {str(error).splitlines()[0]}"

    def _round(self) -> None:
        number = self.rounds
        stamp = float(number % _STAMPS)
        neighbours = ring_neighbours(self._ring(number, self.world.size), self.world.rank)
        arrivals = self._received[: len(neighbours)]
        for buffer in arrivals:
            buffer[-1] = -1.0
        receiving = [
            dist.irecv(buffer, neighbour, group=self._group, tag=number % 2)
            for buffer, neighbour in zip(arrivals, neighbours, strict=True)
        ]
        # The last element of a message is its round: it arrives last, and tells that a neighbour has begun.
        while not (self._news or any(float(buffer[-1]) >= 0 for buffer in arrivals) or self._ending()):
            time.sleep(self._POLL_SECONDS)
        began = time.perf_counter()
        with self._lock:
            self._news = 0
            torch.add(self.flat.values, self._pending, out=self._sent[:-1])
        self._sent[-1] = stamp
        sending = [dist.isend(self._sent, neighbour, group=self._group, tag=number % 2) for neighbour in neighbours]
        for work in (*receiving, *sending):
            work.wait()
        for buffer, neighbour in zip(arrivals, neighbours, strict=True):
            if float(buffer[-1]) != stamp:
                raise RuntimeError(f"learner {neighbour} sent round {buffer[-1]:.0f}, expected {stamp:.0f}")
        mixed = self._difference(arrivals)
        with self._lock:
            self._pending.add_(mixed)
            self._merged_next += 1
        self.rounds += 1
        self.mixing += time.perf_counter() - began

    def _difference(self, arrivals: list[Tensor]) -> Tensor:
        """Mixed minus sent, in place of the first arrival; equal weights for all."""
        total = arrivals[0]
        for other in arrivals[1:]:
            total.add_(other)
        total.add_(self._sent, alpha=-float(len(arrivals)))
        return total.div_(len(arrivals) + 1)[:-1]


STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "allreduce": lambda seed: Allreduce(),
    "adpsgd-fixed": lambda seed: RingAveraging(lambda number, learners: np.arange(learners)),
    "adpsgd-random": lambda seed: RingAveraging(lambda number, learners: permuted_ring(seed, number, learners)),
}


def strategy(name: str, seed: int) -> Strategy:
    """The strategy of that name; ``seed`` is that of the rings, the same at all learners.

    :raises AdpsgdError: for an unknown name.
    """
    if name not in STRATEGIES:
        raise AdpsgdError(f"unknown strategy {name!r}; known: {', '.join(STRATEGIES)}")
    return STRATEGIES[name](seed)
