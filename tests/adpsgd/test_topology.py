"""Mixing matrices: what the equations ask of them."""

from __future__ import annotations

import numpy as np
import pytest

from adpsgd.topology import TOPOLOGIES, fixed_ring, partners, rounds_to_reach_all, spectral_gap


@pytest.mark.parametrize("learners", range(1, 10))
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_round_is_doubly_stochastic_and_everyone_keeps_part_of_itself(name: str, learners: int) -> None:
    for number in range(5):
        matrix = TOPOLOGIES[name](7, number, learners)
        assert (matrix >= 0).all()
        np.testing.assert_allclose(matrix.sum(0), 1)
        np.testing.assert_allclose(matrix.sum(1), 1)
        assert (matrix.diagonal() > 0).all()
        if name != "exponential":
            np.testing.assert_array_equal(matrix, matrix.T)
        found = [partners(matrix, rank) for rank in range(learners)]
        for rank, (sources, targets) in enumerate(found):
            assert all(rank in found[source][1] for source in sources)
            assert all(rank in found[target][0] for target in targets)
            # what the exchange computes: a plain mean over those that meet
            np.testing.assert_allclose(matrix[[rank, *sources], rank], 1 / (1 + len(sources)))


def test_small_rings_have_their_weights() -> None:
    assert fixed_ring(0, 0, 1).tolist() == [[1]]
    assert fixed_ring(0, 0, 2).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    np.testing.assert_allclose(fixed_ring(0, 0, 3), 1 / 3)
    np.testing.assert_allclose(fixed_ring(0, 0, 4)[0], [1 / 3, 1 / 3, 0, 1 / 3])


@pytest.mark.parametrize("learners", [4, 8, 16, 32])
def test_the_fixed_rings_eigenvalues_are_the_papers(learners: int) -> None:
    """1/3 + 2/3 cos(2 pi m / L)."""
    expected = 1 / 3 + 2 / 3 * np.cos(2 * np.pi * np.arange(learners) / learners)
    found = np.linalg.eigvalsh(fixed_ring(0, 0, learners))
    np.testing.assert_allclose(found, np.sort(expected), atol=1e-12)


@pytest.mark.parametrize(("learners", "gap"), [(8, 2.0e-1), (16, 5.1e-2), (32, 1.3e-2), (64, 3.2e-3), (128, 8.0e-4)])
def test_the_fixed_rings_gap_shrinks_with_the_square_of_the_learners(learners: int, gap: float) -> None:
    assert spectral_gap(fixed_ring(0, 0, learners)) == pytest.approx(gap, rel=0.03)


def test_gaps_of_the_others() -> None:
    assert spectral_gap(TOPOLOGIES["full"](0, 0, 9)) == pytest.approx(1)
    assert spectral_gap(TOPOLOGIES["matching"](0, 0, 6)) == pytest.approx(0)
    assert spectral_gap(fixed_ring(0, 0, 1)) == pytest.approx(1)


@pytest.mark.parametrize("learners", [2, 4, 8, 16, 64])
def test_the_exponential_graph_averages_exactly_in_log2_rounds(learners: int) -> None:
    product = np.eye(learners)
    for number in range(learners.bit_length() - 1):
        product = product @ TOPOLOGIES["exponential"](0, number, learners)
    np.testing.assert_allclose(product, 1 / learners)


@pytest.mark.parametrize("learners", [16, 32, 64, 128])
def test_the_fixed_ring_decays_at_its_second_eigenvalue(learners: int) -> None:
    matrix = fixed_ring(0, 0, learners)
    spread = np.random.default_rng(1).standard_normal(learners)
    spread -= spread.mean()
    spread = np.linalg.matrix_power(matrix, 2 * learners**2 // 10) @ spread  # the slowest modes are left
    expected = 1 / 3 + 2 / 3 * np.cos(2 * np.pi / learners)
    assert np.linalg.norm(matrix @ spread) / np.linalg.norm(spread) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("learners", [4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("name", ["permuted-ring", "matching"])
def test_random_rounds_contract_as_derived(name: str, learners: int) -> None:
    """E of the squared distance's factor: (L/3 - 1)/(L - 1) for rings, (L/2 - 1)/(L - 1) for pairs."""
    expected = (learners / (3 if name == "permuted-ring" else 2) - 1) / (learners - 1)
    rounds = 24_000 // learners
    vectors = np.random.default_rng(0).standard_normal((rounds, learners))
    vectors -= vectors.mean(1, keepdims=True)
    mixed = np.stack([v @ TOPOLOGIES[name](3, k, learners) for k, v in enumerate(vectors)])
    assert (mixed**2).sum() / (vectors**2).sum() == pytest.approx(expected, rel=0.06)


def test_rounds_differ_and_repeat_by_seed() -> None:
    ring = TOPOLOGIES["permuted-ring"]
    assert len({ring(1, number, 16).tobytes() for number in range(20)}) == 20
    np.testing.assert_array_equal(ring(1, 5, 16), ring(1, 5, 16))
    assert (ring(1, 5, 16) != ring(2, 5, 16)).any()


@pytest.mark.parametrize(
    ("name", "learners", "rounds"),
    [
        ("fixed-ring", 1, 0),
        ("fixed-ring", 3, 1),
        ("fixed-ring", 8, 4),
        ("full", 9, 1),
        ("exponential", 8, 3),
        ("exponential", 5, 3),
    ],
)
def test_word_reaches_all_after_the_graphs_diameter(name: str, learners: int, rounds: int) -> None:
    assert rounds_to_reach_all(TOPOLOGIES[name], 0, 0, 0, learners) == rounds
