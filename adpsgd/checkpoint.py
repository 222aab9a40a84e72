"""Checkpoints of all learners that exist whole or not at all, and the newest of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from adpsgd.errors import AdpsgdError
from adpsgd.world import World

_COMPLETE = "complete.json"


class Checkpoints:
    """A folder of checkpoints, one a finished epoch; the last ``keep`` of them stay.

    Every learner writes its own file, by a temporary name; learner 0 adds the mark that makes the checkpoint count once
    all have.
    """

    def __init__(self, folder: Path, world: World, keep: int = 2) -> None:
        self.folder = folder
        self.world = world
        self.keep = keep

    def save(self, epoch: int, state: dict[str, Any], shared: dict[str, Any]) -> None:
        """Write this learner's ``state`` after ``epoch`` epochs; ``shared`` (JSON) is the same for all."""
        place = self.folder / f"epoch-{epoch:04d}"
        place.mkdir(parents=True, exist_ok=True)
        target = place / f"learner-{self.world.rank}.pt"
        temporary = target.with_suffix(".tmp")
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        self.world.barrier()
        if self.world.rank == 0:
            mark = place / f"{_COMPLETE}.tmp"
            mark.write_text(json.dumps({"learners": self.world.size, "shared": shared}), encoding="utf-8")
            os.replace(mark, place / _COMPLETE)
            for old in self._complete()[: -self.keep]:
                shutil.rmtree(old)
        self.world.barrier()

    def newest(self) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
        """Epoch, this learner's state and what is shared, of the newest whole checkpoint; ``None`` without one.

        :raises AdpsgdError: where another number of learners has written it.
        """
        complete = self._complete()
        if not complete:
            return None
        place = complete[-1]
        mark = json.loads((place / _COMPLETE).read_text(encoding="utf-8"))
        if mark["learners"] != self.world.size:
            raise AdpsgdError(
                f"{place} was written by {mark['learners']} learners, this run has {self.world.size}; "
                "use as many, or remove the folder to begin anew"
            )
        state = torch.load(place / f"learner-{self.world.rank}.pt", weights_only=True)
        return int(place.name.removeprefix("epoch-")), state, mark["shared"]

    def _complete(self) -> list[Path]:
        return sorted(place for place in self.folder.glob("epoch-*") if (place / _COMPLETE).exists())
