"""Learners that die or stop: the others end soon, name the culprit, and a restart goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from processes import Learners, run
from torch import nn

import adpsgd

_MEGABYTES = 20
_ELEMENTS = _MEGABYTES * 1_000_000 // 4


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def _endless(rank: int, strategy: str, folder: str) -> None:
    with adpsgd.World.join() as world:
        model = nn.Linear(_ELEMENTS, 1, bias=False)
        learner = adpsgd.Learner(model, _sgd, adpsgd.strategy(strategy, 1), world)
        work = learner.work(10_000_000, 1, seed=1)
        for number, batch in enumerate(work):
            learner.backward(model.weight[0, :10].sum(), len(batch))  # next to no computation: nearly all time is exchange
            learner.step()
            if number == 2:
                Path(folder, f"ready-{rank}").touch()


def _survivors_end(strategy: str, folder: Path, victim: int, death: signal.Signals, wait: float) -> None:
    folder.mkdir()
    with Learners(_endless, 3, strategy, str(folder)) as learners:
        until = time.monotonic() + 60
        while len(list(folder.iterdir())) < 3:
            assert time.monotonic() < until, [learners.errors(rank) for rank in range(3)]
            time.sleep(0.05)
        time.sleep(wait)
        os.kill(learners.processes[victim].pid, death)  # type: ignore[arg-type]
        began = time.monotonic()
        for rank in {0, 1, 2} - {victim}:
            learners.processes[rank].join(60)
            assert learners.processes[rank].exitcode == adpsgd.LOST, f"learner {rank} has not ended"
            assert f"learner {victim}" in learners.errors(rank).splitlines()[-1]
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("strategy", ["allreduce", "dpsgd", "adpsgd-fixed", "adpsgd-random", "delay-by-one"])
def test_kills_in_the_middle_of_exchanges_end_all_and_are_named(strategy: str, tmp_path: Path) -> None:
    """Four for each of five strategies, at random moments of a 20 MB exchange."""
    moments = random.Random(strategy)
    with ThreadPoolExecutor(4) as pool:  # most of the time is waiting
        kills = [(strategy, tmp_path / str(n), n % 3, signal.SIGKILL, moments.uniform(0, 0.3)) for n in range(4)]
        for kill in [pool.submit(_survivors_end, *arguments) for arguments in kills]:
            kill.result()


def test_a_stopped_learner_is_named_even_if_it_keeps_the_store(tmp_path: Path) -> None:
    stops = [("allreduce", 2), ("adpsgd-random", 2), ("adpsgd-random", 0)]
    with ThreadPoolExecutor(3) as pool:
        running = [
            pool.submit(_survivors_end, strategy, tmp_path / str(number), victim, signal.SIGSTOP, 0.1)
            for number, (strategy, victim) in enumerate(stops)
        ]
        for stop in running:
            stop.result()


def _failing(rank: int) -> None:
    with adpsgd.World.join() as world:
        learner = adpsgd.Learner(nn.Linear(2, 1), _sgd, adpsgd.strategy("adpsgd-random", 1), world)
        for batch in learner.work(10_000_000, 1, seed=1):
            if rank == 1 and learner.steps == 5:
                raise ValueError("sample 17 is broken")
            learner.backward(learner.flat.module(torch.zeros(len(batch), 2)).sum(), len(batch))
            learner.step()


def test_a_learners_own_error_reaches_all() -> None:
    with Learners(_failing, 3) as learners:
        for rank, process in enumerate(learners.processes):
            process.join(30)
            assert process.exitcode == adpsgd.LOST
            assert "ValueError: sample 17 is broken" in learners.errors(rank)
            if rank != 1:
                assert "learner 1 stopped" in learners.errors(rank)


_PROGRAM = """
import os, signal, sys
from pathlib import Path
import torch
from torch import nn
import adpsgd

folder, strategy, deadly = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "deadly"
torch.set_num_threads(1)
torch.manual_seed(1)
model = nn.Linear(6, 3)
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(203, 6, generator=generator)
targets = inputs[:, :3].argmax(1)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with adpsgd.World.join() as world:
    learner = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), adpsgd.strategy(strategy, 1), world)
    checkpoints = adpsgd.Checkpoints(folder / "checkpoints", learner, {})
    checkpoints.resume()
    while learner.epoch < 4:
        epoch, used = learner.epoch, []
        for batch in learner.work(203, 4, seed=2):
            if deadly and world.rank == 1 and attempt == epoch - 1 < 2 and len(used) > 20:
                os.kill(os.getpid(), signal.SIGKILL)
            learner.backward(nn.functional.cross_entropy(model(inputs[batch]), targets[batch]), len(batch))
            learner.step()
            used += batch.tolist()
        checkpoints.save()
        (folder / f"used-{epoch}-{world.rank}").write_text(" ".join(map(str, used)))
    with learner.averaged():
        torch.save(learner.flat.values.clone(), folder / f"final-{world.rank}.pt")
"""


def _launched(root: Path, folder: Path, strategy: str, mode: str) -> torch.Tensor:
    """Run the program under torchrun with two restarts: it kills itself in its first two attempts if deadly."""
    folder.mkdir()
    program = folder / "program.py"
    program.write_text(_PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    command += ["--monitor-interval", "0.2", str(program), str(folder), strategy, mode]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    for epoch in range(4):
        used = [int(word) for rank in range(2) for word in (folder / f"used-{epoch}-{rank}").read_text().split()]
        assert sorted(used) == list(range(203))
    final = torch.load(folder / "final-0.pt")
    assert torch.equal(final, torch.load(folder / "final-1.pt"))
    return final


def test_torchruns_restarts_go_on_by_themselves_and_end_as_an_undisturbed_run(root: Path, tmp_path: Path) -> None:
    undisturbed = _launched(root, tmp_path / "calm", "allreduce", "calm")
    assert torch.equal(_launched(root, tmp_path / "deadly", "allreduce", "deadly"), undisturbed)
    _launched(root, tmp_path / "asynchronous", "adpsgd-random", "deadly")


def _alone_with_a_store(rank: int) -> bool:
    with adpsgd.World.join() as world:
        time.sleep(3)  # beats go on while nothing is exchanged
        return world.size == 2


def test_a_quiet_run_is_not_taken_for_dead() -> None:
    assert run(_alone_with_a_store, 2) == [True, True]
