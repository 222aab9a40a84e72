"""Work, gradients, telemetry, checkpoints."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run
from test_strategies import classify, perceptron, sgd
from torch import nn

import adpsgd

SOME = ["allreduce", "dpsgd", "adpsgd-random", "delay-by-one", "hierarchical,group_size=1", "local-sgd,period=3"]


def _alone(module: nn.Module, **options: object) -> adpsgd.Learner:
    return adpsgd.Learner(module, sgd, adpsgd.strategy("allreduce", 1), adpsgd.World.join(), **options)  # type: ignore[arg-type]


def _claims(rank: int, strategy: str) -> tuple[list[list[int]], int]:
    with adpsgd.World.join() as world:
        model = nn.Linear(2, 1)
        learner = adpsgd.Learner(model, sgd, adpsgd.strategy(strategy, 1), world, slow={0: 5.0})
        epochs = []
        while learner.epoch < 2:
            mine: list[int] = []
            for batch in learner.work(203, 8, seed=1):
                time.sleep(0.005)
                learner.backward(model(torch.zeros(len(batch), 2)).sum(), len(batch))
                learner.step()
                mine += batch.tolist()
            epochs.append(mine)
        return epochs, learner.steps


@pytest.mark.parametrize("strategy", [*SOME, "delay-by-one,stale_gradient=true"])
def test_every_sample_goes_to_one_learner_once_an_epoch(strategy: str) -> None:
    """26 blocks for 3 learners, one of them five times slower."""
    results = run(_claims, 3, strategy)
    for epoch in range(2):
        assert sorted(sample for claims, _ in results for sample in claims[epoch]) == list(range(203))
    steps = [steps for _, steps in results]
    if "adpsgd" in strategy or "hierarchical" in strategy:
        assert steps[0] < min(steps[1:]) / 2  # the slow one has claimed less
    else:
        assert len(set(steps)) == 1


def _in_turn(rank: int) -> list[int]:
    with adpsgd.World.join() as world:
        counts = []
        for strategy in ("adpsgd-random", "hierarchical,group_size=2", "adpsgd-fixed"):
            model = nn.Linear(2, 1)
            learner = adpsgd.Learner(model, sgd, adpsgd.strategy(strategy, 1), world)
            mine = 0
            for batch in learner.work(50, 2, seed=1):
                learner.backward(model(torch.zeros(len(batch), 2)).sum(), len(batch))
                learner.step()
                mine += len(batch)
            counts.append(mine)
        return counts


def test_several_trainings_in_one_process_do_not_meet() -> None:
    results = np.array(run(_in_turn, 4))
    assert results.sum(0).tolist() == [50, 50, 50]


def _halted(rank: int, strategy: str, folder: str, pause: bool) -> tuple[list[list[int]], bool]:
    """Learner 1 gets a signal, or learner 0's time to pause comes, in the middle of the first epoch."""
    with adpsgd.World.join() as world:
        world.stop_on_signals()
        model = nn.Linear(2, 1)
        learner = adpsgd.Learner(model, sgd, adpsgd.strategy(strategy, 1), world)
        checkpoints = adpsgd.Checkpoints(Path(folder), learner, {})
        resumed = checkpoints.resume() is not None
        pieces = []
        while learner.epoch < 1 and not learner.stopped:
            mine: list[int] = []
            for batch in learner.work(403, 4, seed=1, pause_seconds=0.1 if pause else None):
                if not pause and not resumed and rank == 1 and len(mine) >= 40:
                    os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.004 * (1 + rank))
                learner.backward(model(torch.zeros(len(batch), 2)).sum(), len(batch))
                learner.step()
                mine += batch.tolist()
            checkpoints.save({})
            pieces.append(mine)
        return pieces, learner.stopped


@pytest.mark.parametrize("strategy", [*SOME, "hierarchical,group_size=2", "dpsgd,topology=matching"])
def test_a_signal_to_one_learner_halts_all_and_the_rest_of_the_epoch_is_done_after_a_restart(
    strategy: str, tmp_path: Path
) -> None:
    first = run(_halted, 4, strategy, str(tmp_path), False)
    second = run(_halted, 4, strategy, str(tmp_path), False)
    assert all(stopped for _, stopped in first)
    assert not any(stopped for _, stopped in second)
    done = sorted(sample for pieces, _ in first for piece in pieces for sample in piece)
    assert 0 < len(done) < 403
    rest = [sample for pieces, _ in second for piece in pieces for sample in piece]
    assert sorted(done + rest) == list(range(403))


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random"])
def test_pauses_for_checkpoints_leave_no_sample_out(strategy: str, tmp_path: Path) -> None:
    results = run(_halted, 3, strategy, str(tmp_path), True)
    assert all(len(pieces) > 1 and not stopped for pieces, stopped in results)
    assert sorted(sample for pieces, _ in results for piece in pieces for sample in piece) == list(range(403))


def _trained(rank: int, folder: str, epochs: int, strategy: str, mix_momentum: bool) -> list[float]:
    inputs, targets = classify()
    with adpsgd.World.join() as world:
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
        learner = adpsgd.Learner(model, sgd, adpsgd.strategy(strategy, 1), world, mix_momentum=mix_momentum)
        torch.manual_seed(rank)
        checkpoints = adpsgd.Checkpoints(Path(folder), learner, {"size": 8})
        shared = checkpoints.resume() or {"note": 0}
        assert shared["note"] == learner.epoch
        while learner.epoch < epochs:
            for batch in learner.work(len(inputs), 8, seed=2):
                learner.backward(nn.functional.cross_entropy(model(inputs[batch]), targets[batch]), len(batch))
                learner.step()
            checkpoints.save({"note": learner.epoch})
        return [*learner.flat.values.tolist(), *model[1].running_mean.tolist(), *model[1].running_var.tolist()]


@pytest.mark.parametrize(
    ("strategy", "mix_momentum"),
    [("allreduce", False), ("dpsgd,topology=permuted-ring", True), ("delay-by-one", False), ("local-sgd,period=4", True)],
)
def test_a_resumed_run_equals_an_undisturbed_one_bit_by_bit(strategy: str, mix_momentum: bool, tmp_path: Path) -> None:
    whole = run(_trained, 3, str(tmp_path / "whole"), 4, strategy, mix_momentum)
    run(_trained, 3, str(tmp_path / "parts"), 2, strategy, mix_momentum)
    (tmp_path / "parts" / "epoch-0003-block-00000000").mkdir()  # a checkpoint that was never completed does not count
    resumed = run(_trained, 3, str(tmp_path / "parts"), 4, strategy, mix_momentum)
    assert resumed == whole
    names = sorted(place.name for place in (tmp_path / "whole").iterdir())
    assert names == ["epoch-0003-block-00000000", "epoch-0004-block-00000000"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    run(_trained, 2, str(tmp_path), 1, "allreduce", False)
    learner = _alone(perceptron())
    with pytest.raises(adpsgd.AdpsgdError, match="written by 2 learners, this run has 1"):
        adpsgd.Checkpoints(tmp_path, learner, {"size": 8}).resume()
    adpsgd.Checkpoints(tmp_path / "own", learner, {"size": 8}).save()
    with pytest.raises(adpsgd.AdpsgdError, match=r"belongs to another configuration \(size: 8, now 9\); remove"):
        adpsgd.Checkpoints(tmp_path / "own", learner, {"size": 9}).resume()
    with pytest.raises(adpsgd.AdpsgdError, match="the checkpoint holds 83 parameters, the model has 3"):
        adpsgd.Checkpoints(tmp_path / "own", _alone(nn.Linear(2, 1)), {"size": 8}).resume()


def _averages(rank: int) -> tuple[list[float], float, list[float]]:
    with adpsgd.World.join() as world:
        model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.BatchNorm1d(2, affine=False))
        learner = adpsgd.Learner(model, sgd, adpsgd.strategy("adpsgd-fixed", 1), world)
        learner.flat.values.copy_(torch.tensor([1.0, 2.0]) * (rank + 1))
        model[1].running_mean.fill_(rank)
        with learner.averaged() as distance:
            inside = [*learner.flat.values.tolist(), *model[1].running_mean.tolist()]
        return inside, distance, [*learner.flat.values.tolist(), *model[1].running_mean.tolist()]


def test_the_average_is_over_weights_and_batch_norms_statistics() -> None:
    """Of (1, 2) (r + 1), r = 0, 1, 2: mean (2, 4); squared distances 5, 0, 5."""
    for rank, (inside, distance, after) in enumerate(run(_averages, 3)):
        assert inside == [2, 4, 1, 1]
        assert distance == pytest.approx(math.sqrt(10 / 3))
        assert after == [rank + 1, 2 * (rank + 1), rank, rank]


def _differing(rank: int, what: str) -> str:
    with adpsgd.World.join() as world:
        try:
            size, rate, seed = 3, 0.1, 1
            if what == "parameters":
                size += rank
            elif what == "optimizer":
                rate += rank
            else:
                seed += rank
            make = lambda p: torch.optim.SGD(p, lr=rate)  # noqa: E731
            adpsgd.Learner(nn.Linear(size, 1), make, adpsgd.strategy("adpsgd-random", seed), world)
        except adpsgd.AdpsgdError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("what", ["parameters", "optimizer", "strategy"])
def test_learners_that_differ_refuse_to_start(what: str) -> None:
    for rank, message in enumerate(run(_differing, 2, what)):
        assert message.startswith(f"learner {rank} and learner {1 - rank} differ: {what}: ")


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(0, 100))
@settings(deadline=None, max_examples=30)
def test_a_batch_in_micro_batches_has_the_gradient_of_the_whole(sizes: list[int], seed: int) -> None:
    inputs = torch.randn(sum(sizes), 6, generator=torch.Generator().manual_seed(seed))
    targets = inputs[:, :3].argmax(1)
    model, reference = perceptron(), perceptron()
    learner = _alone(model)
    next(learner.work(sum(sizes), sum(sizes), seed=1))
    for part in torch.arange(sum(sizes)).split(sizes):
        learner.backward(nn.functional.cross_entropy(model(inputs[part]), targets[part]), len(part))
    nn.functional.cross_entropy(reference(inputs), targets).backward()
    expected = torch.cat([p.grad.flatten() for p in reference.parameters()])  # type: ignore[union-attr]
    torch.testing.assert_close(learner.flat.gradients, expected, rtol=1e-4, atol=1e-6)


def test_clipping_bounds_the_whole_gradient_once() -> None:
    model = nn.Linear(3, 1, bias=False)
    learner = adpsgd.Learner(
        model, lambda p: torch.optim.SGD(p, lr=1.0), adpsgd.strategy("allreduce", 1), adpsgd.World.join(), clip_norm=0.5
    )
    before = learner.flat.values.clone()
    for batch in learner.work(1, 1, seed=1):
        learner.backward((model(torch.tensor([[3.0, 0.0, 4.0]]))).sum(), len(batch))
        learner.step()
    torch.testing.assert_close(before - learner.flat.values, torch.tensor([0.3, 0.0, 0.4]))


def test_an_unused_parameter_keeps_its_place_and_loaded_weights_stay() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.unused, self.last = (nn.Linear(1, 1, bias=False) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x))

    model = Two()
    learner = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.5), adpsgd.strategy("allreduce", 1), adpsgd.World.join())
    loaded = {"first.weight": 1.0, "unused.weight": 7.0, "last.weight": 2.0}
    model.load_state_dict({name: torch.full((1, 1), value) for name, value in loaded.items()})
    for batch in learner.work(1, 1, seed=1):
        learner.backward(model(torch.ones(1, 1)).sum(), len(batch))
        assert learner.flat.gradients.tolist() == [2, 0, 1]
        learner.step()
    assert learner.flat.values.tolist() == [0, 7, 1.5]


def test_a_compiled_model_trains_like_a_plain_one() -> None:
    inputs, targets = classify()
    results = []
    for compiled in (False, True):
        model = perceptron()
        learner = _alone(model)
        call = torch.compile(model, backend="aot_eager") if compiled else model
        for batch in learner.work(len(inputs), 16, seed=4):
            learner.backward(nn.functional.cross_entropy(call(inputs[batch]), targets[batch]), len(batch))
            learner.step()
        results.append(learner.flat.values.clone())
    torch.testing.assert_close(*results)


def test_steps_that_are_not_finite_are_left_out_and_end_training_when_they_go_on(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    learner = _alone(model, max_skipped=3, telemetry=adpsgd.Telemetry(tmp_path / "log.jsonl"))
    before = learner.flat.values.clone()
    work = learner.work(100, 1, seed=1)
    first = next(work)
    learner.backward((model(torch.ones(1, 2)) * float("nan")).sum(), 1)
    learner.step()
    assert learner.skipped == 1
    assert torch.equal(learner.flat.values, before)
    assert json.loads((tmp_path / "log.jsonl").read_text())["loss"] is None
    with pytest.raises(adpsgd.AdpsgdError, match=r"learner 0: 3 steps in a row were not finite .* samples \[\d+\]"):
        for _ in work:
            learner.backward((model(torch.ones(1, 2)) * float("inf")).sum(), 1)
            learner.step()
    assert len(first) == 1


def test_a_batch_that_is_not_stepped_or_not_computed_is_an_error() -> None:
    work = (learner := _alone(nn.Linear(2, 1))).work(10, 2, seed=1)
    next(work)
    with pytest.raises(adpsgd.AdpsgdError, match=r"step\(\) needs gradients"):
        learner.step()
    with pytest.raises(adpsgd.AdpsgdError, match=r"step\(\) was not called"):
        next(work)
    with pytest.raises(adpsgd.AdpsgdError, match="there is no work: 0 samples"):
        next(learner.work(0, 2, seed=1))


def test_only_sgd_has_a_momentum_to_mix() -> None:
    with pytest.raises(adpsgd.AdpsgdError, match="only SGD with momentum"):
        adpsgd.Learner(
            nn.Linear(2, 1), torch.optim.Adam, adpsgd.strategy("allreduce", 1), adpsgd.World.join(), mix_momentum=True
        )


def _told(rank: int, folder: str) -> None:
    with adpsgd.World.join() as world:
        model = nn.Linear(2, 1)
        telemetry = adpsgd.Telemetry(Path(folder) / f"{rank}.jsonl", Path(folder) / f"board-{rank}")
        schedule = adpsgd.Schedule(0.1, 0.2, 1.0)
        slow, link = {1: 4.0}, {0: 0.001}
        learner = adpsgd.Learner(
            model, sgd, adpsgd.strategy("adpsgd-random", 1), world, schedule, slow=slow, slow_link=link, telemetry=telemetry
        )
        for batch in learner.work(120, 2, seed=1):
            time.sleep(0.01)
            learner.backward(model(torch.zeros(len(batch), 2)).sum(), len(batch))
            learner.step()
        with learner.averaged():
            pass
        telemetry.close()


def test_telemetry_tells_of_rates_ages_stragglers_and_slow_links(tmp_path: Path) -> None:
    run(_told, 2, str(tmp_path))
    logs = [[json.loads(line) for line in (tmp_path / f"{rank}.jsonl").read_text().splitlines()] for rank in range(2)]
    steps = [log[:-1] for log in logs]
    for log, lines in zip(logs, steps, strict=True):
        assert log[-1]["consensus_distance"] >= 0
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
        for line in lines:
            assert line["lr"] == pytest.approx(0.1 + 0.1 * line["epoch"], abs=1e-6)
    assert sum(line["samples"] for lines in steps for line in lines) == 120
    median = lambda lines, name: float(np.median([line[name] for line in lines]))  # noqa: E731
    assert median(steps[1], "compute_seconds") > 3 * median(steps[0], "compute_seconds")
    assert median(steps[1], "gradient_age") >= 2  # four fast steps go on beside a slow one
    assert median(steps[0], "gradient_age") <= 1
    rounds, mixing = steps[0][-1]["rounds"], steps[0][-1]["mixing_seconds"]
    assert mixing >= 0.9 * rounds * 16 / 1000  # messages of four numbers at 1 kB/s
    assert sum(line["staleness"] for line in steps[0]) <= rounds
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "board-0"))
    board.Reload()
    assert [event.value for event in board.Scalars("learner/samples")] == [line["samples"] for line in steps[0]]


def test_the_example_trains_stops_and_goes_on(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(root / "examples" / "train.py"), "--checkpoints", str(tmp_path), "--epochs", "6"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    assert len((root / "examples" / "train.py").read_text().splitlines()) < 60
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    first.stdout.readline()  # an epoch is done
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert first.returncode != 0
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert again.returncode == 0, again.stderr[-2000:]
    lines = again.stdout.splitlines()
    assert not lines[0].startswith("epoch 1.00")
    assert lines[-1].startswith("epoch 6.00: 9")  # percent right
