"""Strategies in which no learner's computation waits for another's."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from adpsgd.errors import AdpsgdError, ExchangeError
from adpsgd.flat import FlatModel
from adpsgd.strategy import Strategy, difference, receivers
from adpsgd.topology import Topology, partners
from adpsgd.world import World

_STAMPS = 256  # a message names its round modulo this, which even bfloat16 holds exactly
_POLL_SECONDS = 0.002


class Adpsgd(Strategy):
    """W <- W T_k - a G(stale W): averaging with the round's partners, in a thread and process group of its own.

    A round's message is the model as it will be once everything known is applied: the weights and the difference still
    pending. What comes back is turned into a difference, mixed - sent, that joins the pending one; ``step`` adds it to the
    weights. Gradient steps made meanwhile survive, and because every learner sends what it subtracts, the mean over the
    learners does not change in any round.

    A round begins with a learner that has made a step since it last took part in one. Its partners join in when its message
    reaches them, even in the middle of a long computation. So there is about one round for each step of the fastest learner.

    Messages travel between hosts' memories, pinned where the model is on a GPU; there the copies have a stream of their own.
    """

    def __init__(self, topology: Topology, seed: int) -> None:
        super().__init__()
        self._topology = topology
        self._seed = seed
        self._lock = threading.Lock()  # of all that follows and of the weights; never held over an exchange
        self._due = 0  # above 0, a round is to begin
        self._begun = 0  # rounds
        self._holding = False  # no further round begins, except those before _end
        self._end: int | None = None
        self._merged_next = 0
        self._thread: threading.Thread | None = None
        self._failure: ExchangeError | None = None

    @property
    def team(self) -> range:
        return range(self.world.rank, self.world.rank + 1)

    def _mixers(self) -> Sequence[int]:
        """The learners that take part in rounds."""
        return range(self.world.size)

    def start(self, flat: FlatModel, world: World) -> None:
        super().start(flat, world)
        cuda = flat.mixed.is_cuda
        self._stream = torch.cuda.Stream() if cuda else None
        self._handed = torch.cuda.Event() if cuda else None
        self._ranks = self._mixers()
        if len(self._ranks) == 1:
            return
        self._group = world.new_group(self._ranks)
        if world.rank not in self._ranks:
            return
        self._sent = torch.empty(len(flat.mixed) + 1, dtype=flat.mixed.dtype, pin_memory=cuda)
        self._pending = torch.empty_like(self._sent, device=flat.mixed.device)  # of rounds not yet merged, where there are any
        self._spare: list[Tensor] = []

    @contextlib.contextmanager
    def _weights(self) -> Iterator[None]:
        """Sole use of the weights and the pending difference; on CUDA in the order of the streams too."""
        with self._lock:
            if self._handed is not None:
                self._handed.wait()
            yield
            if self._handed is not None:
                self._handed.record()

    def begin(self) -> None:
        self._draining = self.world.name("drain")  # those who take no part in rounds count it too
        if self.world.rank in self._ranks and len(self._ranks) > 1:
            self._begun = self.rounds
            self._thread = threading.Thread(target=self._mix, daemon=True, name="adpsgd-mixing")
            self._thread.start()

    def _step(self, optimizer: Optimizer, samples: int) -> None:
        self._raise_failure()
        began = time.perf_counter()
        with self._weights():
            self.waited = time.perf_counter() - began
            if samples:
                optimizer.step()
            self._merge()
            self._due += 1

    def _merge(self) -> None:
        if self._merged_next:
            self.flat.mixed.add_(self._pending[:-1])
        self.merged, self._merged_next = self._merged_next, 0

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def drain(self) -> None:
        """Mix on until every learner has come here, then let all end with the same round.

        When all are here no one begins a round of its own accord any more. Each tells how many it has begun; the rounds up
        to one past the greatest of these are made by all, so that no message is left on its way and no one left waiting.
        """
        if self._thread is None:
            return
        store, place = self.world.store, self._draining
        with self.world.exchange("the end of the work"):
            if store.add(f"{place}/here", 1) == len(self._ranks):
                store.set(f"{place}/all", "")
            store.wait([f"{place}/all"])
            with self._lock:
                self._holding = True
                begun = self._begun
            store.set(f"{place}/begun/{self.world.rank}", str(begun))
            counts = store.multi_get([f"{place}/begun/{rank}" for rank in self._ranks])
        self._end = max(int(count) for count in counts) + 1
        self._thread.join()
        self._thread = None
        self._raise_failure()
        with self._weights():
            self._merge()
        self._holding, self._end, self._due = False, None, 0

    def _mix(self) -> None:
        """The thread: rounds until the last one."""
        sources: list[int] = []
        targets: list[int] = []
        try:
            with torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext():
                while self._end is None or self.rounds < self._end:
                    matrix = self._topology(self._seed, self.rounds, len(self._ranks))
                    found = partners(matrix, self._ranks.index(self.world.rank))
                    sources, targets = ([self._ranks[place] for place in places] for places in found)
                    self._round(sources, targets)
        except (RuntimeError, AdpsgdError) as error:
            those = sorted({*sources, *targets})
            self._failure = ExchangeError(f"round {self.rounds} with learners {those} failed: {str(error).splitlines()[0]}")
            self.world.suspect()

    def _round(self, sources: list[int], targets: list[int]) -> None:
        stamp = float(self.rounds % _STAMPS)
        tag = self.rounds % 2
        arrivals = receivers(self._spare, len(sources), self._sent)
        for arrival in arrivals:
            arrival[-1] = -1.0
        # Ready to receive before anything is sent, so that no two learners can wait for each other's receipt.
        works = [dist.irecv(a, source, group=self._group, tag=tag) for a, source in zip(arrivals, sources, strict=True)]
        # The last element of a message is its round: it arrives last, and tells that a partner has begun.
        last = [arrival.numpy()[-1:] for arrival in arrivals]
        began = self._set_out(last, alone=not (sources or targets))
        self._sent[-1] = stamp
        works += [dist.isend(self._sent, target, group=self._group, tag=tag) for target in targets]
        for work in works:
            work.wait()
        for arrival, source in zip(arrivals, sources, strict=True):
            if float(arrival[-1]) != stamp:
                raise AdpsgdError(f"learner {source} sent round {arrival[-1]:.0f}, expected {stamp:.0f}")
        if arrivals:
            self._exchanged(began, self._sent)
            change = difference(self._sent, arrivals)
            self.moved = float(change.norm())
            change = change.to(self.flat.mixed.device)
            with self._weights():
                if self._merged_next:
                    self._pending.add_(change)
                else:  # hand over the buffer itself, for one that has been merged
                    if change is arrivals[0]:
                        self._spare[0] = self._pending
                    self._pending = change
                self._merged_next += 1
        self.rounds += 1

    def _set_out(self, last: list, alone: bool) -> float:
        """Wait until there is cause to begin a round, take the model to be sent, and return the time."""
        while True:
            stamped = alone or any(element[0] >= 0 for element in last)
            with self._weights():
                if (self._end is not None and self.rounds < self._end) if self._holding else (self._due > 0 or stamped):
                    began = time.perf_counter()
                    self._begun = self.rounds + 1
                    if not alone:
                        self._due = max(self._due, 0) - 1  # a round that others began counts for the next step
                        taken = self._sent[:-1] if self._stream is None else torch.empty_like(self.flat.mixed)
                        if self._merged_next:
                            torch.add(self.flat.mixed, self._pending[:-1], out=taken)
                        else:
                            taken.copy_(self.flat.mixed)
                    break
            time.sleep(_POLL_SECONDS)
        if self._stream is not None and not alone:
            self._sent[:-1].copy_(taken)
        return began


class Hierarchical(Adpsgd):
    """Super-learners: allreduce of the gradients inside a group, :class:`Adpsgd` between groups (after 1907.05701).

    The first learner of a group mixes with those of the other groups and hands on what that changes, so that all learners
    of a group hold the same weights.
    """

    def __init__(self, topology: Topology, seed: int, group_size: int | None) -> None:
        """:param group_size: learners of a group; those of a node where ``None``."""
        super().__init__(topology, seed)
        self._group_size = group_size

    @property
    def team(self) -> range:
        first = self.world.rank // self._size * self._size
        return range(first, first + self._size)

    @property
    def team_group(self) -> dist.ProcessGroup | None:
        return self._team_group

    def _mixers(self) -> Sequence[int]:
        return range(0, self.world.size, self._size)

    def start(self, flat: FlatModel, world: World) -> None:
        """:raises AdpsgdError: where the learners do not divide into groups of the size."""
        self._size = min(self._group_size or world.node_size, world.size)
        if world.size % self._size:
            raise AdpsgdError(f"{world.size} learners do not divide into groups of {self._size}; choose another group_size")
        super().start(flat, world)
        self._team_group = None
        if world.size > 1:
            for first in self._mixers():  # everyone takes part in making every group
                group = dist.new_group(list(range(first, first + self._size)))
                if world.rank in range(first, first + self._size):
                    self._team_group = group
        self._gradients = flat.gradients.new_zeros(len(flat.gradients) + 2)
        self._handed_on = torch.zeros_like(flat.mixed)

    def _step(self, optimizer: Optimizer, samples: int) -> None:
        if self._size == 1:
            super()._step(optimizer, samples)
            return
        self._raise_failure()
        leads = self._thread is not None
        with self._weights():
            count = self._merged_next
            if count:
                self._handed_on.copy_(self._pending[:-1])
        began = time.perf_counter()
        self._gradients[-1] = count
        samples, merged = self._mean_gradient(self._gradients, samples, self._team_group)
        if merged:
            self.world.broadcast(self._handed_on, self.team[0], self._team_group)
        self.waited = time.perf_counter() - began
        with self._weights():
            if samples:
                optimizer.step()
            if merged:
                self.flat.mixed.add_(self._handed_on)
            if leads:
                if merged:
                    self._pending[:-1].sub_(self._handed_on)
                self._merged_next -= count
                self._due += 1
        self.merged = int(merged)

    def drain(self) -> None:
        super().drain()
        if self._size > 1 and len(self._ranks) > 1:
            self.world.broadcast(self.flat.mixed, self.team[0], self._team_group)
