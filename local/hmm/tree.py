"""Phonetic decision trees: which contexts of a phone's state share one pdf.

Statistics of a context are those of one Gaussian, ``[count, sum x, sum x^2]``, a vector of 1 + 2 D numbers, so that any
set of contexts has the sum of its members' statistics and a likelihood in closed form (Young, Odell & Woodland 1994).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from local.cli import RecipeError

LEFT, RIGHT = 0, 2  # positions of the context in a window (left, centre, right)
NO_PHONE = 0  # beyond the utterance's edge

Context = tuple[tuple[int, ...], int]  # window of phone ids, HMM state

_LOG_2PI = math.log(2 * math.pi)
_ROUNDING = 1e-6  # to undo the last split costs what it gained: rounding must not decide


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


def make_questions(by_phone: np.ndarray, phones: Sequence[int], variance_floor: float) -> list[frozenset[int]]:
    """Questions from the data: merge the two phones, then groups, whose merging costs least likelihood.

    :param by_phone: statistics of each of ``phones``, ``(phones, 1 + 2 D)``.
    :return: the single phones and every group that merging has made, but for the last, which holds all.
    """
    groups = {index: frozenset([phone]) for index, phone in enumerate(phones)}
    stats = {index: by_phone[index] for index in groups}
    questions = list(groups.values())
    while len(groups) > 2:
        keys = sorted(groups)
        matrix = np.stack([stats[key] for key in keys])
        own = gaussian_log_likelihood(matrix, variance_floor)
        together = gaussian_log_likelihood(matrix[:, None] + matrix[None], variance_floor)
        loss = own[:, None] + own[None] - together
        loss[np.tril_indices(len(keys))] = np.inf
        first, second = (keys[int(i)] for i in np.unravel_index(np.argmin(loss), loss.shape))
        groups[first] |= groups.pop(second)
        stats[first] = stats[first] + stats.pop(second)
        questions.append(groups[first])
    return questions


@dataclass
class Node:
    """A leaf with a pdf-id, or a question: is the phone at ``position`` one of ``phones``?"""

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
    """The pdf of every phone in context and HMM state: a root for each (phone, state)."""

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


@dataclass(order=True)
class _Split:
    """The best question for a leaf. Ordered by gain, the greatest first, and then by the leaf's age."""

    negative_gain: float
    age: int
    leaf: _Leaf
    position: int
    phones: frozenset[int]


@dataclass
class _Leaf:
    node: Node
    contexts: list[tuple[int, ...]]
    stats: np.ndarray  # (contexts, 1 + 2 D)

    def __lt__(self, other: _Leaf) -> bool:
        return False


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

    A (phone, state) is a root. Afterwards leaves of one root whose merging costs less than the last split gained are
    merged, as in Kaldi.

    :param stats: statistics ``(1 + 2 D,)`` of each window (left, centre, right) and state that was seen.
    :param states: the number of HMM states of every phone, seen or not.
    :param unsplit: phones whose roots stay leaves (silence).
    :param min_count: frames that each side of a split must have.
    :raises RecipeError: where there are more roots than ``max_leaves``.
    """
    if max_leaves < sum(states.values()):
        raise RecipeError(
            f"gmm.tri.leaves: the phones have {sum(states.values())} HMM states, each at least a leaf of the tree; "
            f"found {max_leaves}"
        )
    dims = len(next(iter(stats.values())))
    by_root: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for window, state in sorted(stats):
        by_root.setdefault((window[1], state), []).append(window)
    size = max(states) + 1
    masks = np.zeros((len(questions), size), dtype=np.float64)
    for row, phones in enumerate(questions):
        masks[row, sorted(phones)] = 1
    roots: dict[tuple[int, int], Node] = {}
    heap: list[_Split] = []
    age = 0

    def consider(leaf: _Leaf) -> None:
        nonlocal age
        age += 1
        best = _best_split(leaf, masks, questions, size, min_count, variance_floor)
        if best is not None:
            heapq.heappush(heap, _Split(-best[0], age, leaf, best[1], best[2]))

    for phone in sorted(states):
        for state in range(states[phone]):
            contexts = by_root.get((phone, state), [])
            matrix = np.stack([stats[window, state] for window in contexts]) if contexts else np.zeros((0, dims))
            roots[phone, state] = Node()
            if phone not in unsplit:
                consider(_Leaf(roots[phone, state], contexts, matrix))
    leaves, last_gain = len(roots), 0.0
    while heap and leaves < max_leaves:
        split = heapq.heappop(heap)
        last_gain = -split.negative_gain
        leaf = split.leaf
        leaf.node.position, leaf.node.phones = split.position, split.phones
        leaf.node.yes, leaf.node.no = Node(), Node()
        answers = np.array([window[split.position] in split.phones for window in leaf.contexts])
        for node, mine in ((leaf.node.yes, answers), (leaf.node.no, ~answers)):
            contexts = [window for window, here in zip(leaf.contexts, mine, strict=True) if here]
            consider(_Leaf(node, contexts, leaf.stats[mine]))
        leaves += 1
    return _numbered(roots, by_root, stats, last_gain, variance_floor)


def _best_split(
    leaf: _Leaf,
    masks: np.ndarray,
    questions: Sequence[frozenset[int]],
    size: int,
    min_count: float,
    variance_floor: float,
) -> tuple[float, int, frozenset[int]] | None:
    """Gain, position and phones of the question that gains most; ``None`` where none gains anything."""
    if len(leaf.contexts) < 2:
        return None
    total = leaf.stats.sum(0)
    whole = gaussian_log_likelihood(total, variance_floor)
    best: tuple[float, int, frozenset[int]] | None = None
    for position in (LEFT, RIGHT):
        by_phone = np.zeros((size, leaf.stats.shape[1]))
        np.add.at(by_phone, [window[position] for window in leaf.contexts], leaf.stats)
        yes = masks @ by_phone
        no = total - yes
        gain = gaussian_log_likelihood(yes, variance_floor) + gaussian_log_likelihood(no, variance_floor) - whole
        gain[(yes[:, 0] < min_count) | (no[:, 0] < min_count)] = -np.inf
        question = int(np.argmax(gain))
        if gain[question] > 0 and (best is None or gain[question] > best[0]):
            best = float(gain[question]), position, questions[question]
    return best


def _numbered(
    roots: dict[tuple[int, int], Node],
    by_root: Mapping[tuple[int, int], list[tuple[int, ...]]],
    stats: Mapping[Context, np.ndarray],
    max_loss: float,
    variance_floor: float,
) -> Tree:
    """Merge leaves of a root while that costs less than ``max_loss``, then number the pdfs."""
    next_pdf = 0
    for (phone, state), root in sorted(roots.items()):
        leaves: dict[int, tuple[list[Node], np.ndarray | float]] = {}
        for window in by_root.get((phone, state), []):
            leaf = root.find(window)
            nodes, sums = leaves.get(id(leaf), ([leaf], 0.0))
            leaves[id(leaf)] = nodes, sums + stats[window, state]
        groups = list(leaves.values())
        while len(groups) > 1:
            matrix = np.stack([sums for _, sums in groups])
            own = gaussian_log_likelihood(matrix, variance_floor)
            loss = own[:, None] + own[None] - gaussian_log_likelihood(matrix[:, None] + matrix[None], variance_floor)
            loss[np.tril_indices(len(groups))] = np.inf
            first, second = (int(i) for i in np.unravel_index(np.argmin(loss), loss.shape))
            if loss[first, second] >= max_loss * (1 - _ROUNDING):
                break
            nodes, sums = groups.pop(second)
            groups[first] = groups[first][0] + nodes, groups[first][1] + sums
        for nodes, _ in groups or [([root], 0.0)]:
            for node in nodes:
                node.pdf = next_pdf
            next_pdf += 1
    return Tree(3, roots, next_pdf)
