"""The strategies with real processes, held against their equations."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import adpsgd
from adpsgd.strategies import RingAveraging
from adpsgd.topology import mixing_matrix, permuted_ring

ASYNCHRONOUS = ["adpsgd-fixed", "adpsgd-random"]


def _problem() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(203, 6, generator=generator)
    return inputs, inputs[:, :3].argmax(1)


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.5, weight_decay=1e-3)


@pytest.mark.parametrize("strategy", sorted(adpsgd.STRATEGIES))
def test_one_learner_is_plain_sgd_bit_by_bit(strategy: str) -> None:
    inputs, targets = _problem()
    model, reference = _model(), _model()
    learner = adpsgd.Learner(model, _sgd, adpsgd.strategy(strategy, 1), adpsgd.World.join())
    optimizer = _sgd(list(reference.parameters()))
    for batch in learner.work(0, len(inputs), 16, seed=4):
        loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        loss.backward()
        learner.step(float(loss.detach()), len(batch))
        optimizer.zero_grad()
        nn.functional.cross_entropy(reference(inputs[batch]), targets[batch]).backward()
        optimizer.step()
    assert learner.steps == 13
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def _beside_ddp(rank: int) -> float:
    inputs, targets = _problem()
    world = adpsgd.World.join()
    model, reference = _model(), _model()
    learner = adpsgd.Learner(model, _sgd, adpsgd.strategy("allreduce", 1), world)
    parallel = DistributedDataParallel(reference)
    optimizer = _sgd(list(parallel.parameters()))
    worst = 0.0
    for epoch in range(2):
        for batch in learner.work(epoch, 192, 16, seed=4):  # a multiple: DDP knows no smaller last batch
            loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            learner.step(float(loss.detach()), len(batch))
            optimizer.zero_grad()
            nn.functional.cross_entropy(parallel(inputs[batch]), targets[batch]).backward()
            optimizer.step()
            theirs = torch.cat([p.detach().flatten() for p in reference.parameters()])
            worst = max(worst, float((learner.flat.values - theirs).abs().max()))
    world.leave()
    return worst


def test_allreduce_is_distributed_data_parallel_step_by_step() -> None:
    assert max(run(_beside_ddp, 2)) < 1e-6


def _claims(rank: int, strategy: str) -> tuple[list[list[int]], int]:
    world = adpsgd.World.join()
    model = nn.Linear(2, 1)
    learner = adpsgd.Learner(model, _sgd, adpsgd.strategy(strategy, 1), world)
    epochs = []
    for epoch in range(2):
        mine: list[int] = []
        for batch in learner.work(epoch, 203, 8, seed=1):
            if rank == 0:
                time.sleep(0.02)
            model(torch.zeros(len(batch), 2)).sum().backward()
            learner.step(0.0, len(batch))
            mine += batch.tolist()
        epochs.append(mine)
    world.leave()
    return epochs, learner.steps


@pytest.mark.parametrize("strategy", sorted(adpsgd.STRATEGIES))
def test_every_sample_goes_to_one_learner_once_an_epoch(strategy: str) -> None:
    results = run(_claims, 3, strategy)
    for epoch in range(2):
        assert sorted(sample for claims, _ in results for sample in claims[epoch]) == list(range(203))
    steps = [steps for _, steps in results]
    if strategy == "allreduce":
        assert len(set(steps)) == 1
    else:
        assert steps[0] < min(steps[1:])  # the slow one has claimed less


def _consensus(rank: int, strategy: str) -> tuple[list[float], list[float], int]:
    world = adpsgd.World.join()
    model = nn.Linear(10, 1, bias=False)
    learner = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.0), adpsgd.strategy(strategy, 5), world)
    learner.flat.values.copy_(torch.randn(10, generator=torch.Generator().manual_seed(rank)))
    before = learner.flat.values.tolist()
    for batch in learner.work(0, 60, 4, seed=1):
        model(torch.ones(len(batch), 10)).sum().backward()
        learner.step(0.0, len(batch))
    world.leave()
    return before, learner.flat.values.tolist(), learner.strategy.rounds


@pytest.mark.parametrize("strategy", ASYNCHRONOUS)
@pytest.mark.parametrize("learners", [2, 3, 4])
def test_without_gradients_the_models_follow_the_product_of_the_mixing_matrices(strategy: str, learners: int) -> None:
    results = run(_consensus, learners, strategy)
    before, after = (np.array([result[i] for result in results]) for i in (0, 1))
    [rounds] = {result[2] for result in results}
    assert rounds > 0
    expected = before
    for number in range(rounds):
        order = np.arange(learners) if strategy == "adpsgd-fixed" else permuted_ring(5, number, learners)
        expected = mixing_matrix(order) @ expected
    np.testing.assert_allclose(after, expected, atol=1e-5)
    np.testing.assert_allclose(after.mean(0), before.mean(0), atol=1e-6)


class _SlowMixing(RingAveraging):
    """Takes its time between the exchange and its outcome, while gradient steps go on."""

    def _difference(self, arrivals: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(0.05)
        return super()._difference(arrivals)


def _account(rank: int) -> tuple[float, float, int]:
    world = adpsgd.World.join()
    model = nn.Linear(4, 1, bias=False)
    mixing = _SlowMixing(lambda number, learners: permuted_ring(1, number, learners))
    learner = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.5), mixing, world)
    before = float(learner.flat.values.double().sum())
    for batch in learner.work(0, 200, 2, seed=1):
        (model(torch.full((1, 4), rank + 1.0)).sum()).backward()  # a gradient of rank + 1 for every weight
        learner.step(0.0, len(batch))
        time.sleep(0.004)
    world.leave()
    return before, float(learner.flat.values.double().sum()), learner.steps


def test_steps_made_during_a_slow_exchange_are_not_lost() -> None:
    """The sum over learners of w falls by lr times the sum of all gradients, whatever mixing did meanwhile."""
    results = run(_account, 3)
    moved = sum(after - before for before, after, _ in results)
    expected = -sum(0.5 * 4 * (rank + 1) * steps for rank, (_, _, steps) in enumerate(results))
    assert sum(steps for _, _, steps in results) == 100
    assert moved == pytest.approx(expected, rel=1e-5)


def _train(rank: int, folder: str, epochs: int) -> list[float]:
    inputs, targets = _problem()
    world = adpsgd.World.join()
    model = _model()
    learner = adpsgd.Learner(model, _sgd, adpsgd.strategy("allreduce", 1), world)
    checkpoints = adpsgd.Checkpoints(Path(folder), world)
    newest = checkpoints.newest()
    if newest is not None:
        learner.restore(newest[1])
    for epoch in range(newest[0] if newest else 0, epochs):
        for batch in learner.work(epoch, len(inputs), 8, seed=2):
            loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            learner.step(float(loss.detach()), len(batch))
        checkpoints.save(epoch + 1, learner.state(), {"note": epoch})
    world.leave()
    return learner.flat.values.tolist()


def test_a_resumed_run_equals_an_undisturbed_one_bit_by_bit(tmp_path: Path) -> None:
    whole = run(_train, 2, str(tmp_path / "whole"), 4)
    run(_train, 2, str(tmp_path / "parts"), 2)
    (tmp_path / "parts" / "epoch-0003").mkdir()  # a checkpoint that was never completed does not count
    resumed = run(_train, 2, str(tmp_path / "parts"), 4)
    assert resumed == whole
    assert sorted(place.name for place in (tmp_path / "whole").iterdir()) == ["epoch-0003", "epoch-0004"]
    with pytest.raises(adpsgd.AdpsgdError, match="written by 2 learners, this run has 1"):
        adpsgd.Checkpoints(tmp_path / "whole", adpsgd.World.join()).newest()


def _endless(rank: int, strategy: str, folder: str) -> None:
    world = adpsgd.World.join(timeout_seconds=20)
    model = nn.Linear(200_000, 4)
    learner = adpsgd.Learner(model, _sgd, adpsgd.strategy(strategy, 1), world)
    Path(folder, f"ready-{rank}").touch()
    try:
        for batch in learner.work(0, 10_000_000, 1, seed=1):
            model(torch.zeros(1, 200_000)).sum().backward()
            learner.step(0.0, len(batch))
    except (adpsgd.AdpsgdError, RuntimeError) as error:
        world.abandon(str(error))


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random"])
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGSTOP])
def test_the_others_end_when_a_learner_dies_or_hangs(strategy: str, death: signal.Signals, tmp_path: Path) -> None:
    processes, _ = start(_endless, 3, strategy, str(tmp_path))
    try:
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.1)
        time.sleep(0.5)
        os.kill(processes[2].pid, death)
        began = time.monotonic()
        for process in processes[:2]:
            process.join(60)
            assert process.exitcode not in (None, 0)
        assert time.monotonic() - began < 60
    finally:
        for process in processes:
            process.kill()


def _differing(rank: int) -> str:
    world = adpsgd.World.join()
    try:
        adpsgd.Learner(nn.Linear(3 + rank, 1), _sgd, adpsgd.strategy("allreduce", 1), world)
    except adpsgd.AdpsgdError as error:
        return str(error)
    finally:
        world.barrier()
    return ""


def test_learners_with_different_models_refuse_to_start() -> None:
    for rank, message in enumerate(run(_differing, 2)):
        assert message.startswith(f"learner {rank} and learner {1 - rank} differ: parameters")


def test_steps_that_are_not_finite_are_left_out_and_end_training_when_they_go_on(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    log = tmp_path / "log.jsonl"
    learner = adpsgd.Learner(model, _sgd, adpsgd.strategy("allreduce", 1), adpsgd.World.join(), max_skipped=3, telemetry=log)
    before = learner.flat.values.clone()
    work = learner.work(0, 100, 1, seed=1)
    next(work)
    (model(torch.ones(1, 2)) * float("nan")).sum().backward()
    learner.step(float("nan"), 1)
    assert learner.skipped == 1
    assert torch.equal(learner.flat.values, before)
    assert json.loads(log.read_text())["loss"] is None
    with pytest.raises(adpsgd.AdpsgdError, match="3 steps in a row were not finite"):
        for _ in work:
            learner.step(float("inf"), 1)


def test_a_batch_that_is_not_stepped_is_an_error() -> None:
    learner = adpsgd.Learner(nn.Linear(2, 1), _sgd, adpsgd.strategy("allreduce", 1), adpsgd.World.join())
    work = learner.work(0, 10, 2, seed=1)
    next(work)
    with pytest.raises(adpsgd.AdpsgdError, match=r"step\(\) was not called"):
        next(work)


def test_an_unknown_strategy_is_refused_by_name() -> None:
    with pytest.raises(adpsgd.AdpsgdError, match="unknown strategy 'gossip'; known: allreduce, "):
        adpsgd.strategy("gossip", 1)
