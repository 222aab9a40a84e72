"""The decoding graph HCLG: HMM states, phonetic context, lexicon and grammar as one transducer.

    python -m local.graph --lang lang --grammar lm/G.fst --model align/tri4/35/model.pt \\
        --conf '{"transition_scale": 1.0, "self_loop_scale": 0.1}' --out graph/tri4/HCLG.fst

Input labels are pdf-id + 1, one a frame; output labels are word ids. As in Kaldi's ``mkgraph.sh``, the graph is
determinized and minimized without the HMMs' self-loops, and these come last.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import kaldifst

from local.cli import RecipeError, parse_conf, run
from local.files import atomic_path, write_text
from local.hmm.model import HmmArc, HmmModel
from local.lexicon import Lang

Fst = kaldifst.StdVectorFst


@dataclass(frozen=True)
class GraphConf:
    """How transition probabilities weigh against the language model."""

    transition_scale: float  # of transitions between states, given that the state is left
    self_loop_scale: float  # of staying in a state or leaving it


class PhoneHmms(Protocol):
    """The part of :class:`HmmModel` that a graph is made of."""

    @property
    def context_width(self) -> int: ...

    def hmm(self, window: tuple[int, ...]) -> list[HmmArc]: ...


class StateLabel(NamedTuple):
    """An HMM state as the graph's input label while the self-loops are not yet in."""

    pdf: int
    stay: float  # log-probability of the self-loop; -inf where there is none


def count_arcs(fst: Fst) -> int:
    """The number of arcs."""
    return sum(fst.num_arcs(state) for state in range(fst.num_states))


def map_arcs(fst: Fst, change: Callable[[int, int, float], tuple[int, int, float]]) -> Fst:
    """Copy a transducer with ``change`` applied to input label, output label and cost of every arc."""
    changed = _states_of(fst)
    for state in range(fst.num_states):
        for arc in kaldifst.ArcIterator(fst, state):
            ilabel, olabel, cost = change(arc.ilabel, arc.olabel, arc.weight.value)
            changed.add_arc(state, kaldifst.StdArc(ilabel, olabel, cost, arc.nextstate))
    return changed


def _states_of(fst: Fst) -> Fst:
    """A transducer with the same states, start and final costs, without arcs."""
    copy = Fst()
    for state in range(fst.num_states):
        copy.add_state()
        copy.set_final(state, fst.final(state))
    copy.start = fst.start
    return copy


def hmm_transducer(
    windows: list[list[int]], model: PhoneHmms, transition_scale: float
) -> tuple[Fst, list[StateLabel], dict[int, int], set[int]]:
    """Build H without self-loops: from state labels to phones in context, any number of these.

    :param windows: what C's input labels mean: a window of phone ids; something else for disambiguation symbols.
    :return: H; its state labels (input label ``i + 1`` means the one at ``i``); for each of C's labels the one that
        stands for it, since phones in context with equal HMMs are one; and H's input labels for disambiguation.
    """
    h = Fst()
    loop = h.add_state()
    h.start = loop
    h.set_final(loop, 0.0)
    labels: dict[StateLabel, int] = {}
    same: dict[int, int] = {0: 0}
    first_with: dict[tuple[tuple[int, int, int, float], ...], int] = {}
    special: list[int] = []
    width = model.context_width
    for number, window in enumerate(windows[1:], 1):
        if len(window) != width or window[width // 2] <= 0:
            same[number] = number
            special.append(number)
            continue
        hmm = model.hmm(tuple(window))
        stay = {arc.source: arc.log_prob for arc in hmm if arc.source == arc.target}
        moves = []
        for arc in hmm:
            if arc.source != arc.target:
                label = StateLabel(arc.pdf, stay.get(arc.source, -math.inf))
                cost = -transition_scale * (arc.log_prob - math.log1p(-math.exp(label.stay)))
                moves.append((arc.source, arc.target, labels.setdefault(label, len(labels) + 1), cost))
        same[number] = first_with.setdefault(tuple(moves), number)
        if same[number] != number:
            continue
        final = max(target for _, target, _, _ in moves)
        states = [h.add_state() for _ in range(final)] + [loop]
        h.add_arc(loop, kaldifst.StdArc(0, number, 0.0, states[0]))
        for source, target, label_id, cost in moves:
            h.add_arc(states[source], kaldifst.StdArc(label_id, 0, cost, states[target]))
    disambiguation = set()
    for label_id, number in enumerate(special, len(labels) + 1):
        h.add_arc(loop, kaldifst.StdArc(label_id, number, 0.0, loop))
        disambiguation.add(label_id)
    return h, list(labels), same, disambiguation


def add_self_loops(fst: Fst, labels: list[StateLabel], scale: float) -> Fst:
    """Put in the self-loops, and pdf-id + 1 for the state labels on the input side.

    A frame more in the HMM state that an arc has just left is a loop where the arc ends. States that arcs with several
    labels enter are entered through a state of each label's own.
    """
    looped = _states_of(fst)
    entered_by: list[set[int]] = [set() for _ in range(fst.num_states)]
    entered_by[fst.start].add(0)
    for state in range(fst.num_states):
        for arc in kaldifst.ArcIterator(fst, state):
            entered_by[arc.nextstate].add(arc.ilabel)

    def add_loop(state: int, label: StateLabel) -> None:
        if label.stay > -math.inf:
            looped.add_arc(state, kaldifst.StdArc(label.pdf + 1, 0, -scale * label.stay, state))

    gates: dict[tuple[int, int], int] = {}
    for state, entering in enumerate(entered_by):
        for label_id in sorted(entering - {0}):
            gate = state
            if len(entering) > 1:
                gate = looped.add_state()
                looped.add_arc(gate, kaldifst.StdArc(0, 0, 0.0, state))
            gates[state, label_id] = gate
            add_loop(gate, labels[label_id - 1])
    for state in range(fst.num_states):
        for arc in kaldifst.ArcIterator(fst, state):
            ilabel, cost, target = 0, arc.weight.value, arc.nextstate
            if arc.ilabel:
                label = labels[arc.ilabel - 1]
                ilabel, target = label.pdf + 1, gates[target, arc.ilabel]
                cost -= scale * math.log1p(-math.exp(label.stay))
            looped.add_arc(state, kaldifst.StdArc(ilabel, arc.olabel, cost, target))
    return looped


def build(lang: Lang, lexicon: Fst, grammar: Fst, model: PhoneHmms, conf: GraphConf) -> tuple[Fst, dict[str, dict[str, float]]]:
    """Build HCLG.

    :param lexicon: L with disambiguation symbols; its arcs are sorted here.
    :param grammar: G with ``#0`` on its back-off arcs; its arcs are sorted here.
    :return: the graph and, of each step, states, arcs and seconds.
    :raises RecipeError: where lexicon and grammar have no word in common.
    """
    log: dict[str, dict[str, float]] = {}
    began = time.perf_counter()

    def done(name: str, fst: Fst) -> None:
        nonlocal began
        seconds = round(time.perf_counter() - began, 2)
        log[name] = {"states": fst.num_states, "arcs": count_arcs(fst), "seconds": seconds}
        print(f"{name}: {log[name]}", file=sys.stderr, flush=True)
        began = time.perf_counter()

    kaldifst.arcsort(lexicon, "olabel")
    kaldifst.arcsort(grammar, "ilabel")
    graph = Fst(kaldifst.compose(lexicon, grammar))
    if graph.start < 0:
        raise RecipeError("the decoding graph is empty: the grammar allows no word that the lexicon has")
    kaldifst.determinize_star(graph, use_log=True)
    kaldifst.minimize_encoded(graph)
    done("LG", graph)
    width = model.context_width
    graph, windows = kaldifst.compose_context(sorted(lang.disambiguation.values()), width, width // 2, graph)
    h, labels, same, disambiguation = hmm_transducer(windows, model, conf.transition_scale)
    graph = map_arcs(graph, lambda ilabel, olabel, cost: (same[ilabel], olabel, cost))
    done("CLG", graph)
    kaldifst.arcsort(h, "olabel")
    kaldifst.arcsort(graph, "ilabel")
    graph = Fst(kaldifst.compose(h, graph))
    kaldifst.determinize_star(graph, use_log=True)
    graph = map_arcs(graph, lambda ilabel, olabel, cost: (0 if ilabel in disambiguation else ilabel, olabel, cost))
    kaldifst.minimize_encoded(graph)
    done("HCLG without self-loops", graph)
    graph = add_self_loops(graph, labels, conf.self_loop_scale)
    done("HCLG", graph)
    return graph, log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--lang", "--grammar", "--model", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of GraphConf")
    arguments = parser.parse_args()
    conf = parse_conf(GraphConf, arguments.conf)
    lexicon, grammar = (Fst.read(str(path)) for path in (arguments.lang / "L_disambig.fst", arguments.grammar))
    model = HmmModel.load(arguments.model)
    graph, log = build(Lang.read(arguments.lang), lexicon, grammar, model, conf)
    with atomic_path(arguments.out) as temporary:
        graph.write(str(temporary))
    write_text(arguments.out.with_suffix(".json"), json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
