"""Who computes on which block of an epoch's work, and how all learners halt at the same block."""

from __future__ import annotations

from typing import NamedTuple

import torch

from adpsgd.strategy import Strategy
from adpsgd.world import World

_HALT = 1 << 40  # added to the counter of claims: whoever claims after this finds no work


class Halt(NamedTuple):
    """Where work was ended early, and whether for a signal or for a pause."""

    block: int
    stopped: bool


class Claims:
    """The blocks from ``first`` to ``blocks`` of an epoch, each claimed by one learner.

    Where all learners step side by side, they take turns. Teams that do not, a learner alone or a super-learner, take
    their next blocks from a counter in the store.
    """

    def __init__(self, world: World, strategy: Strategy, first: int, blocks: int) -> None:
        name = world.name("work")
        self._world = world
        self._strategy = strategy
        self._counter = f"{name}/claimed"
        self._halting = f"{name}/halt"
        self._team = strategy.team
        self._first = first
        self._blocks = blocks
        self._claimed = 0  # by all, with the last claim
        self.halt: Halt | None = None

    def next(self, stop: bool, pause: bool) -> tuple[int, int] | None:
        """The first block claimed by this learner's team, and this learner's; ``None`` where the work has ended.

        A learner's block may lie past the last one, where its team's first does not.

        :param stop: a signal has come to this learner; :param pause: it is time to pause.
        """
        in_turn = len(self._team) == self._world.size
        first = self._first + (self._turn(stop, pause) if in_turn else self._count(stop, pause))
        if self.halt is not None or first >= self._blocks:
            return None
        return first, first + self._team.index(self._world.rank)

    def age(self) -> int:
        """Blocks that others have claimed since this learner's last claim."""
        if len(self._team) == self._world.size:
            return 0
        with self._world.exchange("claiming work"):
            return (self._world.store.add(self._counter, 0) % _HALT) - self._claimed

    def _turn(self, stop: bool, pause: bool) -> int:
        store, size = self._world.store, self._world.size
        done, self._claimed = self._claimed, self._claimed + size
        with self._world.exchange("claiming work"):
            if (stop or pause) and not store.check([self._halting]):
                # No learner can be past this many further steps without having heard of this one.
                last = done + (self._strategy.steps_until_heard() * size if size > 1 else 0)
                store.compare_set(self._halting, "", f"{last} {int(stop)}")
            if store.check([self._halting]):
                last, stopped = map(int, store.get(self._halting).split())
                if done >= last and self._first + done < self._blocks:
                    self.halt = Halt(self._first + done, bool(stopped))
        return done

    def _count(self, stop: bool, pause: bool) -> int:
        store, size = self._world.store, len(self._team)
        with self._world.exchange("claiming work"):
            if stop or pause:
                done = store.add(self._counter, _HALT) - _HALT
                if done < _HALT:
                    store.set(self._halting, f"{done} {int(stop)}")
            if self._world.rank == self._team[0]:
                self._claimed = store.add(self._counter, size)
        if size > 1:
            claimed = torch.tensor([self._claimed])
            self._world.broadcast(claimed, self._team[0], self._strategy.team_group)
            self._claimed = int(claimed)
        if self._claimed >= _HALT:
            done, stopped = map(int, store.get(self._halting).split())
            if self._first + done < self._blocks:  # otherwise the halt has come too late to be one
                self.halt = Halt(self._first + done, bool(stopped))
            return self._blocks - self._first
        return self._claimed - size
