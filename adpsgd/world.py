"""The learners of a run: who one is, a store to meet at, and the watch over those who have died."""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from adpsgd.errors import AdpsgdError

LOST = 13  # exit code of a learner whose fellow has gone
_BEAT_SECONDS = 1.0
_LOST_SECONDS = 20.0


class World:
    """``rank`` of ``size`` learners. Alone, there is no process group; with others, gloo and the launcher's store."""

    def __init__(self, rank: int, size: int, store: dist.Store) -> None:
        self.rank = rank
        self.size = size
        self.store = store
        self._ended = threading.Event()
        self._agreements = 0

    @staticmethod
    def join(timeout_seconds: float = 60) -> World:
        """Join the learners that torchrun or srun has started (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or be alone.

        :param timeout_seconds: how long an exchange may take before the learner gives up.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return World(0, 1, dist.HashStore())
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout_seconds))
        store = dist.distributed_c10d._get_default_store()
        world = World(dist.get_rank(), size, dist.PrefixStore("adpsgd", store))
        world._watch()
        return world

    def agree(self, what: Mapping[str, Any]) -> None:
        """Compare what must be equal at every learner, before the first exchange: sizes that differ would end in a crash.

        :raises AdpsgdError: naming the first learner that differs and in what.
        """
        if self.size == 1:
            return
        self._agreements += 1
        key = f"agree/{self._agreements}"
        mine = json.dumps(what, sort_keys=True)
        self.store.set(f"{key}/{self.rank}", mine)
        for other in range(self.size):
            theirs = self.store.get(f"{key}/{other}").decode()
            if theirs != mine:
                ours, there = json.loads(mine), json.loads(theirs)
                keys = [name for name in sorted({*ours, *there}) if ours.get(name) != there.get(name)]
                differences = "; ".join(f"{name}: {ours.get(name)} and {there.get(name)}" for name in keys)
                raise AdpsgdError(f"learner {self.rank} and learner {other} differ: {differences}; start all with one config")

    def barrier(self) -> None:
        """Wait for every learner."""
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """End in order, together with the others; learner 0 goes last if it keeps the store."""
        if self.size > 1:
            dist.barrier()
            self._ended.set()
            dist.destroy_process_group()

    def _watch(self) -> None:
        """Beat, and look at the others' beats: a closed connection alone does not tell of every death.

        The store is cloned: a wait on the shared one would block the main thread's claims.
        """
        shared = dist.distributed_c10d._get_default_store()
        while isinstance(shared, dist.PrefixStore):
            shared = shared.underlying_store
        store = dist.PrefixStore("adpsgd-beat", shared.clone())
        last = {other: (b"", time.monotonic()) for other in range(self.size) if other != self.rank}

        def watch() -> None:
            beat = 0
            while not self._ended.wait(_BEAT_SECONDS):
                beat += 1
                try:
                    store.set(str(self.rank), str(beat))
                    for other, (seen, since) in list(last.items()):
                        now = store.get(str(other)) if store.check([str(other)]) else b""
                        if now != seen:
                            last[other] = now, time.monotonic()
                        elif time.monotonic() - since > _LOST_SECONDS:
                            self.abandon(f"learner {other} has given no sign of life for {_LOST_SECONDS:.0f} s")
                except (RuntimeError, dist.DistNetworkError) as error:
                    if not self._ended.is_set():
                        self.abandon(f"the launcher's store is gone ({str(error).splitlines()[0]})")

        threading.Thread(target=watch, daemon=True, name="adpsgd-watch").start()

    def abandon(self, why: str) -> None:
        """Say why and leave at once: after a failure the process group can no longer be taken down in order."""
        print(f"error: learner {self.rank} stops: {why}; start again to resume", file=sys.stderr, flush=True)
        os._exit(LOST)
