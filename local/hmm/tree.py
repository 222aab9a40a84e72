"""Phonetic decision trees: which contexts of a phone's state share one pdf.

Statistics of a context are those of one Gaussian, ``[count, sum x, sum x^2]``, a vector of 1 + 2 D numbers, so that any
set of contexts has the sum of its members' statistics and a likelihood in closed form (Young, Odell & Woodland 1994).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from local.cli import RecipeError

LEFT, STATE, RIGHT = 0, 1, 2  # what a question is on: a neighbour, by its place in the window, or the HMM state
NO_PHONE = 0  # beyond the utterance's edge

Context = tuple[tuple[int, ...], int]  # window of phone ids, HMM state

_LOG_2PI = math.log(2 * math.pi)
_ROUNDING = 1e-6  # of a gain: where two are equal, rounding must not decide


def gaussian_log_likelihood(stats: np.ndarray, variance_floor: float) -> np.ndarray:
    """Log-likelihood of the frames behind ``stats`` under the one Gaussian that fits them best.

    :param stats: ``(..., 1 + 2 D)``: count, sums, sums of squares.
    :return: ``(...)``; 0 where there are no frames.
    """
    dims = (stats.shape[-1] - 1) // 2
    count = np.maximum(stats[..., 0], 1e-10)
    mean = stats[..., 1 : 1 + dims] / count[..., None]
    variance = np.maximum(stats[..., 1 + dims :] / count[..., None] - mean**2, variance_floor)
    # with a floored variance the quadratic term is no longer dims; leaving it there is the usual approximation
    return -0.5 * stats[..., 0] * (np.log(variance).sum(-1) + dims * (1 + _LOG_2PI))


def cheapest_mergers(stats: np.ndarray, variance_floor: float) -> Iterator[tuple[float, int, int]]:
    """Merge, again and again, the two groups whose merging costs least likelihood, until one is left.

    :param stats: ``(groups, 1 + 2 D)``.
    :return: of each merger the cost and the two groups' places, ``first < second``; ``first`` then stands for both.
    """
    stats, alive = stats.copy(), np.ones(len(stats), dtype=bool)
    own = gaussian_log_likelihood(stats, variance_floor)
    cost = np.full((len(stats), len(stats)), np.inf)  # above the diagonal, of those alive

    def update(group: int, others: np.ndarray) -> None:
        together = gaussian_log_likelihood(stats[group] + stats[others], variance_floor)
        cost[np.minimum(group, others), np.maximum(group, others)] = own[group] + own[others] - together

    for group in range(len(stats)):
        update(group, np.arange(group + 1, len(stats)))
    for _ in range(len(stats) - 1):
        first, second = (int(place) for place in np.unravel_index(np.argmin(cost), cost.shape))
        yield float(cost[first, second]), first, second
        stats[first] += stats[second]
        own[first] = gaussian_log_likelihood(stats[first], variance_floor)
        alive[second] = False
        cost[second], cost[:, second] = np.inf, np.inf
        others = np.flatnonzero(alive)
        update(first, others[others != first])


def make_questions(by_phone: np.ndarray, phones: Sequence[int], variance_floor: float) -> list[frozenset[int]]:
    """Questions from the data: merge the two phones, then groups, whose merging costs least likelihood.

    :param by_phone: statistics of each of ``phones``, ``(phones, 1 + 2 D)``.
    :return: the single phones and every group that merging has made, but for the last, which holds all.
    """
    groups = [frozenset([phone]) for phone in phones]
    questions = list(groups)
    for _, first, second in itertools.islice(cheapest_mergers(by_phone, variance_floor), max(len(phones) - 2, 0)):
        groups[first] |= groups[second]
        questions.append(groups[first])
    return questions


@dataclass
class Node:
    """A leaf with a pdf-id, or a question: is the phone at ``position`` one of ``phones``?

    In a tree that is still growing, questions at ``STATE`` are of HMM states.
    """

    pdf: int = -1
    position: int = -1
    phones: frozenset[int] = frozenset()
    yes: Node | None = None
    no: Node | None = None

    def find(self, window: tuple[int, ...]) -> Node:
        """Walk down to the leaf of ``window``."""
        node = self
        while node.yes is not None and node.no is not None:
            node = node.yes if window[node.position] in node.phones else node.no
        return node

    def to_list(self) -> list[Any]:
        """The subtree as nested lists."""
        if self.yes is None or self.no is None:
            return [self.pdf]
        return [self.position, sorted(self.phones), self.yes.to_list(), self.no.to_list()]

    @staticmethod
    def from_list(content: list[Any]) -> Node:
        """What :meth:`to_list` has given."""
        if len(content) == 1:
            return Node(pdf=content[0])
        position, phones, yes, no = content
        return Node(-1, position, frozenset(phones), Node.from_list(yes), Node.from_list(no))


@dataclass
class Tree:
    """The pdf of every phone in context and HMM state: a root for each (phone, state); roots may share pdfs."""

    context_width: int  # 1 or 3
    roots: dict[tuple[int, int], Node]
    num_pdfs: int

    def pdf(self, window: tuple[int, ...], state: int) -> int:
        """The pdf-id of a window of phone ids, whose centre is the phone, and an HMM state."""
        return self.roots[window[len(window) // 2], state].find(window).pdf

    def to_list(self) -> list[Any]:
        """The tree as nested lists, to be saved."""
        return [self.context_width, self.num_pdfs, [[*key, root.to_list()] for key, root in sorted(self.roots.items())]]

    @staticmethod
    def from_list(content: list[Any]) -> Tree:
        """What :meth:`to_list` has given."""
        width, num_pdfs, roots = content
        return Tree(width, {(phone, state): Node.from_list(node) for phone, state, node in roots}, num_pdfs)


def monophone_tree(states: Mapping[int, int]) -> Tree:
    """A pdf for each state of each phone, whatever its context; ``states`` says how many states a phone has."""
    keys = [(phone, state) for phone in sorted(states) for state in range(states[phone])]
    return Tree(1, {key: Node(pdf) for pdf, key in enumerate(keys)}, len(keys))


@dataclass
class _Leaf:
    root: tuple[int, int]
    node: Node
    answers: np.ndarray  # (contexts, questions) bool
    stats: np.ndarray  # (contexts, 1 + 2 D)


def build_tree(
    stats: Mapping[Context, np.ndarray],
    states: Mapping[int, int],
    unsplit: frozenset[int],
    questions: Sequence[frozenset[int]],
    max_leaves: int,
    min_count: float,
    variance_floor: float,
) -> Tree:
    """Grow a triphone tree by the greatest gain in likelihood until it has ``max_leaves``.

    As in Kaldi's ``build-tree`` with "shared split" roots, a phone's states grow from one root and questions are also
    asked on the state: is it the first, one of the first two, ...? So a rare phone may have one pdf for all its states.
    Afterwards leaves of one root are merged while that costs less than the least that a split has gained.

    :param stats: statistics ``(1 + 2 D,)`` of each window (left, centre, right) and state that was seen.
    :param states: the number of HMM states of every phone, seen or not.
    :param unsplit: phones that have a pdf for each state, whatever the context (silence).
    :param questions: phones that a neighbour may be one of. Of questions that gain as much as each other, the first wins.
    :param min_count: frames that each side of a split must have.
    :raises RecipeError: where there are more roots than ``max_leaves``.
    """
    keys = [(phone, state) for phone in sorted(states) for state in range(states[phone])]
    root_of = {(phone, state): (phone, state if phone in unsplit else 0) for phone, state in keys}
    roots = {root: Node() for root in root_of.values()}
    if max_leaves < len(roots):
        raise RecipeError(
            f"leaves of the tree: expected at least {len(roots)}, one for each speech phone and each state of the silence "
            f"phones; found {max_leaves}"
        )
    most = max(states.values())
    asked = [(LEFT, phones) for phones in questions]
    asked += [(STATE, frozenset(range(first))) for first in range(1, most)]
    asked += [(RIGHT, phones) for phones in questions]
    table = np.zeros((3, max(most, max(states) + 1), len(asked)), dtype=bool)  # what to answer for a value at a position
    for column, (position, members) in enumerate(asked):
        table[position, sorted(members), column] = True

    leaves: dict[int, _Leaf] = {}
    heap: list[tuple[float, int, int]] = []  # negative gain, number of the leaf, the question that gains it
    numbers = itertools.count()

    def add(leaf: _Leaf) -> None:
        number = next(numbers)
        leaves[number] = leaf
        gain, question = _best_split(leaf, min_count, variance_floor)
        if gain > 0:
            heapq.heappush(heap, (-gain, number, question))

    contexts: dict[tuple[int, int], list[Context]] = {root: [] for root in roots}
    for window, state in sorted(stats):
        if window[1] not in unsplit:  # without contexts a root stays a leaf
            contexts[root_of[window[1], state]].append((window, state))
    dims = len(next(iter(stats.values())))
    for root, node in roots.items():
        values = np.array([(left, state, right) for (left, _, right), state in contexts[root]], dtype=int).reshape(-1, 3)
        matrix = np.array([stats[context] for context in contexts[root]]).reshape(-1, dims)
        add(_Leaf(root, node, table[range(3), values].any(1), matrix))
    least_gain = math.inf
    while heap and len(leaves) < max_leaves:
        negative_gain, number, question = heapq.heappop(heap)
        least_gain = min(least_gain, -negative_gain)
        leaf = leaves.pop(number)
        yes = leaf.answers[:, question]
        leaf.node.position, leaf.node.phones = asked[question]
        leaf.node.yes, leaf.node.no = Node(), Node()
        add(_Leaf(leaf.root, leaf.node.yes, leaf.answers[yes], leaf.stats[yes]))
        add(_Leaf(leaf.root, leaf.node.no, leaf.answers[~yes], leaf.stats[~yes]))

    num_pdfs = 0
    for root in roots:
        for nodes in _merged([leaf for leaf in leaves.values() if leaf.root == root], least_gain, variance_floor):
            for node in nodes:
                node.pdf = num_pdfs
            num_pdfs += 1
    return Tree(3, {key: _of_state(roots[root_of[key]], key[1]) for key in keys}, num_pdfs)


def _best_split(leaf: _Leaf, min_count: float, variance_floor: float) -> tuple[float, int]:
    """Gain and place of the question that gains most; minus infinity where none may be asked."""
    total = leaf.stats.sum(0)
    if len(leaf.stats) < 2 or total[0] < 2 * min_count:
        return -math.inf, -1
    yes = leaf.answers.T.astype(np.float64) @ leaf.stats
    no = total - yes
    whole = gaussian_log_likelihood(total, variance_floor)
    gain = gaussian_log_likelihood(yes, variance_floor) + gaussian_log_likelihood(no, variance_floor) - whole
    gain[(yes[:, 0] < min_count) | (no[:, 0] < min_count)] = -math.inf
    best = int(np.argmax(gain >= gain.max() * (1 - _ROUNDING)))
    return float(gain[best]), best


def _merged(leaves: Sequence[_Leaf], max_cost: float, variance_floor: float) -> list[list[Node]]:
    """The leaves, those together whose merging costs less than ``max_cost``."""
    groups = [[leaf.node] for leaf in leaves]
    sums = np.stack([leaf.stats.sum(0) for leaf in leaves])
    for cost, first, second in cheapest_mergers(sums, variance_floor):
        if cost >= max_cost * (1 - _ROUNDING):
            break
        groups[first] += groups[second]
        groups[second] = []
    return [group for group in groups if group]


def _of_state(node: Node, state: int) -> Node:
    """The subtree of one HMM state: the questions on the state answered."""
    if node.yes is None or node.no is None:
        return node
    if node.position == STATE:
        return _of_state(node.yes if state in node.phones else node.no, state)
    return Node(-1, node.position, node.phones, _of_state(node.yes, state), _of_state(node.no, state))
