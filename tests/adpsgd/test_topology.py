"""Mixing matrices: what the equations ask of them."""

from __future__ import annotations

import numpy as np
import pytest

from adpsgd.topology import mixing_matrix, permuted_ring, ring_neighbours


@pytest.mark.parametrize("learners", range(1, 10))
@pytest.mark.parametrize("round_number", range(4))
def test_a_permuted_ring_mixes_doubly_stochastically(learners: int, round_number: int) -> None:
    order = permuted_ring(7, round_number, learners)
    assert sorted(order) == list(range(learners))
    matrix = mixing_matrix(order)
    np.testing.assert_allclose(matrix.sum(0), 1)
    np.testing.assert_allclose(matrix.sum(1), 1)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert (matrix.diagonal() > 0).all()
    for rank in range(learners):
        for other in ring_neighbours(order, rank):
            assert rank in ring_neighbours(order, other)


@pytest.mark.parametrize("learners", [4, 8, 16, 32])
def test_the_fixed_rings_eigenvalues_are_the_papers(learners: int) -> None:
    """1/3 + 2/3 cos(2 pi m / L)."""
    expected = 1 / 3 + 2 / 3 * np.cos(2 * np.pi * np.arange(learners) / learners)
    found = np.linalg.eigvalsh(mixing_matrix(np.arange(learners)))
    np.testing.assert_allclose(found, np.sort(expected), atol=1e-12)


def test_rounds_differ_and_repeat_by_seed() -> None:
    orders = {tuple(permuted_ring(1, number, 16)) for number in range(20)}
    assert len(orders) == 20
    assert tuple(permuted_ring(1, 5, 16)) == tuple(permuted_ring(1, 5, 16))
    assert tuple(permuted_ring(1, 5, 16)) != tuple(permuted_ring(2, 5, 16))


@pytest.mark.parametrize(("learners", "expected"), [(4, 0.1111), (8, 0.2381), (16, 0.2889), (64, 0.3228)])
def test_permuted_rings_contract_as_derived(learners: int, expected: float) -> None:
    """E of the squared distance's shrinking: (L/3 - 1)/(L - 1), neighbours being drawn without replacement."""
    assert (learners / 3 - 1) / (learners - 1) == pytest.approx(expected, abs=5e-5)
    vectors = np.random.default_rng(0).standard_normal((1500, learners))
    vectors -= vectors.mean(1, keepdims=True)
    mixed = np.stack([mixing_matrix(permuted_ring(3, k, learners)) @ v for k, v in enumerate(vectors)])
    assert (mixed**2).sum() / (vectors**2).sum() == pytest.approx(expected, rel=0.05)
