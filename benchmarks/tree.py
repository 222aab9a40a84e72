"""How long a network's decision tree takes to grow: statistics as 2,000 h of speech would have, made up.

    python -m benchmarks.tree [--contexts 75000] [--leaves 32000]

Triphones are as frequent as their phones' frequencies and chance make them. A context's mean is its state's, moved by both
neighbours and by a little of its own. Prints the time on one core, the gain in log-likelihood a frame over one pdf for each
state, and how many of the leaves were merged.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from local.hmm.tree import NO_PHONE, Context, Tree, build_tree, gaussian_log_likelihood, make_questions

SILENCE, SPEECH = range(1, 4), range(4, 47)  # phone ids
STATES = {phone: 5 if phone in SILENCE else 3 for phone in (*SILENCE, *SPEECH)}
DIMS = 40
FRAMES = 2000 * 3600 * 100 // 2  # half of the time a side is silent
VARIANCE_FLOOR = 0.01
MIN_COUNT = 200.0


def make_stats(contexts: int) -> dict[Context, np.ndarray]:
    """Statistics of the most frequent triphones' states, ``contexts`` in all, and of silence."""
    rng = np.random.default_rng(1)
    size = len(STATES) + 1
    shares = rng.dirichlet(np.full(len(SPEECH), 2.0))
    ends = np.zeros(size)
    ends[SPEECH] = shares
    ends[[NO_PHONE, 1]] = 0.1
    weights = ends[:, None, None] * shares[:, None] * ends * rng.lognormal(0, 2, (size, len(SPEECH), size))
    heaviest = np.argsort(weights, axis=None)[::-1][: contexts // 3]
    lefts, centres, rights = np.unravel_index(heaviest, weights.shape)
    counts = np.maximum(weights.ravel()[heaviest] / weights.ravel()[heaviest].sum() * FRAMES / 3, 1).round()
    states = rng.normal(0, 1, (size, 5, DIMS))
    towards = rng.normal(0, 0.6, (2, size, DIMS))  # where a left and a right neighbour pull
    pull = np.array([[1.0, 0.2], [0.5, 0.5], [0.2, 1.0]])  # on each state
    stats = {((1, phone, 1), state): pooled(states[phone, state], 1e6) for phone in SILENCE for state in range(STATES[phone])}
    for left, phone, right, count in zip(lefts.tolist(), (centres + SPEECH[0]).tolist(), rights.tolist(), counts, strict=True):
        for state in range(3):
            mean = states[phone, state] + pull[state, 0] * towards[0, left] + pull[state, 1] * towards[1, right]
            stats[(left, phone, right), state] = pooled(mean + rng.normal(0, 0.2, DIMS), count)
    return stats


def pooled(mean: np.ndarray, count: float) -> np.ndarray:
    """Statistics of ``count`` frames around a mean, of variance 1."""
    return np.concatenate([[count], count * mean, count * (mean**2 + 1)])


def likelihood(stats: dict[Context, np.ndarray], pdfs: list[int]) -> float:
    """Log-likelihood a frame of contexts that share Gaussians by these numbers."""
    sums = np.zeros((max(pdfs) + 1, 1 + 2 * DIMS))
    np.add.at(sums, pdfs, np.stack(list(stats.values())))
    return float(gaussian_log_likelihood(sums, VARIANCE_FLOOR).sum() / sums[:, 0].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, default=75_000)
    parser.add_argument("--leaves", type=int, default=32_000)
    arguments = parser.parse_args()
    stats = make_stats(arguments.contexts)
    phones = sorted(STATES)
    by_phone = np.zeros((len(phones), 1 + 2 * DIMS))
    for (window, _), values in stats.items():
        by_phone[phones.index(window[1])] += values
    began = time.process_time()
    questions = [*make_questions(by_phone, phones, VARIANCE_FLOOR), frozenset({NO_PHONE})]
    asking = time.process_time() - began
    began = time.process_time()
    tree = build_tree(stats, STATES, frozenset(SILENCE), questions, arguments.leaves, MIN_COUNT, VARIANCE_FLOOR)
    growing = time.process_time() - began
    saved = tree.to_list()
    began = time.process_time()
    assert Tree.from_list(saved) == tree
    reading = time.process_time() - began
    began = time.process_time()
    pdfs = [tree.pdf(*context) for context in stats]
    asked = (time.process_time() - began) / len(pdfs)
    gain = likelihood(stats, pdfs) - likelihood(stats, [window[1] * 5 + state for window, state in stats])
    print(f"{len(stats)} contexts, {len(questions)} questions, {tree.num_pdfs} pdfs; {gain:.3f} a frame over monophones")
    print(f"{sum(len({tree.pdf(w, s) for s in range(3)}) < 3 for w, _ in stats)} contexts share a pdf over states")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"questions {asking:.1f} s, tree {growing:.1f} s, read {reading:.2f} s, a look-up {1e6 * asked:.1f} us; {peak:.1f} GiB"
    )


if __name__ == "__main__":
    main()
