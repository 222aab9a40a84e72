"""The learners of a run: who one is, a store to meet at, and the watch over those who have died."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from adpsgd import slurm
from adpsgd.errors import AdpsgdError, ExchangeError, differing

LOST = 13  # exit code of a learner that cannot go on
STOPPED = 75  # exit code after a signal and a checkpoint: start again to go on (EX_TEMPFAIL)
_BEAT_SECONDS = 1.0
_LOST_BEATS = 20
_SUSPECT_LOST_BEATS = 5  # once an exchange has failed
_VERDICT = "verdict"


class World:
    """``rank`` of ``size`` learners, each with a ``device``. Alone, there is no process group.

    As a context, it ends in order together with the others, or tells them who has failed and leaves at once.
    """

    def __init__(self, rank: int, size: int, store: dist.Store, device: torch.device) -> None:
        self.rank = rank
        self.size = size
        self.store = store
        self.device = device
        self.node_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))  # learners of this learner's node
        self.stop_requested = False
        self._ended = threading.Event()
        self._suspicious = threading.Event()
        self._passes_missed = 0
        self._named: Counter[str] = Counter()
        self._asked = store
        self._asking = ThreadPoolExecutor(1, "adpsgd-asking")
        # Of a store that learner 0 keeps itself, the end is learner 0's.
        self._keeper = "the launcher" if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else "learner 0"

    @staticmethod
    def join(timeout_seconds: float = 1800, cuda: bool = True) -> World:
        """Join the learners that torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) or srun has started, or be alone.

        With CUDA, unless it is not wanted, a learner has the device of its LOCAL_RANK, of those that it sees; collectives of
        device tensors go by NCCL, the rest by gloo.

        :param timeout_seconds: how long an exchange may take. Dead and stopped learners are noticed long before, by their
            heartbeats; this is for one that lives but does not come.
        """
        os.environ.update(slurm.variables(os.environ))
        device = torch.device("cpu")
        if cuda and torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
            torch.cuda.set_device(device)
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return World(0, 1, dist.HashStore(), device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        timeout = datetime.timedelta(seconds=timeout_seconds)
        shared, rank, size = next(dist.rendezvous("env://", timeout=timeout))
        attempt = _attempt(shared, rank, size, timeout_seconds)
        store = dist.PrefixStore(attempt, shared)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        world = World(rank, size, dist.PrefixStore("adpsgd", store), device)
        world._asked = dist.PrefixStore(f"{attempt}/adpsgd", shared.clone())
        world._watch(dist.PrefixStore(f"{attempt}/adpsgd", shared.clone()))
        return world

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.size == 1:
            return
        if error is None or isinstance(error, SystemExit):
            self.leave()
        elif isinstance(error, ExchangeError):
            self.suspect()  # the watch will find out who has gone, name it, and leave
            time.sleep((_LOST_BEATS + 10) * _BEAT_SECONDS)
            self.abandon(str(error))
        else:
            if isinstance(error, AdpsgdError):
                self.abandon(str(error))
            sys.excepthook(type(error), error, trace)
            self.abandon(f"{type(error).__name__}: {error}")

    def stop_on_signals(self, *signals: signal.Signals) -> None:
        """Let a signal (SIGTERM, SIGUSR1 and SIGINT unless others are named) end work in order: see ``Learner.stopped``."""

        def request(number: int, frame: object) -> None:
            self.stop_requested = True

        for number in signals or (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, request)

    def name(self, kind: str) -> str:
        """A prefix for the store that nothing else has used: the n-th of its kind, at all learners that ask alike."""
        self._named[kind] += 1
        return f"{kind}/{self._named[kind]}"

    def ask(self, question: Callable[[dist.Store], int]) -> Future[int]:
        """Ask the store in a thread and over a connection of its own, and go on: the answer is wanted later."""
        return self._asking.submit(question, self._asked)

    def agree(self, what: Mapping[str, Any]) -> None:
        """Compare what must be equal at every learner, before the first exchange: sizes that differ would end in a crash.

        :raises AdpsgdError: naming the first learner that differs and in what.
        """
        if self.size == 1:
            return
        name = self.name("agree")
        mine = json.dumps(what, sort_keys=True)
        self.store.set(f"{name}/{self.rank}", mine)
        all_of_them = self.store.multi_get([f"{name}/{other}" for other in range(self.size)])
        for other, theirs in enumerate(all_of_them):
            if theirs.decode() != mine:
                differences = differing(json.loads(mine), json.loads(theirs), " and ")
                raise AdpsgdError(f"learner {self.rank} and learner {other} differ: {differences}; start all with one config")

    @contextlib.contextmanager
    def exchange(self, what: str) -> Iterator[None]:
        """Tell a failed exchange from other errors."""
        try:
            yield
        except RuntimeError as error:
            raise ExchangeError(f"{what} failed: {str(error).splitlines()[0]}") from error

    def all_reduce(self, tensor: Tensor, group: dist.ProcessGroup | None = None) -> None:
        """Sum over the learners, in place.

        :raises ExchangeError: where a learner has gone.
        """
        if self.size > 1:
            with self.exchange("an allreduce"):
                dist.all_reduce(tensor, group=group)

    def broadcast(self, tensor: Tensor, source: int, group: dist.ProcessGroup | None = None) -> None:
        """Give all learners the tensor of learner ``source``.

        :raises ExchangeError: where a learner has gone.
        """
        if self.size > 1:
            with self.exchange(f"a broadcast of learner {source}"):
                dist.broadcast(tensor, source, group=group)

    def barrier(self) -> None:
        """Wait for every learner.

        :raises ExchangeError: where a learner has gone.
        """
        self.all_reduce(torch.zeros(1))

    def new_group(self, ranks: Sequence[int]) -> dist.ProcessGroup | None:
        """A gloo group of its own for some learners; all must call this together. Others than these get ``None``.

        Each pair meets once, here: a connection that is first used after its other end has died would hang.
        """
        group = dist.new_group(list(ranks), backend="gloo")
        if self.rank not in ranks:
            return None
        others = [rank for rank in ranks if rank != self.rank]
        with self.exchange("meeting the other learners"):
            works = [dist.irecv(torch.empty(1), other, group=group) for other in others]
            works += [dist.isend(torch.zeros(1), other, group=group) for other in others]
            for work in works:
                work.wait()
        return group

    def leave(self) -> None:
        """End in order, together with the others."""
        if self.size > 1 and not self._ended.is_set():
            self.barrier()
            self._ended.set()
            self.barrier()  # no one takes the store away while another still watches
            dist.destroy_process_group()

    def abandon(self, why: str) -> NoReturn:
        """Tell the others and leave at once: after a failure the process group can no longer be taken down in order."""
        with contextlib.suppress(RuntimeError):
            self.store.compare_set(_VERDICT, "", f"learner {self.rank} stopped: {why}")
        self._exit(why)

    def suspect(self) -> None:
        """An exchange has failed: have the watch look for who has gone with less patience."""
        self._suspicious.set()

    def _exit(self, why: str) -> NoReturn:
        self._ended.set()
        print(f"error: learner {self.rank} stops: {why}", file=sys.stderr, flush=True)
        if self._keeper == "learner 0" and self.rank == 0:
            time.sleep(3 * _BEAT_SECONDS)  # the others still have to read the verdict in the store, which goes with it
        os._exit(LOST)

    def _watch(self, store: dist.Store) -> None:
        """Beat, and look at the others' beats: a closed connection alone does not tell of every death.

        Times are counted in beats of one's own, so that a job that is suspended as a whole goes on.

        :param store: a connection of its own: a wait on a shared one would block the main thread's claims.
        """
        names = [f"beat/{rank}" for rank in range(self.size)]
        store.set(names[self.rank], "0")

        def watch() -> None:
            beat, seen, missed = 0, [b""] * self.size, [0] * self.size
            while not self._ended.wait(_BEAT_SECONDS):
                beat += 1
                try:
                    store.set(names[self.rank], str(beat))
                    now = store.multi_get(names)
                    missed = [0 if now[r] != seen[r] else missed[r] + 1 for r in range(self.size)]
                    seen = now
                    limit = _SUSPECT_LOST_BEATS if self._suspicious.is_set() else _LOST_BEATS
                    worst = max(range(self.size), key=lambda r: missed[r])
                    if missed[worst] >= limit:
                        text = f"learner {worst} has given no sign of life for {missed[worst]} s"
                        store.compare_set(_VERDICT, "", text)
                    if store.check([_VERDICT]) and not self._ended.is_set():
                        self._exit(f"{store.get(_VERDICT).decode()}; start again to resume")
                except RuntimeError:
                    if not self._ended.is_set():
                        self._exit(f"the store is gone, and {self._keeper} that keeps it; start again to resume")
                self._passes_missed = 0

        def guard() -> None:
            while not self._ended.wait(_BEAT_SECONDS):
                self._passes_missed += 1
                if self._passes_missed >= _LOST_BEATS:
                    self._exit(f"the store has not answered for {_LOST_BEATS} s, nor has {self._keeper} that keeps it")

        threading.Thread(target=watch, daemon=True, name="adpsgd-watch").start()
        threading.Thread(target=guard, daemon=True, name="adpsgd-guard").start()


def _attempt(store: dist.Store, rank: int, size: int, timeout_seconds: float) -> str:
    """A name for this attempt that all learners know; what one before it has left in the store lies under another.

    torchrun's restarts may keep the store, and on several nodes do not count alike. So learner 0 draws a name, and hands it
    to each learner that shows a token drawn just now.

    :raises AdpsgdError: naming the learners that have not come.
    """
    token = uuid.uuid4().hex
    if rank:
        store.set(f"hello/{rank}", token)
        name = store.get(f"welcome/{token}").decode()
        store.set(f"{name}/joined/{rank}", "")
        return name
    until = time.monotonic() + timeout_seconds
    missing = list(range(1, size))
    while missing:
        if time.monotonic() > until:
            raise AdpsgdError(f"learners {missing} have not come within {timeout_seconds:.0f} s")
        for other in missing:
            if store.check([f"hello/{other}"]):
                store.set(f"welcome/{store.get(f'hello/{other}').decode()}", token)
        time.sleep(0.01)
        missing = [other for other in missing if not store.check([f"{token}/joined/{other}"])]
    return token
