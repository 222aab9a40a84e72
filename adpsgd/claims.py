"""Who computes on which block of an epoch's work, and how all learners halt at the same block."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist

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

    The store is asked one block ahead, while the block before is computed: on a slow link its answer may queue behind a
    whole model. A block so claimed is always computed, halt or not.
    """

    def __init__(self, world: World, strategy: Strategy, first: int, blocks: int) -> None:
        name = world.name("work")
        self._world = world
        self._strategy = strategy
        self._counter = f"{name}/claimed"
        self._halting = f"{name}/halt"
        self._team = strategy.team
        self._in_turn = len(self._team) == world.size
        self._first = first
        self._blocks = blocks
        self._claimed = 0  # by all, with this team's last claim
        self._answer = world.ask(self._question)
        self.age = 0  # blocks that other teams have claimed between this one's last two claims
        self.halt: Halt | None = None

    def next(self, stop: bool, pause: bool) -> tuple[int, int] | None:
        """The first block claimed by this learner's team, and this learner's; ``None`` where the work has ended.

        A learner's block may lie past the last one, where its team's first does not.

        :param stop: a signal has come to this learner; :param pause: it is time to pause.
        """
        with self._world.exchange("claiming work"):
            first = self._first + (self._turn(stop, pause) if self._in_turn else self._count(stop, pause))
        if self.halt is not None or first >= self._blocks:
            return None
        self._answer = self._world.ask(self._question)
        return first, first + self._team.index(self._world.rank)

    def _question(self, store: dist.Store) -> int:
        if self._in_turn:
            return int(store.check([self._halting]))
        return store.add(self._counter, len(self._team)) if self._world.rank == self._team[0] else 0

    def _turn(self, stop: bool, pause: bool) -> int:
        store, size = self._world.store, self._world.size
        done, self._claimed = self._claimed, self._claimed + size
        halting = bool(self._answer.result())
        if (stop or pause) and not halting:
            # No learner can be past this many further steps without having heard of this one, and then asked.
            last = done + ((self._strategy.steps_until_heard() + 1) * size if size > 1 else 0)
            store.compare_set(self._halting, "", f"{last} {int(stop)}")
            halting = True
        if halting:
            last, stopped = map(int, store.get(self._halting).split())
            if done >= last and self._first + done < self._blocks:
                self.halt = Halt(self._first + done, bool(stopped))
        return done

    def _count(self, stop: bool, pause: bool) -> int:
        store, size = self._world.store, len(self._team)
        if stop or pause:
            done = store.add(self._counter, _HALT) - _HALT
            if done < _HALT:
                store.set(self._halting, f"{done} {int(stop)}")
        before, self._claimed = self._claimed, self._answer.result()
        if size > 1:
            claimed = torch.tensor([self._claimed])
            self._world.broadcast(claimed, self._team[0], self._strategy.team_group)
            self._claimed = int(claimed)
        if self._claimed >= _HALT:
            done, stopped = map(int, store.get(self._halting).split())
            if self._first + done < self._blocks:  # otherwise the halt has come too late to be one
                self.halt = Halt(self._first + done, bool(stopped))
            return self._blocks - self._first
        self.age = self._claimed - before - size if before else 0
        return self._claimed - size
