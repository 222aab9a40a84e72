"""The decision tree against brute force on raw frames."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Hashable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.hmm.tree import (
    NO_PHONE,
    Context,
    Tree,
    build_tree,
    cheapest_mergers,
    gaussian_log_likelihood,
    make_questions,
    monophone_tree,
)

FLOOR = 1e-3
STATES = {1: 2, 2: 1, 3: 2, 4: 3}  # HMM states of each phone
SILENCE = frozenset({1})
ROOTS = 2 + 3  # a root for each state of silence, for each speech phone
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


def root_of(context: Context) -> tuple[int, int]:
    (_, phone, _), state = context
    return phone, state if phone in SILENCE else 0


def asked() -> list[tuple[str, frozenset[int]]]:
    """What is asked about, and which answers are yes."""
    return [*(("left", q) for q in QUESTIONS), ("state", {0}), ("state", {0, 1}), *(("right", q) for q in QUESTIONS)]


def answer(context: Context, question: tuple[str, frozenset[int]]) -> bool:
    (left, _, right), state = context
    return {"left": left, "state": state, "right": right}[question[0]] in question[1]


def brute_force(frames: dict[Context, np.ndarray], leaves: int, min_count: int) -> set[frozenset[Context]]:
    """Which contexts share a leaf: every leaf and question tried anew at every step, from the frames."""

    def together(contexts: list[Context]) -> np.ndarray:
        return np.concatenate([frames[context] for context in contexts])

    @functools.cache
    def likelihood(*contexts: Context) -> float:
        return fit(together(list(contexts)))

    def cost(one: list[Context], other: list[Context]) -> float:
        return likelihood(*one) + likelihood(*other) - likelihood(*sorted(one + other))

    groups: dict[tuple[int, int], list[list[Context]]] = {}
    for root, contexts in itertools.groupby(sorted(frames, key=lambda context: (root_of(context), context)), root_of):
        groups[root] = [list(contexts)]
    least = math.inf
    while sum(map(len, groups.values())) + ROOTS - len(groups) < leaves:  # a root without frames is a leaf
        best = (0.0, None)
        for root, parts in groups.items():
            for part in parts if root[0] not in SILENCE else []:
                for question in asked():
                    yes = [c for c in part if answer(c, question)]
                    no = [c for c in part if not answer(c, question)]
                    if not yes or not no or min(len(together(yes)), len(together(no))) < min_count:
                        continue
                    gain = cost(yes, no)
                    if gain > best[0] + 1e-9:
                        best = (gain, (root, part, yes, no))
        if best[1] is None:
            break
        gain, (root, part, yes, no) = best
        least = min(least, gain)
        groups[root].remove(part)
        groups[root] += [yes, no]
    for parts in groups.values():  # leaves of a root that cost less to merge than any split gained
        while len(parts) > 1:
            cheapest, one, other = min((cost(a, b), i, j) for (i, a), (j, b) in itertools.combinations(enumerate(parts), 2))
            if cheapest >= least * (1 - 1e-6):  # that split itself stands
                break
            parts[one] = sorted(parts[one] + parts.pop(other))
    return {frozenset(part) for parts in groups.values() for part in parts}


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


@st.composite
def statistics(draw: st.DrawFn) -> dict[Context, np.ndarray]:
    """Statistics of some contexts: frames of variance 1 around means on a coarse grid, so that ties happen."""
    phone, neighbour = st.sampled_from(sorted(STATES)), st.integers(0, 4)
    window = st.tuples(neighbour, phone, neighbour)
    context = window.flatmap(lambda w: st.tuples(st.just(w), st.integers(0, STATES[w[1]] - 1)))
    frames = st.tuples(st.integers(1, 30), st.integers(-2, 2), st.integers(-2, 2))
    drawn = draw(st.dictionaries(context, frames, min_size=1, max_size=40))
    return {key: count * np.array([1, a, b, 1 + a * a, 1 + b * b], dtype=float) for key, (count, a, b) in drawn.items()}


@settings(max_examples=50, deadline=None)
@given(statistics(), st.integers(ROOTS, 40), st.integers(1, 40))
def test_whatever_was_seen(stats: dict[Context, np.ndarray], leaves: int, min_count: int) -> None:
    tree = build_tree(stats, STATES, SILENCE, QUESTIONS, leaves, min_count, FLOOR)
    windows = [(left, phone, right) for phone in STATES for left in range(5) for right in range(5)]
    pdfs = {(window, state): tree.pdf(window, state) for window in windows for state in range(STATES[window[1]])}
    assert set(pdfs.values()) == set(range(tree.num_pdfs))
    assert ROOTS <= tree.num_pdfs <= leaves
    root = {pdf: root_of(context) for context, pdf in pdfs.items()}
    assert all(root[pdf] == root_of(context) for context, pdf in pdfs.items())
    assert all(tree.pdf(window, state) == pdfs[(0, window[1], 0), state] for window, state in pdfs if window[1] in SILENCE)

    def pool(key: Callable[[Context], Hashable]) -> dict[Hashable, np.ndarray]:
        sums: dict[Hashable, np.ndarray] = {}
        for context, values in stats.items():
            sums[key(context)] = sums.get(key(context), 0) + values
        return sums

    by_pdf = pool(pdfs.__getitem__)
    split = [pdf for pdf in by_pdf if list(root.values()).count(root[pdf]) > 1]
    assert all(by_pdf[pdf][0] >= min_count for pdf in split)
    of_roots, of_tree, of_contexts = (
        sum(gaussian_log_likelihood(values, FLOOR) for values in sums.values())
        for sums in (pool(root_of), by_pdf, pool(lambda context: context))
    )
    assert of_roots - 1e-6 <= of_tree <= of_contexts + 1e-6
    assert Tree.from_list(tree.to_list()) == tree


def test_an_unseen_window_goes_by_the_questions() -> None:
    """The left neighbours 2 and 3 were told apart from 1 and 4; 2-3-4 itself was never seen."""
    frames = {}
    generator = np.random.default_rng(0)
    for left, mean in ((1, 0.0), (2, 9.0), (3, 9.0), (4, 0.0)):
        frames[(left, 3, 1), 0] = mean + generator.normal(0, 1, (50, 2))
    tree = grow(frames, ROOTS + 1, 5)
    assert tree.pdf((2, 3, 4), 0) == tree.pdf((3, 3, 1), 0)
    assert tree.pdf((4, 3, 4), 0) == tree.pdf((1, 3, 1), 0) != tree.pdf((2, 3, 4), 0)


def test_of_questions_that_gain_the_same_the_first_is_taken() -> None:
    """2 and 4 to the left are told apart by {2}, {2, 3} and {1, 4}: the first lets 3 go with 4."""
    generator = np.random.default_rng(0)
    frames = {((left, 2, 1), 0): left + generator.normal(0, 0.1, (50, 2)) for left in (2, 4)}
    tree = grow(frames, ROOTS + 1, 5)
    assert tree.pdf((3, 2, 1), 0) == tree.pdf((4, 2, 1), 0) != tree.pdf((2, 2, 1), 0)


def test_states_share_a_pdf_where_only_the_neighbour_matters() -> None:
    generator = np.random.default_rng(0)
    frames = {((left, 4, 1), state): left + generator.normal(0, 1, (50, 2)) for left in (1, 3) for state in range(3)}
    tree = grow(frames, ROOTS + 1, 5)
    pdfs = [{tree.pdf((left, 4, 1), state) for state in range(3)} for left in (1, 3)]
    assert len(pdfs[0]) == len(pdfs[1]) == 1
    assert pdfs[0] != pdfs[1]


def test_states_are_told_apart_where_they_differ() -> None:
    generator = np.random.default_rng(0)
    frames = {((left, 4, 1), state): 3 * state + generator.normal(0, 1, (50, 2)) for left in (1, 3) for state in range(3)}
    tree = grow(frames, ROOTS + 2, 5)
    assert [tree.pdf((1, 4, 1), state) for state in range(3)] == [tree.pdf((3, 4, 1), state) for state in range(3)]
    assert len({tree.pdf((1, 4, 1), state) for state in range(3)}) == 3


def test_silence_has_a_pdf_a_state_in_every_context() -> None:
    tree = grow(make_frames(1), 100, 1)
    pdfs = [{tree.pdf((left, 1, right), state) for left in range(5) for right in range(5)} for state in range(2)]
    assert len(pdfs[0]) == len(pdfs[1]) == 1
    assert pdfs[0] != pdfs[1]


def test_a_phone_never_seen_has_a_pdf_of_its_own() -> None:
    frames = {context: rows for context, rows in make_frames(2).items() if context[0][1] != 4}
    tree = grow(frames, 20, 1)
    pdfs = {tree.pdf((1, 4, 1), state) for state in range(3)}
    assert len(pdfs) == 1
    assert pdfs.isdisjoint(tree.pdf(*context) for context in frames)


def test_fewer_leaves_than_roots_are_refused() -> None:
    assert grow(make_frames(0), ROOTS, 1).num_pdfs == ROOTS
    with pytest.raises(RecipeError, match=r"at least 5.*found 4"):
        grow(make_frames(0), ROOTS - 1, 1)


def test_saved_as_lists_and_read_again() -> None:
    tree = grow(make_frames(3), 12, 1)
    assert Tree.from_list(tree.to_list()) == tree


def test_monophones_have_a_pdf_a_state() -> None:
    tree = monophone_tree(STATES)
    assert (tree.context_width, tree.num_pdfs) == (1, 8)
    assert {tree.pdf((phone,), state) for phone in STATES for state in range(STATES[phone])} == set(range(8))


@pytest.mark.parametrize("groups", [1, 2, 3, 9, 16])
def test_mergers_are_the_cheapest_of_brute_force(groups: int) -> None:
    generator = np.random.default_rng(groups)
    frames = [generator.normal(generator.normal(0, 2, 2), 1, (generator.integers(5, 40), 2)) for _ in range(groups)]
    stats = np.stack([sums(rows) for rows in frames])
    left = dict(enumerate(frames))
    for found in cheapest_mergers(stats, FLOOR):
        cost, first, second = min(
            (fit(left[a]) + fit(left[b]) - fit(np.concatenate([left[a], left[b]])), a, b)
            for a, b in itertools.combinations(left, 2)
        )
        assert found == (pytest.approx(cost, rel=1e-6), first, second)
        left[first] = np.concatenate([left[first], left.pop(second)])
    assert list(left) == [0]
    np.testing.assert_array_equal(stats, [sums(rows) for rows in frames])  # the caller's own stay as they are


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
