"""Checkpoints of all learners that exist whole or not at all, and the newest of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from adpsgd.errors import AdpsgdError, differing
from adpsgd.learner import Learner

_COMPLETE = "complete.json"


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name once it is whole and on the disk."""
    temporary = target.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)


class Checkpoints:
    """A folder of checkpoints, of which the last ``keep`` stay; the learners share the file system.

    Every learner writes its own file, by a temporary name; learner 0 adds the mark that makes the checkpoint count once
    all have.
    """

    def __init__(self, folder: Path, learner: Learner, configuration: Mapping[str, Any], keep: int = 2) -> None:
        """:param configuration: JSON that a checkpoint is good for; one of another is refused."""
        self.folder = folder
        self.keep = keep
        self._learner = learner
        self._world = learner.world
        self._configuration = json.loads(json.dumps(configuration))

    def save(self, shared: Mapping[str, Any] | None = None) -> None:
        """Write the learners' states; ``shared`` (JSON) is the same for all. Between pieces of work, by all together."""
        state = self._learner.state()
        place = self.folder / f"epoch-{state['epoch']:04d}-block-{state['block']:08d}"
        place.mkdir(parents=True, exist_ok=True)
        with _replacing(place / f"learner-{self._world.rank}.pt") as file:
            torch.save(state, file)
        self._world.barrier()
        if self._world.rank == 0:
            mark = {"learners": self._world.size, "configuration": self._configuration, "shared": dict(shared or {})}
            with _replacing(place / _COMPLETE) as file:
                file.write(json.dumps(mark).encode())
            kept = self._complete()[-self.keep :]
            for old in self.folder.glob("epoch-*"):
                if old not in kept:
                    shutil.rmtree(old)
        self._world.barrier()

    def resume(self) -> dict[str, Any] | None:
        """Give the learner its state in the newest whole checkpoint; return what was shared, ``None`` without one.

        :raises AdpsgdError: where it belongs to another number of learners or another configuration.
        """
        complete = self._complete()
        if not complete:
            return None
        place = complete[-1]
        mark = json.loads((place / _COMPLETE).read_text(encoding="utf-8"))
        if mark["learners"] != self._world.size:
            raise AdpsgdError(
                f"{place} was written by {mark['learners']} learners, this run has {self._world.size}; "
                "use as many, or remove the folder to begin anew"
            )
        if mark["configuration"] != self._configuration:
            differences = differing(mark["configuration"], self._configuration, ", now ")
            raise AdpsgdError(f"{place} belongs to another configuration ({differences}); remove {self.folder} to begin anew")
        state = torch.load(place / f"learner-{self._world.rank}.pt", weights_only=True, map_location="cpu")
        self._learner.restore(state)
        return mark["shared"]

    def clear(self) -> None:
        """Remove all: the run has come to its end. By all together, so that no one still reads them."""
        self._world.barrier()
        if self._world.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        return sorted(place for place in self.folder.glob("epoch-*") if (place / _COMPLETE).exists())
