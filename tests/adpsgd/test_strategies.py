"""The strategies with real processes, held against their equations."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from processes import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import adpsgd
from adpsgd.asynchronous import Adpsgd
from adpsgd.topology import permuted_ring

ALL = [*adpsgd.STRATEGIES, "delay-by-one,stale_gradient=true", "local-sgd,period=3", "adpsgd,topology=exponential"]
RATE, MOMENTUM, DECAY, BATCH, STEPS, LEARNERS = 0.1, 0.5, 1e-3, 2, 50, 4


def classify() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(203, 6, generator=generator)
    return inputs, inputs[:, :3].argmax(1)


def perceptron() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)


@pytest.mark.parametrize("mix_momentum", [False, True])
@pytest.mark.parametrize("strategy", ALL)
def test_one_learner_is_plain_sgd_bit_by_bit(strategy: str, mix_momentum: bool) -> None:
    inputs, targets = classify()
    model, reference = perceptron(), perceptron()
    world = adpsgd.World.join()
    learner = adpsgd.Learner(model, sgd, adpsgd.strategy(strategy, 1), world, mix_momentum=mix_momentum)
    optimizer = sgd(list(reference.parameters()))
    for batch in learner.work(len(inputs), 16, seed=4):
        learner.backward(nn.functional.cross_entropy(model(inputs[batch]), targets[batch]), len(batch))
        learner.step()
        optimizer.zero_grad()
        nn.functional.cross_entropy(reference(inputs[batch]), targets[batch]).backward()
        optimizer.step()
    assert learner.steps == 13
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def _beside_ddp(rank: int) -> float:
    inputs, targets = classify()
    worst = 0.0
    with adpsgd.World.join() as world:
        model, reference = perceptron(), perceptron()
        learner = adpsgd.Learner(model, sgd, adpsgd.strategy("allreduce", 1), world)
        parallel = DistributedDataParallel(reference)
        optimizer = sgd(list(parallel.parameters()))
        while learner.epoch < 2:
            for batch in learner.work(192, 16, seed=4):  # a multiple: DDP knows no smaller last batch
                learner.backward(nn.functional.cross_entropy(model(inputs[batch]), targets[batch]), len(batch))
                learner.step()
                optimizer.zero_grad()
                nn.functional.cross_entropy(parallel(inputs[batch]), targets[batch]).backward()
                optimizer.step()
                theirs = torch.cat([p.detach().flatten() for p in reference.parameters()])
                worst = max(worst, float((learner.flat.values - theirs).abs().max()))
        del parallel  # as the last owner of the process group its destructor may hang
    return worst


def test_allreduce_is_distributed_data_parallel_step_by_step() -> None:
    assert max(run(_beside_ddp, 2)) < 1e-6


class Quadratic(nn.Module):
    """Half the squared error of a linear prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5))

    def forward(self, batch: np.ndarray) -> torch.Tensor:
        x = _inputs(batch, 6).to(self.weight.dtype)
        return 0.5 * (x[:, :5] @ self.weight - x[:, 5]).square().mean()


class Lstm(nn.Module):
    """A bidirectional LSTM that predicts its last input's last element."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.lstm = nn.LSTM(3, 4, bidirectional=True, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, batch: np.ndarray) -> torch.Tensor:
        x = _inputs(batch, 15).view(-1, 5, 3).to(self.out.weight.dtype)
        return (self.out(self.lstm(x)[0][:, -1])[:, 0] - x[:, -1, 2]).square().mean()


def _inputs(batch: np.ndarray, dims: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(8).standard_normal((BATCH * LEARNERS * STEPS, dims))[batch])


def _start(rank: int, size: int) -> np.ndarray:
    return (0.3 * np.random.default_rng([6, rank]).standard_normal(size)).astype(np.float32)


def _trace(rank: int, strategy: str, make: Callable[[], nn.Module]) -> np.ndarray:
    with adpsgd.World.join() as world:
        module = make()
        learner = adpsgd.Learner(module, sgd, adpsgd.strategy(strategy, 5), world)
        if "stale" not in strategy:
            learner.flat.values.copy_(torch.from_numpy(_start(rank, len(learner.flat.values))))
        trace = [learner.flat.values.numpy().copy()]
        for batch in learner.work(BATCH * LEARNERS * STEPS, BATCH, seed=7):
            learner.backward(module(batch), len(batch))
            learner.step()
            trace.append(learner.flat.values.numpy().copy())
    return np.stack(trace)


def _quadratic_gradient(weights: np.ndarray, batch: np.ndarray) -> np.ndarray:
    x = np.random.default_rng(8).standard_normal((BATCH * LEARNERS * STEPS, 6))[batch]
    return (x[:, :5] * (x[:, :5] @ weights - x[:, 5])[:, None]).mean(0)


def _lstm_gradient(weights: np.ndarray, batch: np.ndarray) -> np.ndarray:
    module = Lstm().double()
    nn.utils.vector_to_parameters(torch.from_numpy(weights), module.parameters())
    module(batch).backward()
    return torch.cat([p.grad.flatten() for p in module.parameters()]).numpy()


def _matrix(strategy: str, number: int) -> np.ndarray:
    """T_k, written out here by the definitions."""
    if strategy == "delay-by-one":
        return np.full((LEARNERS, LEARNERS), 1 / LEARNERS)
    if strategy.startswith("local-sgd"):
        return np.full((LEARNERS, LEARNERS), 1 / LEARNERS) if (number + 1) % 3 == 0 else np.eye(LEARNERS)
    ring = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3
    if strategy == "dpsgd":
        return ring
    order = np.random.default_rng([5, number]).permutation(LEARNERS)
    return ring[np.ix_(np.argsort(order), np.argsort(order))]


@pytest.mark.parametrize("strategy", ["dpsgd", "dpsgd,topology=permuted-ring", "delay-by-one", "local-sgd,period=3"])
@pytest.mark.parametrize(("make", "gradient"), [(Quadratic, _quadratic_gradient), (Lstm, _lstm_gradient)])
def test_synchronous_averaging_follows_its_matrix_equation(
    strategy: str, make: Callable[[], nn.Module], gradient: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    """W_{k+1} = W_k T_k - a V_k, V_k = m V_{k-1} + G(W_k); local-sgd averages after the step instead."""
    traces = np.stack(run(_trace, LEARNERS, strategy, make), -1).astype(float)  # (steps + 1, parameters, learners)
    order = np.random.default_rng([7, 0]).permutation(BATCH * LEARNERS * STEPS)
    weights, velocity = traces[0], np.zeros_like(traces[0])
    for step in range(STEPS):
        blocks = [order[(step * LEARNERS + rank) * BATCH :][:BATCH] for rank in range(LEARNERS)]
        gradients = np.stack([gradient(weights[:, rank], blocks[rank]) for rank in range(LEARNERS)], -1)
        velocity = MOMENTUM * velocity + gradients + DECAY * weights
        mixing = _matrix(strategy, step)
        late = strategy.startswith("local-sgd")
        weights = (weights - RATE * velocity) @ mixing if late else weights @ mixing - RATE * velocity
        np.testing.assert_allclose(traces[step + 1], weights, atol=1e-5, err_msg=f"step {step}")
    assert np.abs(weights - traces[0]).max() > 0.05


def test_a_stale_gradient_is_applied_one_step_late_by_all() -> None:
    """w_{k+1} = w_k - a v_k, v_k = m v_{k-1} + mean_l g_l(w_{k-1}); the last one at the end of the work."""
    traces = run(_trace, LEARNERS, "delay-by-one,stale_gradient=true", Quadratic)
    for trace in traces[1:]:
        np.testing.assert_array_equal(trace, traces[0])
    order = np.random.default_rng([7, 0]).permutation(BATCH * LEARNERS * STEPS)
    weights, velocity, late = traces[0][0].astype(float), np.zeros(5), None
    for step in range(STEPS):
        blocks = [order[(step * LEARNERS + rank) * BATCH :][:BATCH] for rank in range(LEARNERS)]
        now = np.mean([_quadratic_gradient(weights, block) for block in blocks], 0)
        if late is not None:
            velocity = MOMENTUM * velocity + late + DECAY * weights
            weights = weights - RATE * velocity
        late = now
        np.testing.assert_allclose(traces[0][step + 1], weights, atol=1e-5, err_msg=f"step {step}")


def _consensus(rank: int, strategy: str, mix_momentum: bool) -> tuple[list[float], list[float], int]:
    with adpsgd.World.join() as world:
        model = nn.Linear(10, 1, bias=False)
        make = lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.0 if not mix_momentum else 1.0)  # noqa: E731
        learner = adpsgd.Learner(model, make, adpsgd.strategy(strategy, 5), world, mix_momentum=mix_momentum)
        mixed = learner.flat.mixed
        mixed.copy_(torch.randn(len(mixed), generator=torch.Generator().manual_seed(rank)))
        before = mixed.tolist()
        for batch in learner.work(60, 4, seed=1):
            learner.backward(0 * model(torch.ones(len(batch), 10)).sum(), len(batch))
            learner.step()
        return before, mixed.tolist(), learner.strategy.rounds


def _follows_the_product(strategy: str, learners: int, mix_momentum: bool = False) -> None:
    results = run(_consensus, learners, strategy, mix_momentum)
    before, after = (np.array([result[i] for result in results]).T for i in (0, 1))
    [rounds] = {result[2] for result in results}
    topology = {"adpsgd-fixed": "fixed-ring", "adpsgd-random": "permuted-ring"}.get(strategy, strategy.partition("=")[2])
    expected = before
    for number in range(rounds):
        expected = expected @ adpsgd.TOPOLOGIES[topology](5, number, learners)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    np.testing.assert_allclose(after.mean(1), before.mean(1), atol=1e-6)
    if learners > 1:
        assert rounds > 0
        assert np.abs(after - before.mean(1)[:, None]).max() < np.abs(before - before.mean(1)[:, None]).max()


@pytest.mark.parametrize("strategy", ["adpsgd-fixed", "adpsgd-random"])
@pytest.mark.parametrize("learners", range(1, 10))
def test_without_gradients_rings_follow_the_product_of_their_mixing_matrices(strategy: str, learners: int) -> None:
    _follows_the_product(strategy, learners)


@pytest.mark.parametrize("topology", ["matching", "exponential", "full"])
@pytest.mark.parametrize("learners", [2, 3, 5])
def test_without_gradients_other_topologies_follow_the_product_too(topology: str, learners: int) -> None:
    _follows_the_product(f"adpsgd,topology={topology}", learners)


def test_momentum_is_mixed_like_the_weights_on_request() -> None:
    _follows_the_product("adpsgd-random", 3, mix_momentum=True)


class _SlowMixing(Adpsgd):
    """Takes its time between the exchange and its outcome, while gradient steps go on."""

    def _mixed(self, arrivals: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(0.05)
        return super()._mixed(arrivals)


def _account(rank: int, strategy: str) -> tuple[float, float, int]:
    with adpsgd.World.join() as world:
        model = nn.Linear(4, 1, bias=False)
        mixing = _SlowMixing(permuted_ring, 1) if strategy == "slow" else adpsgd.strategy(strategy, 1)
        learner = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.5), mixing, world)
        before = float(learner.flat.values.double().sum())
        for batch in learner.work(200, 2, seed=1):
            learner.backward(model(torch.full((1, 4), rank + 1.0)).sum(), len(batch))  # a gradient of rank + 1
            learner.step()
            time.sleep(0.004)
        return before, float(learner.flat.values.double().sum()), learner.steps


@pytest.mark.parametrize("strategy", ["slow", "adpsgd,topology=matching", "adpsgd,topology=exponential"])
def test_steps_made_during_an_exchange_are_not_lost(strategy: str) -> None:
    """The sum over learners of w falls by lr times the sum of all gradients, whatever mixing did meanwhile."""
    results = run(_account, 3, strategy)
    moved = sum(after - before for before, after, _ in results)
    expected = -sum(0.5 * 4 * (rank + 1) * steps for rank, (_, _, steps) in enumerate(results))
    assert sum(steps for _, _, steps in results) == 100
    assert moved == pytest.approx(expected, rel=1e-5)


def test_super_learners_step_as_one_and_lose_nothing() -> None:
    """Each group's gradients are 1.5 and 3.5 on average; its learners end with the same weights."""
    results = run(_account, 4, "hierarchical,group_size=2")
    assert results[0][1:] == results[1][1:]
    assert results[2][1:] == results[3][1:]
    assert results[0][2] + results[2][2] == 50
    moved = sum(results[rank][1] - results[rank][0] for rank in (0, 2))
    assert moved == pytest.approx(-0.5 * 4 * (1.5 * results[0][2] + 3.5 * results[2][2]), rel=1e-5)


def _refused_groups(rank: int) -> str:
    with adpsgd.World.join() as world:
        try:
            adpsgd.Learner(perceptron(), sgd, adpsgd.strategy("hierarchical,group_size=2", 1), world)
        except adpsgd.AdpsgdError as error:
            return str(error)
    return ""


def test_groups_must_divide_the_learners() -> None:
    assert run(_refused_groups, 3) == ["3 learners do not divide into groups of 2; choose another group_size"] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gossip", "unknown strategy 'gossip'; known: allreduce, "),
        ("allreduce,period=3", "strategy allreduce has no option 'period'; known: none"),
        ("local-sgd,K=3", "strategy local-sgd has no option 'K'; known: period"),
        ("local-sgd,period=0", "local-sgd needs a period of at least one step, not 0"),
        ("dpsgd,topology=star", "unknown topology 'star'; known: fixed-ring, "),
    ],
)
def test_unknown_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(adpsgd.AdpsgdError, match=message):
        adpsgd.strategy(text, 1)
