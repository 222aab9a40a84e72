"""Who mixes with whom: rings, and their doubly stochastic mixing matrices.

Round k's ring follows from (seed, k) alone, so all learners know it without asking.
"""

from __future__ import annotations

import numpy as np


def permuted_ring(seed: int, round_number: int, learners: int) -> np.ndarray:
    """The order of the learners around the ring of one round: a permutation of ``range(learners)``.

    T_k = P_k^T T_1 P_k, with a fresh permutation every round (randomized communication, 2110.11199).
    """
    return np.random.default_rng([seed, round_number]).permutation(learners)


def ring_neighbours(order: np.ndarray, rank: int) -> tuple[int, ...]:
    """The neighbours of ``rank`` on the ring: left and right, one where both are the same, none alone."""
    learners = len(order)
    place = int(np.flatnonzero(order == rank)[0])
    left, right = int(order[place - 1]), int(order[(place + 1) % learners])
    return tuple(dict.fromkeys(neighbour for neighbour in (left, right) if neighbour != rank))


def mixing_matrix(order: np.ndarray) -> np.ndarray:
    """T of a ring: every learner and its neighbours with equal weights, (learners, learners), float64.

    That is 1/3 for three learners and more, as in the paper, and 1/2 for two. Symmetric and doubly stochastic.
    """
    learners = len(order)
    matrix = np.zeros((learners, learners))
    for rank in range(learners):
        group = (rank, *ring_neighbours(order, rank))
        matrix[list(group), rank] = 1 / len(group)
    return matrix
