"""Mixtures against closed forms: densities, statistics, EM, growing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from local.hmm.gmm import Gmm, GmmStats, split_targets
from tests.hmm.planted import random_gmm

NO_FLOOR = torch.zeros(4)


def make(sizes: list[int], seed: int = 0) -> Gmm:
    return random_gmm(torch.tensor(sizes), 4, torch.Generator().manual_seed(seed))


def frames(count: int, seed: int = 1) -> Tensor:
    return 3 * torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def density(gmm: Gmm, pdf: int) -> MixtureSameFamily:
    """The pdf's mixture by torch's own distributions, in double precision."""
    first = int(gmm.sizes[:pdf].sum())
    mine = slice(first, first + int(gmm.sizes[pdf]))
    normal = Normal(gmm.means[mine].double(), gmm.variances[mine].double().sqrt())
    return MixtureSameFamily(Categorical(gmm.weights[mine].double()), Independent(normal, 1))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 17), min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 99))
def test_log_likelihoods_are_the_densities(sizes: list[int], count: int, seed: int) -> None:
    gmm, x = make(sizes, seed), frames(count, seed)
    expected = torch.stack([density(gmm, pdf).log_prob(x.double()) for pdf in range(len(sizes))], dim=1)
    found = gmm.log_likelihoods(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-4)


def test_one_gaussian_in_closed_form() -> None:
    gmm = Gmm(torch.ones(1), torch.tensor([[1.0, -2.0]]), torch.tensor([[4.0, 0.25]]), torch.tensor([1]))
    expected = -math.log(2 * math.pi) - 0.5 * math.log(4 * 0.25) - 0.5 * (2**2 / 4 + 1**2 / 0.25)
    assert float(gmm.log_likelihoods(torch.tensor([[3.0, -1.0]]))) == pytest.approx(expected, abs=1e-5)


def test_chosen_pdfs_in_the_order_asked_for() -> None:
    gmm, x = make([3, 1, 8, 2, 20]), frames(700)  # more frames than are scored at once
    pdfs = torch.tensor([4, 0, 3])
    torch.testing.assert_close(gmm.log_likelihoods(x, pdfs), gmm.log_likelihoods(x)[:, pdfs], rtol=1e-6, atol=1e-4)


def test_far_from_every_gaussian_nothing_underflows() -> None:
    gmm = make([3, 5])
    x = torch.full((1, 4), 300.0)
    expected = torch.stack([density(gmm, pdf).log_prob(x.double()) for pdf in range(2)], dim=1)
    torch.testing.assert_close(gmm.log_likelihoods(x).double(), expected, rtol=1e-5, atol=1e-3)


def test_statistics_are_sums_over_posteriors() -> None:
    gmm, x = make([3, 1, 2]), frames(50)
    pdf_ids = torch.arange(50) % 3
    stats = gmm.accumulate(x, pdf_ids)
    occupancy, first, second = torch.zeros(6), torch.zeros(6, 4), torch.zeros(6, 4)
    total = 0.0
    for row, pdf in zip(x.double(), pdf_ids.tolist(), strict=True):
        mixture, start = density(gmm, pdf), int(gmm.sizes[:pdf].sum())
        scores = mixture.component_distribution.log_prob(row) + mixture.mixture_distribution.logits
        for i, posterior in enumerate(scores.softmax(0)):
            occupancy[start + i] += posterior
            first[start + i] += posterior * row
            second[start + i] += posterior * row**2
        total += float(mixture.log_prob(row))
    torch.testing.assert_close(stats.occupancy.float(), occupancy, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(stats.first.float(), first, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(stats.second.float(), second, rtol=1e-4, atol=1e-3)
    assert stats.log_likelihood == pytest.approx(total, rel=1e-5)
    assert stats.frames == 50


def test_jobs_statistics_add_up() -> None:
    gmm, x = make([3, 1, 2]), frames(60)
    pdf_ids = torch.arange(60) % 3
    parts = gmm.accumulate(x[:17], pdf_ids[:17]) + gmm.accumulate(x[17:], pdf_ids[17:])
    whole = gmm.accumulate(x, pdf_ids)
    for name in ("occupancy", "first", "second"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-4, atol=1e-4)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-6)
    assert parts.frames == whole.frames


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 999))
def test_em_never_lowers_the_likelihood(sizes: list[int], seed: int) -> None:
    gmm, x = make(sizes, seed), frames(400, seed + 1)
    pdf_ids = torch.arange(400) % len(sizes)
    before = -math.inf
    for _ in range(8):
        stats = gmm.accumulate(x, pdf_ids)
        assert stats.log_likelihood >= before - 1e-3
        before = stats.log_likelihood
        gmm = gmm.updated(stats, torch.full((4,), 1e-3), min_occupancy=0.0)


def test_one_gaussian_becomes_the_samples_mean_and_variance() -> None:
    x = frames(200)
    gmm = make([1])
    found = gmm.updated(gmm.accumulate(x, torch.zeros(200, dtype=torch.int64)), NO_FLOOR, 5.0)
    torch.testing.assert_close(found.means[0], x.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.variances[0], x.var(0, correction=0), rtol=1e-4, atol=1e-4)


def stats_of(occupancy: list[float], mean: float, variance: float) -> GmmStats:
    counts = torch.tensor(occupancy, dtype=torch.float64)
    first = counts[:, None] * torch.full((1, 4), mean, dtype=torch.float64)
    second = counts[:, None] * torch.full((1, 4), variance + mean**2, dtype=torch.float64)
    return GmmStats(counts, first, second, 0.0, int(sum(occupancy)))


def test_variances_stay_above_the_floor() -> None:
    floor = torch.tensor([0.1, 0.2, 0.3, 2.0])
    found = make([1]).updated(stats_of([100.0], 1.0, 0.25), floor, 5.0)
    torch.testing.assert_close(found.variances[0], torch.tensor([0.25, 0.25, 0.3, 2.0]))


def test_starved_gaussians_go_but_a_pdf_keeps_its_heaviest() -> None:
    found = make([3, 2]).updated(stats_of([50.0, 4.0, 10.0, 1.0, 2.0], 1.0, 1.0), NO_FLOOR, 5.0)
    assert found.sizes.tolist() == [2, 1]
    torch.testing.assert_close(found.weights, torch.tensor([50 / 60, 10 / 60, 1.0]))


def test_a_pdf_that_saw_no_frame_keeps_a_gaussian() -> None:
    gmm = make([1, 2])
    found = gmm.updated(stats_of([50.0, 0.0, 0.0], 1.0, 1.0), NO_FLOOR, 5.0)
    assert found.sizes.tolist() == [1, 1]
    torch.testing.assert_close(found.means[1], gmm.means[1])
    torch.testing.assert_close(found.variances[1], gmm.variances[1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=4), st.integers(0, 99))
def test_growing_keeps_every_pdfs_weight_and_mean(growth: list[tuple[int, int]], seed: int) -> None:
    gmm = make([size for size, _ in growth], seed)
    targets = torch.tensor([size + more for size, more in growth])
    grown = gmm.split(targets)
    assert grown.sizes.tolist() == targets.tolist()
    for pdf in range(len(growth)):
        old, new = density(gmm, pdf), density(grown, pdf)
        torch.testing.assert_close(new.mean, old.mean, rtol=1e-4, atol=1e-4)
    assert grown.means.unique(dim=0).shape == grown.means.shape  # no two lie on each other
    first = torch.cumsum(grown.sizes, 0) - grown.sizes
    for start, size in zip(first.tolist(), grown.sizes.tolist(), strict=True):
        assert float(grown.weights[start : start + size].sum()) == pytest.approx(1, abs=1e-5)


def test_shares_of_the_gaussians() -> None:
    occupancy = torch.tensor([16.0, 81.0, 0.0], dtype=torch.float64)
    assert split_targets(occupancy, 50, 0.25, 0.5).tolist() == [19, 29, 1]  # 2 : 3 of 50, a pittance for the third
    assert split_targets(occupancy, 50, 0.25, 10.0).tolist() == [1, 8, 1]  # ten frames a Gaussian
    assert split_targets(occupancy + 900, 30, 0.0, 1.0).tolist() == [10, 10, 10]


def test_single_gaussians_from_sums() -> None:
    x = frames(30)
    sums = torch.cat([torch.tensor([30.0]), x.sum(0), (x * x).sum(0)]).double()
    found = Gmm.single(torch.stack([sums, torch.zeros_like(sums)]), NO_FLOOR)
    for pdf in range(2):  # the second has no frames and takes those of all
        torch.testing.assert_close(found.means[pdf], x.mean(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.variances[pdf], x.var(0, correction=0), rtol=1e-4, atol=1e-4)
