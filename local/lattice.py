"""Word lattices: what was heard nearly as well as the best words, with the costs of graph and sound apart.

So scales and penalties are tuned, a larger language model is tried and words get a confidence without another search.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import pathlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple, Protocol

import numpy as np

from local.cli import RecipeError
from local.lexicon import BOS, EOS
from local.search import StateLattice

_FINAL = -1  # as target: the end
_QUANTUM = 1 / 256  # subsets of nodes whose costs differ by less are one state of the lattice
_MAX_ARCS = 20_000  # beyond it an utterance's lattice is made with a narrower beam
_NARROWER = 0.7
_TOLERANCE = 1e-6  # of a path's cost, added up in two orders

_Subset = tuple[tuple[int, int, int], ...]  # nodes with their costs above the subset's lowest, in quanta


class Point(NamedTuple):
    """How the parts of a cost weigh."""

    acoustic_scale: float  # factor on log-likelihoods
    insertion_penalty: float  # cost of each word

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return f"{self.acoustic_scale:g}_{self.insertion_penalty:g}"

    @staticmethod
    def read(path: pathlib.Path) -> Point:
        """The best one, as :mod:`local.tune` has written it."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return Point(content["acoustic_scale"], content["insertion_penalty"])


class LanguageModel(Protocol):
    """The part of an n-gram model that rescoring needs."""

    @property
    def order(self) -> int: ...

    def log10_prob(self, history: tuple[str, ...], word: str) -> float: ...


class Path(NamedTuple):
    """A way through a lattice."""

    cost: float
    words: tuple[int, ...]


@dataclass(frozen=True)
class Lattice:
    """A deterministic acceptor of word ids: N states in topological order, the first the start, and A arcs.

    Each word sequence has one path, with the costs of its best way through the graph at the scale of the search.
    """

    source: np.ndarray  # (A,) int32, ascending
    target: np.ndarray  # (A,) int32; -1: the end
    word: np.ndarray  # (A,) int32; 0 on arcs to the end
    graph: np.ndarray  # (A,) float32 cost of language model, pronunciations, silence and transitions
    acoustic: np.ndarray  # (A,) float32 minus log-likelihood, not scaled

    def matrix(self) -> np.ndarray:
        """As an archive holds it: ``(A, 5)`` float32, a row an arc."""
        return np.column_stack([self.source, self.target, self.word, self.graph, self.acoustic]).astype(np.float32)

    @staticmethod
    def of_matrix(matrix: np.ndarray, where: str) -> Lattice:
        """From a :meth:`matrix`.

        :param where: the utterance, for the message.
        :raises RecipeError: where it is none.
        """
        if matrix.ndim != 2 or matrix.shape[1] != 5 or not len(matrix) or not np.isfinite(matrix).all():
            raise RecipeError(f"{where}: expected a lattice, rows of 5 finite numbers, found {matrix.shape}; decode again")
        source, target, word = matrix[:, :3].astype(np.int32).T
        if (np.diff(source) < 0).any() or (target[target != _FINAL] <= source[target != _FINAL]).any() or source[0] != 0:
            raise RecipeError(f"{where}: a lattice whose states are not in order; decode again")
        return Lattice(source, target, word, matrix[:, 3], matrix[:, 4])

    def _costs(self, point: Point) -> np.ndarray:
        costs = self.graph + np.float64(point.acoustic_scale) * self.acoustic
        return costs + point.insertion_penalty * (self.word > 0)

    def _by_state(self, *costs: np.ndarray) -> list[list[tuple[Any, ...]]]:
        """Of each state the arcs that leave it: target, word, costs."""
        arcs: list[list[tuple[Any, ...]]] = [[] for _ in range(int(self.source[-1]) + 1)]
        columns = (self.source, self.target, self.word, *costs)
        for source, *rest in zip(*(column.tolist() for column in columns), strict=True):
            arcs[source].append(tuple(rest))
        return arcs

    def paths(self, point: Point) -> Iterator[Path]:
        """All paths, the best first: A* with the exact rest of each path's cost."""
        arcs = self._by_state(self._costs(point))
        rest = [math.inf] * len(arcs) + [0.0]  # the last is the end, -1
        for state in reversed(range(len(arcs))):
            rest[state] = min(cost + rest[target] for target, _, cost in arcs[state])
        queue: list[tuple[float, tuple[int, ...], int, float]] = [(rest[0], (), 0, 0.0)]
        while queue:
            total, words, state, cost = heapq.heappop(queue)
            if state == _FINAL:
                yield Path(total, words)
                continue
            for target, word, own in arcs[state]:
                longer = (*words, word) if word else words
                heapq.heappush(queue, (cost + own + rest[target], longer, target, cost + own))

    def best(self, point: Point) -> tuple[int, ...]:
        """The words of the best path."""
        return next(self.paths(point)).words

    def confidences(self, point: Point, paths: int) -> tuple[tuple[int, ...], list[float]]:
        """The best path's words, and of each the posterior probability that it was said there.

        It is the sum over the best ``paths`` of those with the same word at that place of an alignment to the best.
        """
        found = list(itertools.islice(self.paths(point), paths))
        weights = np.exp([found[0].cost - path.cost for path in found])
        weights /= weights.sum()
        words = found[0].words
        confidence = np.zeros(len(words))
        for path, weight in zip(found, weights, strict=True):
            for block in SequenceMatcher(None, words, path.words, autojunk=False).get_matching_blocks():
                confidence[block.a : block.a + block.size] += weight
        return words, np.minimum(confidence, 1).tolist()

    def rescored(self, old: LanguageModel, new: LanguageModel, names: dict[int, str]) -> Lattice:
        """Take one language model's costs out of the graph's and put another's in.

        States of different histories become states of their own, as far as the models tell them apart.

        :raises RecipeError: for a word that one of the models lacks.
        """
        keep = max(old.order, new.order) - 1
        arcs = self._by_state(self.graph, self.acoustic)
        states: list[dict[tuple[str, ...], int]] = [{} for _ in arcs]
        states[0][(BOS,)] = 0
        count = itertools.count(1)
        rows = []
        for state, histories in enumerate(states):
            for history, number in histories.items():
                for target, word, graph, acoustic in arcs[state]:
                    name = names[word] if word else EOS
                    change = old.log10_prob(history, name) - new.log10_prob(history, name)
                    if not math.isfinite(change):
                        raise RecipeError(f"the word {name} is not in both language models; make one of the other by pruning")
                    if target != _FINAL:
                        longer = (*history, name)[-keep:] if keep else ()
                        if longer not in states[target]:
                            states[target][longer] = next(count)
                        target = states[target][longer]
                    rows.append((number, target, word, graph + change * math.log(10), acoustic))
        return _in_order(rows)


def _in_order(rows: list[tuple[int, int, int, float, float]]) -> Lattice:
    """A lattice of arcs between states with any numbers, listed state by state in topological order."""
    rank: dict[int, int] = {_FINAL: _FINAL}
    for row in rows:
        rank.setdefault(row[0], len(rank) - 1)
    matrix = np.array([(rank[source], rank[target], *rest) for source, target, *rest in rows])
    return Lattice(*matrix[:, :3].astype(np.int32).T, *matrix[:, 3:].astype(np.float32).T)


_Part = tuple[float, float]  # of a stretch of a path: cost at the search's scale, and how much of it is the graph's


def _lower(parts: dict[Any, _Part], key: Any, part: _Part) -> None:
    """Set the part of a key, unless there is a cheaper one."""
    if key not in parts or part < parts[key]:
        parts[key] = part


def word_lattice(states: StateLattice, scale: float, beam: float) -> Lattice:
    """Determinize: one path a word sequence, those no more than ``beam`` above the best.

    First, what lies between two words becomes one arc; then the subset construction (Mohri 1997) with the costs of
    graph and sound side by side, as in Povey et al. 2012, "Generating exact lattices in the WFST framework".
    """
    between = _Between(states, scale, beam)
    while True:
        lattice = _determinize(between, scale, beam)
        if lattice is not None:
            return lattice
        beam *= _NARROWER


class _Between:
    """The lattice's nodes right behind words, the start among them, and arcs of one word each between these."""

    def __init__(self, states: StateLattice, scale: float, beam: float) -> None:
        count = 1 + max(int(states.target.max(initial=0)), *states.final)
        leaving: list[list[tuple[float, int, int, float, float]]] = [[] for _ in range(count)]
        cost = states.graph.astype(np.float64) + scale * states.acoustic
        columns = (states.source, states.target, states.word, cost, states.graph)
        arcs = list(zip(*(column.tolist() for column in columns), strict=True))
        start = [0.0] + [math.inf] * (count - 1)
        for source, target, _, whole, _ in arcs:
            start[target] = min(start[target], start[source] + whole)
        rest = [states.final.get(node, math.inf) for node in range(count)]  # cost from each node to the end
        for source, target, word, whole, graph in reversed(arcs):
            rest[source] = min(rest[source], whole + rest[target])
            leaving[source].append((whole + rest[target], target, word, whole, graph))
        limit = rest[0] + beam + _TOLERANCE
        entries = {0, *(target for _, target, word, _, _ in arcs if word)}
        self.rest = rest
        self.arcs: defaultdict[int, dict[tuple[int, int], _Part]] = defaultdict(dict)  # of an entry: by target and word
        self.final: dict[int, _Part] = {}
        inside: list[dict[int, _Part]] = [{} for _ in range(count)]  # best way from each entry to a node without a word
        for node in range(count):
            ways, inside[node] = inside[node], {}
            if node in entries:
                ways[node] = (0.0, 0.0)
            leaving[node].sort()
            for entry, (so_far, graph_so_far) in ways.items():
                room = limit - start[entry] - so_far
                for at_least, target, word, whole, graph in leaving[node]:
                    if at_least > room:
                        break
                    through = so_far + whole, graph_so_far + graph
                    if word:
                        _lower(self.arcs[entry], (target, word), through)
                    else:
                        _lower(inside[target], entry, through)
                if node in states.final:
                    _lower(self.final, entry, (so_far + states.final[node], graph_so_far + states.final[node]))


def _determinize(between: _Between, scale: float, beam: float) -> Lattice | None:
    """The subset construction; ``None`` where the lattice would have too many arcs."""
    rest, limit = between.rest, between.rest[0] + beam + _TOLERANCE
    first: _Subset = ((0, 0, 0),)
    parts: dict[_Subset, dict[int, _Part]] = {first: {0: (0.0, 0.0)}}
    numbers, cost_to = {first: 0}, {first: 0.0}
    queue = [(0, first)]  # by the lowest node: an order in which no arc goes back
    rows: list[tuple[int, int, int, float, float]] = []
    while queue:
        _, subset = heapq.heappop(queue)
        own, so_far = numbers[subset], cost_to[subset]
        reached: defaultdict[int, dict[int, _Part]] = defaultdict(dict)  # by word
        end: dict[int, _Part] = {}
        for node, (cost, graph) in parts.pop(subset).items():
            for (target, word), (more, more_graph) in between.arcs[node].items():
                _lower(reached[word], target, (cost + more, graph + more_graph))
            if node in between.final:
                _lower(end, _FINAL, (cost + between.final[node][0], graph + between.final[node][1]))
        whole = {word: min(cost + rest[node] for node, (cost, _) in nodes.items()) for word, nodes in reached.items()}
        if end:
            whole[0] = end[_FINAL][0]
        most = max(limit - so_far, min(whole.values()))  # a state that costs were rounded for keeps its best way
        if end and whole[0] <= most:
            cost, graph = end[_FINAL]
            rows.append((own, _FINAL, 0, graph, (cost - graph) / scale))
        for word, nodes in sorted(reached.items()):
            if whole[word] > most:
                continue
            near = {node: part for node, part in sorted(nodes.items()) if part[0] + rest[node] <= whole[word] + beam}
            cost, graph = min(near.values())
            left = {node: (its_cost - cost, its_graph - graph) for node, (its_cost, its_graph) in near.items()}
            key = tuple((node, round(c / _QUANTUM), round(g / _QUANTUM)) for node, (c, g) in left.items())
            if key not in numbers:
                numbers[key], parts[key] = len(numbers), left
                heapq.heappush(queue, (min(left), key))
            cost_to[key] = min(cost_to.get(key, math.inf), so_far + cost)
            rows.append((own, numbers[key], word, graph, (cost - graph) / scale))
        if len(rows) > _MAX_ARCS:
            return None
    return _in_order(rows)
