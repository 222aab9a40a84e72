"""The processes of one job: each has its share of the speakers, sums are added up over all, one decides for all.

Started by torchrun or srun, as the network's learners are; alone without them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

import adpsgd
from local.cli import RecipeError
from local.datadir import DataDir

Sums = TypeVar("Sums")
Part = TypeVar("Part")
Value = TypeVar("Value")


def added(parts: Iterable[Sums]) -> Sums:
    """The sum of at least one part, no more than two of them at a time in memory."""
    return functools.reduce(operator.add, parts)


class Team:
    """What processes do together; all must call the same in the same order."""

    def __init__(self, world: adpsgd.World) -> None:
        self.world = world

    @staticmethod
    @contextlib.contextmanager
    def join(cuda: bool = False) -> Iterator[Team]:
        """Meet the other processes; an error of one ends all.

        :param cuda: each takes a GPU where there are some.
        :raises RecipeError: where one fails.
        """
        try:
            with adpsgd.World.join(cuda=cuda) as world:
                try:
                    yield Team(world)
                except (RecipeError, FileNotFoundError) as error:
                    raise adpsgd.AdpsgdError(str(error)) from error  # which ends the other processes too
        except adpsgd.AdpsgdError as error:
            raise RecipeError(str(error)) from error

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides and writes."""
        return self.world.rank == 0

    def share(self, read: Callable[[], DataDir]) -> DataDir:
        """This process's speakers of what the leading process reads: a large set stands in memory once.

        :raises RecipeError: where there are fewer speakers than processes.
        """
        if self.world.size == 1:
            return read()
        shares: list[Any] | None = read().split(self.world.size) if self.leads else None
        mine: list[Any] = [None]
        with self.world.exchange("sharing out the speakers"):
            dist.scatter_object_list(mine, shares, src=0)
        return mine[0]

    def total(self, sums: Sums) -> Sums:
        """Add up over all processes: a tensor, or a dataclass of tensors and numbers, of the same shapes everywhere."""
        if self.world.size == 1:
            return sums
        if isinstance(sums, Tensor):
            added = sums.clone()
            self.world.all_reduce(added)
            return added
        values = {field.name: getattr(sums, field.name) for field in dataclasses.fields(sums)}  # type: ignore[arg-type]
        tensors = [torch.as_tensor(value, dtype=torch.float64) for value in values.values()]
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        self.world.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        totals = {
            name: part.view(value.shape).to(value.dtype) if isinstance(value, Tensor) else type(value)(part.item())
            for (name, value), part in zip(values.items(), parts, strict=True)
        }
        return type(sums)(**totals)

    def decide(self, part: Part, decision: Callable[[list[Part]], Value]) -> Value:
        """What the leading process decides when it has everyone's part: the others only hear of it."""
        if self.world.size == 1:
            return decision([part])
        parts: list[Any] | None = [None] * self.world.size if self.leads else None
        with self.world.exchange("handing in parts"):
            dist.gather_object(part, parts, dst=0)
        told: list[Any] = [None if parts is None else decision(parts)]
        with self.world.exchange("hearing a decision"):
            dist.broadcast_object_list(told, src=0)
        return told[0]
