"""Run a function as several learners, each a process of its own, as torchrun would."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # read by torch in the server below; a pool of threads would not survive the fork
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed", "adpsgd", "pytest"]
)  # imported once for all learners


def _learner(function: Callable[..., Any], rank: int, errors: str, environment: dict[str, str], *rest: Any) -> None:
    results, arguments = rest
    with open(errors, "w") as file:
        os.dup2(file.fileno(), 2)
    os.environ.update(environment, RANK=str(rank))
    results.put((rank, function(rank, *arguments)))


class Learners:
    """Running learners: their processes, the queue their results come by, what each has written to stderr."""

    def __init__(self, function: Callable[..., Any], learners: int, *arguments: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = {
            "WORLD_SIZE": str(learners),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        self.results: Queue = _CONTEXT.Queue()
        self._errors = [Path(tempfile.mkstemp(suffix=f".learner-{rank}")[1]) for rank in range(learners)]
        self.processes = [
            _CONTEXT.Process(
                target=_learner,
                args=(function, rank, str(self._errors[rank]), environment, self.results, arguments),
                daemon=True,
            )
            for rank in range(learners)
        ]
        for process in self.processes:
            process.start()

    def __enter__(self) -> Learners:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for path in self._errors:
            path.unlink()

    def errors(self, rank: int) -> str:
        return self._errors[rank].read_text()


def run(function: Callable[..., Any], learners: int, *arguments: Any, timeout: float = 100) -> list[Any]:
    """Run ``function(rank, *arguments)`` as so many learners; return what each returned, by rank."""
    with Learners(function, learners, *arguments) as running:
        found: dict[int, Any] = {}
        end = time.monotonic() + timeout
        while len(found) < learners:
            failed = [rank for rank, process in enumerate(running.processes) if process.exitcode not in (None, 0)]
            if failed or time.monotonic() > end:
                texts = "\n".join(f"learner {rank}: {running.errors(rank)[-1500:]}" for rank in range(learners))
                raise AssertionError(f"only learners {sorted(found)} have ended in order; failed: {failed}\n{texts}")
            with contextlib.suppress(queue.Empty):
                rank, result = running.results.get(timeout=0.5)
                found[rank] = result
        for process in running.processes:
            process.join(timeout)
            assert process.exitcode == 0
    return [found[rank] for rank in range(learners)]
