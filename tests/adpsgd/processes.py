"""Run a function as several learners, each a process of its own, as torchrun would."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.queues import Queue
from typing import Any

_CONTEXT = multiprocessing.get_context("spawn")


def _learner(function: Callable[..., Any], rank: int, learners: int, port: int, results: Queue, arguments: tuple) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(learners), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1"
    )
    import torch

    torch.set_num_threads(1)
    results.put((rank, function(rank, *arguments)))


def start(function: Callable[..., Any], learners: int, *arguments: Any) -> tuple[list, Queue]:
    """Start the learners; return their processes and the queue their results come by."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = _CONTEXT.Queue()
    processes = [
        _CONTEXT.Process(target=_learner, args=(function, rank, learners, port, results, arguments)) for rank in range(learners)
    ]
    for process in processes:
        process.start()
    return processes, results


def run(function: Callable[..., Any], learners: int, *arguments: Any, timeout: float = 100) -> list[Any]:
    """Run ``function(rank, *arguments)`` as so many learners; return what each returned, by rank."""
    processes, results = start(function, learners, *arguments)
    try:
        found = dict(results.get(timeout=timeout) for _ in processes)
        for process in processes:
            process.join(timeout)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    return [found[rank] for rank in range(learners)]
