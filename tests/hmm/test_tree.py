"""The decision tree against brute force on raw frames."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from local.cli import RecipeError
from local.hmm.tree import (
    NO_PHONE,
    Context,
    Tree,
    build_tree,
    gaussian_log_likelihood,
    make_questions,
    monophone_tree,
)

FLOOR = 1e-3
STATES = {1: 2, 2: 1, 3: 1, 4: 1}  # HMM states of each phone
SILENCE = frozenset({1})
QUESTIONS = [frozenset({1}), frozenset({2}), frozenset({3}), frozenset({2, 3}), frozenset({1, 4}), frozenset({NO_PHONE})]


def fit(frames: np.ndarray) -> float:
    """Log-likelihood of frames ``(n, D)`` under their own Gaussian, frame by frame."""
    mean, variance = frames.mean(0), np.maximum(frames.var(0), FLOOR)
    return float((-0.5 * (np.log(2 * math.pi * variance) + (frames - mean) ** 2 / variance)).sum())


def sums(frames: np.ndarray) -> np.ndarray:
    return np.concatenate([[len(frames)], frames.sum(0), (frames**2).sum(0)])


def make_frames(seed: int) -> dict[Context, np.ndarray]:
    """Frames of some contexts, whose means hang on the neighbours."""
    draw = random.Random(seed)
    generator = np.random.default_rng(seed)
    frames = {}
    for left, phone, right in itertools.product(range(5), range(1, 5), range(5)):
        for state in range(STATES[phone]):
            if draw.random() < 0.3:
                mean = np.array([phone + 2.0 * (left in (2, 3)), state + 1.5 * (right == 4) + 0.4 * left])
                count = draw.randint(3, 12)
                frames[(left, phone, right), state] = mean + generator.normal(0, 0.6, (count, 2))
    return frames


def brute_force(frames: dict[Context, np.ndarray], leaves: int, min_count: int) -> set[frozenset[Context]]:
    """Which contexts share a leaf: every leaf, side and question tried anew at every step, from the frames."""

    def together(contexts: list[Context]) -> np.ndarray:
        return np.concatenate([frames[context] for context in contexts])

    groups = {
        (phone, state): [[c for c in sorted(frames) if c[0][1] == phone and c[1] == state]]
        for phone in STATES
        for state in range(STATES[phone])
    }
    last = 0.0
    while sum(map(len, groups.values())) < leaves:
        best = (0.0, None)
        for root, parts in groups.items():
            for part in parts if root[0] not in SILENCE else []:
                for side, question in itertools.product((0, 2), QUESTIONS):
                    yes = [c for c in part if c[0][side] in question]
                    no = [c for c in part if c[0][side] not in question]
                    if not yes or not no or min(len(together(yes)), len(together(no))) < min_count:
                        continue
                    gain = fit(together(yes)) + fit(together(no)) - fit(together(part))
                    if gain > best[0] + 1e-9:
                        best = (gain, (root, part, yes, no))
        if best[1] is None:
            break
        last, (root, part, yes, no) = best
        groups[root].remove(part)
        groups[root] += [yes, no]
    for parts in groups.values():  # leaves of a root that cost less to merge than the last split gained
        while len(parts) > 1:
            cost, one, other = min(
                (fit(together(a)) + fit(together(b)) - fit(together(a + b)), i, j)
                for (i, a), (j, b) in itertools.combinations(enumerate(parts), 2)
            )
            if cost >= last * (1 - 1e-6):  # the last split itself stands
                break
            parts[one] = parts[one] + parts.pop(other)
    return {frozenset(part) for parts in groups.values() for part in parts if part}


def grow(frames: dict[Context, np.ndarray], leaves: int, min_count: int) -> Tree:
    stats = {context: sums(rows) for context, rows in frames.items()}
    return build_tree(stats, STATES, SILENCE, QUESTIONS, leaves, min_count, FLOOR)


def test_likelihood_is_that_of_the_best_gaussian() -> None:
    frames = np.random.default_rng(0).normal(2, 3, (40, 5))
    assert gaussian_log_likelihood(sums(frames), FLOOR) == pytest.approx(fit(frames), rel=1e-10)
    assert gaussian_log_likelihood(np.zeros(11), FLOOR) == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("leaves", "min_count"), [(6, 1), (9, 1), (14, 10), (100, 1)])
def test_tree_is_the_one_of_brute_force(seed: int, leaves: int, min_count: int) -> None:
    frames = make_frames(seed)
    tree = grow(frames, leaves, min_count)
    shared: dict[int, set[Context]] = {}
    for window, state in frames:
        shared.setdefault(tree.pdf(window, state), set()).add((window, state))
    assert {frozenset(contexts) for contexts in shared.values()} == brute_force(frames, leaves, min_count)


def test_every_window_has_a_pdf_and_every_pdf_a_number() -> None:
    tree = grow(make_frames(0), 12, 1)
    windows = [(left, phone, right) for phone in STATES for left in range(5) for right in range(5)]
    found = {tree.pdf(window, state) for window in windows for state in range(STATES[window[1]])}
    assert found == set(range(tree.num_pdfs))
    assert tree.num_pdfs <= 12


def test_an_unseen_window_goes_by_the_questions() -> None:
    """The left neighbours 2 and 3 were told apart from 1 and 4; 2-3-4 itself was never seen."""
    frames = {}
    generator = np.random.default_rng(0)
    for left, mean in ((1, 0.0), (2, 9.0), (3, 9.0), (4, 0.0)):
        frames[(left, 3, 1), 0] = mean + generator.normal(0, 1, (50, 2))
    tree = grow(frames, sum(STATES.values()) + 1, 5)
    assert tree.pdf((2, 3, 4), 0) == tree.pdf((3, 3, 1), 0)
    assert tree.pdf((4, 3, 4), 0) == tree.pdf((1, 3, 1), 0) != tree.pdf((2, 3, 4), 0)


def test_silence_is_the_same_in_every_context() -> None:
    tree = grow(make_frames(1), 100, 1)
    assert len({tree.pdf((left, 1, right), 1) for left in range(5) for right in range(5)}) == 1


def test_phones_never_seen_have_pdfs_of_their_own() -> None:
    frames = {context: rows for context, rows in make_frames(2).items() if context[0][1] != 4}
    tree = grow(frames, 20, 1)
    assert tree.pdf((1, 4, 1), 0) not in {tree.pdf(*context) for context in frames}


def test_fewer_leaves_than_states_are_refused() -> None:
    with pytest.raises(RecipeError, match="5 HMM states"):
        grow(make_frames(0), 4, 1)


def test_saved_as_lists_and_read_again() -> None:
    tree = grow(make_frames(3), 12, 1)
    assert Tree.from_list(tree.to_list()) == tree


def test_monophones_have_a_pdf_a_state() -> None:
    tree = monophone_tree(STATES)
    assert (tree.context_width, tree.num_pdfs) == (1, 5)
    assert {tree.pdf((phone,), state) for phone in STATES for state in range(STATES[phone])} == set(range(5))


@pytest.mark.parametrize("seed", range(3))
def test_questions_are_the_cheapest_mergers(seed: int) -> None:
    generator = np.random.default_rng(seed)
    phones = [2, 3, 5, 6, 9]
    frames = {phone: generator.normal(generator.normal(0, 3, 2), 1, (20, 2)) for phone in phones}
    groups = [frozenset({phone}) for phone in phones]
    expected = set(groups)

    def pool(group: frozenset[int]) -> np.ndarray:
        return np.concatenate([frames[phone] for phone in sorted(group)])

    while len(groups) > 2:
        one, other = min(
            itertools.combinations(groups, 2), key=lambda pair: sum(fit(pool(g)) for g in pair) - fit(pool(pair[0] | pair[1]))
        )
        groups = [group for group in groups if group not in (one, other)] + [one | other]
        expected.add(one | other)
    found = make_questions(np.stack([sums(frames[phone]) for phone in phones]), phones, FLOOR)
    assert set(found) == expected
    assert len(found) == len(set(found))
