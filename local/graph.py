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
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import kaldifst
import numpy as np

from local.cli import RecipeError, parse_conf, run
from local.files import write_text
from local.fst import Fst, FstArrays
from local.hmm.model import HmmArc, HmmModel
from local.hmm.tree import NO_PHONE
from local.lexicon import Lang


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


def hmm_transducer(windows: list[list[int]], model: PhoneHmms, transition_scale: float) -> tuple[Fst, list[StateLabel]]:
    """Build H without self-loops: from state labels to phones in context, any number of these.

    Phones in context with equal HMMs share one, which each enters by an arc of its own.

    :param windows: what C's input labels mean: a window of phone ids; something else for disambiguation symbols.
    :return: H and its state labels: input label ``i + 1`` means the one at ``i``; higher ones are for disambiguation.
    """
    h = Fst()
    loop = h.add_state()
    h.start = loop
    h.set_final(loop, 0.0)
    labels: dict[StateLabel, int] = {}
    entries: dict[tuple[tuple[int, int, int, float], ...], int] = {}  # an HMM's arcs to its first state in H
    special: list[int] = []
    width = model.context_width
    for number, window in enumerate(windows[1:], 1):
        if len(window) != width or window[width // 2] <= 0:
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
        key = tuple(moves)
        if key not in entries:
            final = max(target for _, target, _, _ in moves)
            states = [h.add_state() for _ in range(final)] + [loop]
            for source, target, label_id, cost in moves:
                h.add_arc(states[source], kaldifst.StdArc(label_id, 0, cost, states[target]))
            entries[key] = states[0]
        h.add_arc(loop, kaldifst.StdArc(0, number, 0.0, entries[key]))
    for label_id, number in enumerate(special, len(labels) + 1):
        h.add_arc(loop, kaldifst.StdArc(label_id, number, 0.0, loop))
    return h, list(labels)


def add_self_loops(graph: FstArrays, labels: list[StateLabel], scale: float) -> FstArrays:
    """Put in the self-loops, and pdf-id + 1 for the state labels on the input side; other labels become epsilon.

    A frame more in the HMM state that an arc has just left is a loop where the arc ends. States that arcs with several
    labels enter are entered through a state of each label's own.
    """
    ilabel = np.array([0] + [label.pdf + 1 for label in labels], np.int32)
    stay = np.array([-math.inf] + [label.stay for label in labels])
    count = len(ilabel)
    arrivals = np.append(graph.nextstate * np.int64(count) + graph.ilabel, graph.start * count)
    arrivals, arrival = np.unique(arrivals, return_inverse=True)
    state, label = np.divmod(arrivals, count)
    own = (label > 0) & (np.bincount(state)[state] > 1)
    gate = state.astype(np.int32)
    gate[own] = graph.num_states + np.arange(own.sum())
    loops = stay[label] > -math.inf
    leave = -scale * np.log1p(-np.exp(stay))
    parts = [  # source, input and output label, cost, target
        (gate[loops], ilabel[label[loops]], 0, -scale * stay[label[loops]], gate[loops]),
        (gate[own], 0, 0, 0.0, state[own]),
        (graph.source, ilabel[graph.ilabel], graph.olabel, graph.cost + leave[graph.ilabel], gate[arrival[:-1]]),
    ]
    columns = (np.concatenate([np.broadcast_to(part[i], part[0].shape) for part in parts]) for i in range(5))
    return FstArrays.of_arcs(graph.start, np.append(graph.final, np.full(own.sum(), np.inf)), *columns)


def build(
    lang: Lang, lexicon: FstArrays, grammar: FstArrays, model: PhoneHmms, conf: GraphConf
) -> tuple[FstArrays, dict[str, dict[str, float]]]:
    """Build HCLG.

    :param lexicon: L with disambiguation symbols.
    :param grammar: G with ``#0`` on its back-off arcs.
    :return: the graph and, of each step, states, arcs, seconds and the process's highest memory until then; of LG and of
        HCLG without self-loops :func:`properties`, too.
    :raises RecipeError: where lexicon and grammar have no word in common.
    """
    log: dict[str, dict[str, float]] = {}
    began = time.perf_counter()

    def done(name: str, arrays: FstArrays, minimized: bool = False) -> None:
        nonlocal began
        log[name] = {
            "states": arrays.num_states,
            "arcs": arrays.num_arcs,
            "seconds": round(time.perf_counter() - began, 2),
            "peak_GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        }
        if minimized:
            log[name] |= properties(arrays)
        print(f"{name}: {log[name]}", file=sys.stderr, flush=True)
        began = time.perf_counter()

    left, right = lexicon.to_fst(), grammar.to_fst()
    kaldifst.arcsort(left, "olabel")
    kaldifst.arcsort(right, "ilabel")
    graph = Fst(kaldifst.compose(left, right))
    if graph.start < 0:
        raise RecipeError("the decoding graph is empty: the grammar allows no word that the lexicon has")
    kaldifst.determinize_star(graph, use_log=True)
    kaldifst.minimize_encoded(graph)
    done("LG", FstArrays.of(graph), minimized=True)
    width = model.context_width
    graph, windows = kaldifst.compose_context(sorted(lang.disambiguation.values()), width, width // 2, graph)
    done("CLG", FstArrays.of(graph))
    h, labels = hmm_transducer(windows, model, conf.transition_scale)
    kaldifst.arcsort(h, "olabel")
    kaldifst.arcsort(graph, "ilabel")
    graph = Fst(kaldifst.compose(h, graph))
    kaldifst.determinize_star(graph, use_log=True)
    arrays = FstArrays.of(graph)
    graph = replace(arrays, ilabel=np.where(arrays.ilabel > len(labels), 0, arrays.ilabel)).to_fst()
    kaldifst.minimize_encoded(graph)
    arrays = FstArrays.of(graph)
    done("HCLG without self-loops", arrays, minimized=True)
    arrays = add_self_loops(arrays, labels, conf.self_loop_scale)
    done("HCLG", arrays)
    return arrays, log


def unheard_words(lang: Lang, model: HmmModel) -> set[str]:
    """Words spoken by nothing but silence phones of which training had no frame: what fits these badly fits them best."""
    edge = (NO_PHONE,) * (model.context_width // 2)
    pdfs = {name: [arc.pdf for arc in model.hmm((*edge, model.phones[name], *edge))] for name in lang.silence_phones}
    return lang.words_of([name for name in pdfs if not model.occupancy[pdfs[name]].any()])


def without(grammar: FstArrays, labels: Sequence[int]) -> FstArrays:
    """G without the arcs of some words."""
    keep = ~np.isin(grammar.ilabel, labels)
    columns = (grammar.source, grammar.ilabel, grammar.olabel, grammar.cost, grammar.nextstate)
    return FstArrays.of_arcs(grammar.start, grammar.final, *(column[keep] for column in columns))


def properties(fst: FstArrays) -> dict[str, float]:
    """What a determinized and minimized transducer should be, looked at.

    - deterministic: 1 where no two arcs of a state have the same input label but epsilon, else 0
    - surplus_states: how many fewer would do. Minimization promises 0 where no state has two arcs alike in labels and cost;
      a large HCLG, its disambiguation symbols gone, has a few (of 5.3 million states 5 were too many)
    - log_sum_min, log_sum_max: of the log of the sum of probabilities that a state gives its arcs and its end. 0 where G is
      stochastic; a back-off model is not, as words that it has after a history can be had by backing off, too.
    """
    sums = fst.log_sums()
    return {
        "deterministic": int(fst.is_deterministic()),
        "surplus_states": fst.num_states - fst.minimal_states(),
        "log_sum_min": round(float(sums.min()), 4),
        "log_sum_max": round(float(sums.max()), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--lang", "--grammar", "--model", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of GraphConf")
    arguments = parser.parse_args()
    conf = parse_conf(GraphConf, arguments.conf)
    lexicon, grammar = (FstArrays.read(path) for path in (arguments.lang / "L_disambig.fst", arguments.grammar))
    lang, model = Lang.read(arguments.lang), HmmModel.load(arguments.model)
    if unheard := unheard_words(lang, model):
        print(f"training had no frame of {sorted(unheard)}: not in the graph", file=sys.stderr)
        grammar = without(grammar, [lang.words[word] for word in unheard])
    graph, log = build(lang, lexicon, grammar, model, conf)
    graph.write(arguments.out)
    write_text(arguments.out.with_suffix(".json"), json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
