"""Who mixes with whom in a round, as doubly stochastic mixing matrices.

A topology is a function of (seed, round, learners), so that all learners know every round without asking, for any number
of learners from one up. T[j, l] is the weight of learner j's model in learner l's next one: W <- W T with one column a
learner. All models that meet at a learner have equal weights there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Topology = Callable[[int, int, int], np.ndarray]


def fixed_ring(seed: int, number: int, learners: int) -> np.ndarray:
    """T_1: each learner with its left and right neighbour, weights 1/3; 1/2 for two learners (2110.11199)."""
    return _ring(np.arange(learners))


def permuted_ring(seed: int, number: int, learners: int) -> np.ndarray:
    """T_k = P_k^T T_1 P_k: a ring in a fresh random order every round (randomized communication, 2110.11199)."""
    return _ring(np.random.default_rng([seed, number]).permutation(learners))


def matching(seed: int, number: int, learners: int) -> np.ndarray:
    """Random pairs, weights 1/2; with an odd number of learners one stays alone (after Lian et al. 2018)."""
    order = np.random.default_rng([seed, number]).permutation(learners)
    matrix = np.eye(learners)
    for first, second in zip(order[: learners // 2], order[learners // 2 : learners // 2 * 2], strict=True):
        matrix[np.ix_([first, second], [first, second])] = 0.5
    return matrix


def exponential(seed: int, number: int, learners: int) -> np.ndarray:
    """One-peer exponential graph: each hears the one 2^(k mod log2 L) before it, weights 1/2 (Ying et al. 2021).

    Directed. With L a power of two, log2 L rounds in a row average exactly.
    """
    hop = 2 ** (number % max(1, (learners - 1).bit_length()))
    return _equal([{rank, (rank - hop) % learners} for rank in range(learners)])


def full(seed: int, number: int, learners: int) -> np.ndarray:
    """T_u = (1/L) 1 1^T: everyone with everyone."""
    return np.full((learners, learners), 1 / learners)


TOPOLOGIES: dict[str, Topology] = {
    "fixed-ring": fixed_ring,
    "permuted-ring": permuted_ring,
    "matching": matching,
    "exponential": exponential,
    "full": full,
}


def _ring(order: np.ndarray) -> np.ndarray:
    learners = len(order)
    meeting: list[set[int]] = [set() for _ in range(learners)]
    for place, rank in enumerate(order):
        meeting[rank] = {int(order[place - 1]), int(rank), int(order[(place + 1) % learners])}
    return _equal(meeting)


def _equal(meeting: list[set[int]]) -> np.ndarray:
    """The matrix in which learner l takes the mean of the models of ``meeting[l]``."""
    matrix = np.zeros((len(meeting), len(meeting)))
    for rank, members in enumerate(meeting):
        matrix[list(members), rank] = 1 / len(members)
    return matrix


def partners(matrix: np.ndarray, rank: int) -> tuple[list[int], list[int]]:
    """Whom learner ``rank`` hears in a round, and who hears it."""
    sources = [int(other) for other in np.flatnonzero(matrix[:, rank]) if other != rank]
    targets = [int(other) for other in np.flatnonzero(matrix[rank]) if other != rank]
    return sources, targets


def spectral_gap(matrix: np.ndarray) -> float:
    """1 - the largest factor by which one round can leave the models' distance from their mean.

    That factor is the second singular value of T; for a symmetric T, the second largest eigenvalue by magnitude.
    """
    return float(1 - np.linalg.norm(matrix - 1 / len(matrix), 2))


def rounds_to_reach_all(topology: Topology, seed: int, first: int, rank: int, learners: int) -> int:
    """How many rounds from ``first`` on it takes until every learner has heard from ``rank``, through others too."""
    heard = np.zeros(learners, dtype=bool)
    heard[rank] = True
    number = first
    while not heard.all():
        heard = topology(seed, number, learners)[heard].any(0)
        number += 1
    return number - first
