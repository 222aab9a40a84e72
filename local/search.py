"""Beam search: the states of a decoding graph that frames go through best, and all ways nearly as good, as a lattice.

Tokens of a frame live in tensors, so a frame is a handful of operations on all of them at once, on a CPU or a GPU. Packages
for this search (kaldi-decoder) give the best path alone, or a lattice without a limit to the tokens of a frame.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from local.cli import RecipeError
from local.fst import FstArrays

_TOLERANCE = 1e-3  # of costs along one path, added up in two orders in single precision


@dataclass(frozen=True)
class SearchConf:
    """How widely the search looks. Costs are negative natural logarithms, acoustic ones scaled."""

    beam: float  # above the best token of a frame
    max_active: int  # tokens of a frame
    lattice_beam: float  # above the best path


@dataclass(frozen=True)
class StateLattice:
    """Paths of an utterance through the graph: N nodes, each a graph's state at a frame, and A arcs between them.

    Nodes are in topological order; node 0 is the start.
    """

    source: np.ndarray  # (A,) ascending
    target: np.ndarray  # (A,)
    word: np.ndarray  # (A,) word ids; 0: none
    graph: np.ndarray  # (A,) cost
    acoustic: np.ndarray  # (A,) minus log-likelihood, not scaled; 0 where no frame is used up
    final: dict[int, float]  # graph cost of ending at a node
    complete: bool  # else no path ends in a final state of the graph: the best ones that do not are taken


class OutOfTimeError(Exception):
    """The search took longer than it may."""


class BeamSearch:
    """Searches one graph, one utterance at a time."""

    def __init__(self, graph: FstArrays, device: str = "cpu") -> None:
        """:raises RecipeError: where a path of epsilons comes back to its start."""
        if graph.has_epsilon_cycle():
            raise RecipeError("the decoding graph has a cycle of epsilons: no search of it ends")
        self.start, self.num_states = graph.start, graph.num_states
        emits = graph.ilabel > 0
        # each state's epsilons first, so that both kinds are ranges of arcs
        order = np.lexsort((emits, graph.source))
        self._words, self._costs = graph.olabel[order], graph.cost[order]  # for lattices, which are made on the CPU

        def on_device(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.array(values)).to(device)

        epsilons = np.bincount(graph.source[~emits], minlength=graph.num_states)
        self._epsilons = on_device(graph.offsets[:-1]), on_device(epsilons)
        self._emitting = on_device(graph.offsets[:-1] + epsilons), on_device(np.diff(graph.offsets) - epsilons)
        self._pdf = on_device(graph.ilabel[order] - 1)
        self._next = on_device(graph.nextstate[order])
        self._cost = on_device(self._costs)
        self._final = on_device(graph.final)
        self._depth = _epsilon_depth(graph, emits)
        self._best = torch.full((graph.num_states,), math.inf, device=device)  # between searches always all inf
        self._place = torch.zeros(graph.num_states, dtype=torch.int64, device=device)
        self.highest_pdf = int(graph.ilabel.max(initial=0)) - 1

    @torch.inference_mode()
    def __call__(
        self, log_likelihoods: np.ndarray | Tensor, scale: float, conf: SearchConf, seconds: float = math.inf
    ) -> StateLattice:
        """Search an utterance.

        :param log_likelihoods: ``(frames, pdfs)``, at least one frame.
        :param scale: what they are multiplied by.
        :raises OutOfTimeError: after so many ``seconds``.
        """
        began = time.monotonic()
        scores = torch.as_tensor(log_likelihoods, device=self._cost.device)
        if scores.shape[1] <= self.highest_pdf:
            raise RecipeError(f"a graph of {self.highest_pdf + 1} pdfs or more, log-likelihoods of {scores.shape[1]}")
        scaled = scale * (scores.amax(1, keepdim=True) - scores)  # of the best pdf 0: sums stay small, and so their errors
        try:
            trace = self._forward(scaled, conf, began + seconds)
        except BaseException:
            self._best.fill_(math.inf)
            raise
        return self._lattice(scores, scaled, conf.lattice_beam, *trace)

    def _forward(
        self, scaled: Tensor, conf: SearchConf, deadline: float
    ) -> tuple[list[Tensor], list[Tensor], list[tuple[Tensor, Tensor, Tensor]], list[tuple[Tensor, Tensor, Tensor]]]:
        """Go through the frames; return after each frame, and before the first, the tokens' states and costs, the links
        by which they were reached from the frame before, and those of epsilons between them.

        A link is the places of two tokens and an arc.
        """
        best = self._best
        tokens = torch.tensor([self.start], device=best.device)
        best[tokens] = 0.0
        none = tokens[:0]
        arrived = none, none, none, best[none]
        states, costs, links, epsilon_links = [], [], [], []
        cutoff = torch.tensor(conf.beam, device=best.device)
        frame = 0
        while True:
            tokens = self._close(tokens, cutoff)
            cost = best[tokens]
            self._place[tokens] = torch.arange(len(tokens), device=best.device)
            place, arc = _expand(*self._epsilons, tokens)
            reached = self._next[arc].long()
            epsilon_links.append(self._near(place, reached, arc, cost[place] + self._cost[arc], conf.lattice_beam))
            links.append(self._near(*arrived, conf.lattice_beam))
            states.append(tokens)
            costs.append(cost)
            best[tokens] = math.inf
            if frame == len(scaled):
                return states, costs, links, epsilon_links
            if time.monotonic() > deadline:
                raise OutOfTimeError
            kept = torch.arange(len(tokens), device=best.device)
            if len(tokens) > conf.max_active:
                kept = (cost <= cost.kthvalue(conf.max_active)[0]).nonzero()[:, 0]
            place, arc = _expand(*self._emitting, tokens[kept])
            from_place = kept[place]
            new = cost[from_place] + self._cost[arc] + scaled[frame][self._pdf[arc]]
            if not len(new):
                raise RecipeError("the decoding graph has a state that no arc leaves: it is damaged, make it anew")
            cutoff = new.min() + conf.beam
            within = new <= cutoff
            arc, from_place, new = arc[within], from_place[within], new[within]
            reached = self._next[arc].long()
            best.scatter_reduce_(0, reached, new, "amin")
            arrived = from_place, reached, arc, new
            tokens = self._distinct(reached)
            frame += 1

    def _close(self, tokens: Tensor, cutoff: Tensor) -> Tensor:
        """Add the states that epsilons lead to; better ways to states that are there lower their costs."""
        front = tokens
        while len(front):
            place, arc = _expand(*self._epsilons, front)
            new = self._best[front[place]] + self._cost[arc]
            reached = self._next[arc].long()
            before = self._best[reached]
            better = (new < before) & (new <= cutoff)
            reached, new, fresh = reached[better], new[better], before[better].isinf()
            self._best.scatter_reduce_(0, reached, new, "amin")
            tokens = torch.cat([tokens, self._distinct(reached[fresh])])
            front = self._distinct(reached)
        return tokens

    def _distinct(self, states: Tensor) -> Tensor:
        """Each state once."""
        own = torch.arange(len(states), device=states.device)
        self._place[states] = own
        return states[self._place[states] == own]

    def _near(
        self, place: Tensor, reached: Tensor, arc: Tensor, cost: Tensor, lattice_beam: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The links that end near enough the best way to their token to be part of the lattice."""
        near = cost <= self._best[reached] + lattice_beam  # inf where there is no token
        near &= ~self._best[reached].isinf()
        return place[near].int(), self._place[reached[near]].int(), arc[near].int()

    def _lattice(
        self,
        scores: Tensor,
        scaled: Tensor,
        lattice_beam: float,
        states: list[Tensor],
        costs: list[Tensor],
        links: list[tuple[Tensor, Tensor, Tensor]],
        epsilon_links: list[tuple[Tensor, Tensor, Tensor]],
    ) -> StateLattice:
        """Go back through the frames and keep the links of paths within the lattice beam of the best one."""
        ends = self._final[states[-1]]
        complete = not bool((costs[-1] + ends).isinf().all())
        if not complete:
            ends = torch.zeros_like(ends)
        limit = (costs[-1] + ends).min() + lattice_beam + _TOLERANCE * math.sqrt(len(scaled))
        beyond = ends  # cost from each token of a frame to the end
        kept = []
        offsets = np.cumsum([0, *map(len, states)])
        for frame in range(len(scaled), -1, -1):
            source, target, arc = (part.long() for part in epsilon_links[frame])
            cost = self._cost[arc]
            while len(arc):  # until nothing changes: the longest path of epsilons is short
                before = beyond
                beyond = before.scatter_reduce(0, source, cost + before[target], "amin")
                if torch.equal(before, beyond):
                    break
            keep = costs[frame][source] + cost + beyond[target] <= limit
            kept.append((frame, frame, source[keep], target[keep], arc[keep], torch.zeros_like(cost[keep])))
            if frame == 0:
                break
            source, target, arc = (part.long() for part in links[frame])
            pdf = self._pdf[arc].long()
            cost = self._cost[arc] + scaled[frame - 1][pdf] + beyond[target]
            beyond = torch.full_like(costs[frame - 1], math.inf).scatter_reduce(0, source, cost, "amin")
            keep = costs[frame - 1][source] + cost <= limit
            kept.append((frame - 1, frame, source[keep], target[keep], arc[keep], -scores[frame - 1][pdf[keep]]))
        source, target, arc, acoustic = ([] for _ in range(4))
        for from_frame, to_frame, *columns in kept:
            from_place, to_place, arcs, minus_log_likelihood = (column.cpu().numpy() for column in columns)
            source.append(offsets[from_frame] + from_place)
            target.append(offsets[to_frame] + to_place)
            arc.append(arcs)
            acoustic.append(minus_log_likelihood)
        source, target, arc, acoustic = map(np.concatenate, (source, target, arc, acoustic))
        frames = np.repeat(np.arange(len(states)), np.diff(offsets))
        depth = self._depth[np.concatenate([tokens.cpu().numpy() for tokens in states])]
        last = offsets[-2] + np.flatnonzero((costs[-1] + ends <= limit).cpu().numpy())
        nodes = np.unique(np.concatenate([[0], source, target, last]))
        nodes = nodes[np.lexsort((depth[nodes], frames[nodes]))]
        rank = np.zeros(offsets[-1], dtype=np.int64)
        rank[nodes] = np.arange(len(nodes))
        order = np.argsort(rank[source], kind="stable")
        arc = arc[order]
        return StateLattice(
            rank[source][order],
            rank[target][order],
            self._words[arc],
            self._costs[arc],
            acoustic[order],
            dict(zip(rank[last].tolist(), ends.cpu().numpy()[last - offsets[-2]].tolist(), strict=True)),
            complete,
        )


def _expand(first: Tensor, number: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """All arcs of a kind that leave ``states``: for each the place of its state, and the arc."""
    numbers = number[states]
    place = torch.repeat_interleave(numbers)
    before = numbers.cumsum(0) - numbers
    return place, torch.arange(len(place), device=states.device) + (first[states] - before)[place]


def _epsilon_depth(graph: FstArrays, emits: np.ndarray) -> np.ndarray:
    """The most epsilons in a row that lead to each state, ``(S,)``: an order in which none leads back."""
    source, target = graph.source[~emits], graph.nextstate[~emits]
    depth = np.zeros(graph.num_states, dtype=np.int32)
    while (short := (below := depth[source] + 1) > depth[target]).any():
        np.maximum.at(depth, target[short], below[short])
    return depth
