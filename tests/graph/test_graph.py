"""HCLG against the enumeration of everything that can be said in so many frames."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
import torch

from local.cli import RecipeError
from local.fst import Fst, FstArrays
from local.graph import GraphConf, build
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.hmm.tree import monophone_tree
from local.lexicon import Lang, LexiconConf, make_lang
from local.lm.arpa import Arpa
from local.lm.grammar import to_acceptor
from tests.graph.toy import (
    ARPA,
    Ngrams,
    ToyHmms,
    path_cost,
    random_toy,
    read_ngrams,
    sentence_cost,
    spoken,
    write_dictionary,
    write_lang,
    write_ngrams,
)

CONF = GraphConf(transition_scale=0.7, self_loop_scale=0.4)
SEEDS = range(40)  # of random toys
# LG's costs are rounded to 1/1024, and HCLG's again: half of it an arc, on as many arcs as there are frames and an end
TOLERANCE = 2 * 9 / 2048


def make(lang_dir: Path, model: ToyHmms | HmmModel, conf: GraphConf = CONF) -> tuple[FstArrays, dict[str, dict[str, float]]]:
    lang = Lang.read(lang_dir)
    grammar = to_acceptor(Arpa.read(lang_dir.parent / "arpa"), lang.words)
    return build(lang, FstArrays.read(lang_dir / "L_disambig.fst"), grammar, model, conf)


def best_cost(graph: Fst, scores: np.ndarray) -> tuple[float, list[int]]:
    """Of the best path through so many frames: cost and words."""
    decoder = kaldi_decoder.SimpleDecoder(graph, 1e4)
    decoder.decode(kaldi_decoder.DecodableCtc(scores))
    assert decoder.reached_final()
    _, _, words, weight = kaldifst.get_linear_symbol_sequence(decoder.get_best_path()[1])
    return weight.value1 + weight.value2, words


def cost_of_saying(graph: Fst, labels: list[int], scores: np.ndarray) -> float:
    """Of the best path with these words."""
    words = kaldifst.make_linear_acceptor(labels)
    kaldifst.arcsort(graph, "olabel")
    return best_cost(Fst(kaldifst.compose(graph, words)), scores)[0]


def random_scores(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).normal(0, 4, (frames, ToyHmms.num_pdfs)).astype(np.float32)


def enumerate_costs(lang: Lang, ngrams: Ngrams, model: ToyHmms, scores: np.ndarray) -> dict[tuple[str, ...], float]:
    """The cost of each word sequence: the minimum over pronunciations, silences, n-grams and HMM states."""
    acoustic: Callable[[tuple[str, ...]], float] = cache(lambda phones: path_cost(phones, lang, model, CONF, scores))
    costs: dict[tuple[str, ...], float] = {}
    for words, cost, phones in spoken(lang, ngrams, len(scores)):
        if phones:
            costs[words] = min(cost + acoustic(phones), costs.get(words, math.inf))
    return costs


@pytest.fixture(scope="module")
def lang_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lang(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module", params=[1, 3])
def width(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def graph(lang_dir: Path, width: int) -> FstArrays:
    return make(lang_dir, ToyHmms(width))[0]


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 8, 9])
def test_best_path_is_the_minimum_over_everything_that_can_be_said(
    lang_dir: Path, width: int, graph: FstArrays, frames: int
) -> None:
    lang, scores = Lang.read(lang_dir), random_scores(frames)
    costs = enumerate_costs(lang, read_ngrams(ARPA), ToyHmms(width), scores)
    best = min(costs, key=costs.__getitem__)
    cost, words = best_cost(graph.to_fst(), scores)
    assert words == [lang.words[word] for word in best]
    assert cost == pytest.approx(costs[best], abs=1e-3)


def test_a_word_sequence_costs_the_same_in_the_graph(lang_dir: Path, width: int, graph: FstArrays) -> None:
    """Not only the best: each sentence's own minimum."""
    lang, scores = Lang.read(lang_dir), random_scores(8)
    costs = enumerate_costs(lang, read_ngrams(ARPA), ToyHmms(width), scores)
    fst = graph.to_fst()
    for words in [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("c", "c"), ("d",), ("a", "c"), ("a", "a", "b")]:
        found = cost_of_saying(fst, [lang.words[word] for word in words], scores)
        assert found == pytest.approx(costs[words], abs=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_toys(seed: int, tmp_path: Path) -> None:
    """Homophones, prefixes, silence by word or not, one to three words of history, either vocabulary the larger one."""
    lang_dir, ngrams = random_toy(seed, tmp_path / "toy")
    lang, model, scores = Lang.read(lang_dir), ToyHmms(1 + 2 * (seed % 2)), random_scores(8)
    graph, log = make(lang_dir, model)
    costs = enumerate_costs(lang, ngrams, model, scores)
    fst = graph.to_fst()
    assert best_cost(fst, scores)[0] == pytest.approx(min(costs.values()), abs=TOLERANCE)
    for words in sorted(costs, key=costs.__getitem__)[:: max(1, len(costs) // 10)]:
        found = cost_of_saying(fst, [lang.words[word] for word in words], scores)
        assert found == pytest.approx(costs[words], abs=TOLERANCE)
    words_of_both = {number for word, number in lang.words.items() if (word,) in ngrams and word in lang.lexicon}
    assert set(graph.olabel.tolist()) - {0} <= words_of_both
    for step in ("LG", "HCLG without self-loops"):
        assert (log[step]["deterministic"], log[step]["surplus_states"]) == (1, 0)
    assert not graph.has_epsilon_cycle()
    kaldifst.connect(fst)
    assert fst.num_states == graph.num_states


def test_grammar_costs_the_models_or_less_by_backing_off(tmp_path: Path) -> None:
    cheaper = same = 0
    for seed in SEEDS:
        lang_dir, ngrams = random_toy(seed, tmp_path / str(seed))
        words = Lang.read(lang_dir).words
        grammar = to_acceptor(Arpa.read(lang_dir.parent / "arpa"), words).to_fst()
        kaldifst.arcsort(grammar, "olabel")
        known = sorted(word for word in words if (word,) in ngrams and word[0] != "<")
        for length in range(8):
            sentence = tuple(np.random.default_rng(seed).choice(known, length).tolist())
            said = Fst(kaldifst.compose(grammar, kaldifst.make_linear_acceptor([words[word] for word in sentence])))
            cost = kaldifst.get_linear_symbol_sequence(kaldifst.shortest_path(said))[3].value
            assert cost == pytest.approx(sentence_cost(ngrams, sentence), abs=1e-4)
            strict = sentence_cost(ngrams, sentence, free=False)
            assert cost <= strict + 1e-4
            cheaper, same = cheaper + (cost < strict - 1e-4), same + (cost >= strict - 1e-4)
    assert min(cheaper, same) > 50


def test_the_toys_back_off_is_sometimes_better() -> None:
    """Else the tests above would not see a graph that allows explicit n-grams alone: <s> c is such a case."""
    by_hand = -(-0.3 - 0.8 + 0.0 - 0.7) * np.log(10)
    assert sentence_cost(read_ngrams(ARPA), ("c",)) == pytest.approx(by_hand)
    assert sentence_cost(read_ngrams(ARPA), ("c",), free=False) == pytest.approx((1.6 + 0.7) * np.log(10))


def test_a_stochastic_grammar_makes_a_stochastic_graph(tmp_path: Path) -> None:
    """Unigrams and pronunciations that sum to one: so do the arcs of each state, at scale 1 and without self-loops."""
    write_dictionary(tmp_path / "dict")
    (tmp_path / "dict" / "lexiconp.txt").write_text("<unk>\t1\tspn\na\t0.6\tx\na\t0.4\tx y\nb\t1\tx\nc\t1\ty z\n")
    make_lang(tmp_path / "dict", LexiconConf(0.3), tmp_path / "lang")
    shares = {"a": 0.4, "b": 0.3, "c": 0.1, "</s>": 0.2}
    ngrams = {("<s>",): (-99.0, 0.0)} | {(word,): (math.log10(share), 0.0) for word, share in shares.items()}
    (tmp_path / "arpa").write_text(write_ngrams(ngrams))
    _, log = make(tmp_path / "lang", toy_model(Lang.read(tmp_path / "lang")), GraphConf(1.0, 0.1))
    for step in ("LG", "HCLG without self-loops"):
        assert log[step]["log_sum_min"] == pytest.approx(0, abs=0.01)
        assert log[step]["log_sum_max"] == pytest.approx(0, abs=0.01)


def toy_model(lang: Lang) -> HmmModel:
    """Monophones."""
    tree = monophone_tree({phone: 5 if name in lang.silence_phones else 3 for name, phone in lang.phones.items()})
    one = torch.ones(tree.num_pdfs, 1)
    gmm = Gmm(one[:, 0], one, one, torch.ones(tree.num_pdfs, dtype=torch.int64))
    model = HmmModel(lang.phones, lang.silence_phones, lang.topology, tree, torch.zeros(0), gmm, one[:, 0].double())
    model.transitions = model.initial_transitions()
    return model


def test_input_labels_are_pdfs(graph: FstArrays) -> None:
    assert set(graph.ilabel.tolist()) <= set(range(ToyHmms.num_pdfs + 1))


def test_same_bytes_twice(lang_dir: Path, width: int, graph: FstArrays, tmp_path: Path) -> None:
    graph.write(tmp_path / "0")
    make(lang_dir, ToyHmms(width))[0].write(tmp_path / "1")
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_grammar_without_a_word_of_the_lexicon(lang_dir: Path) -> None:
    other = FstArrays.of(kaldifst.compile("0 1 999 999\n1\n", acceptor=False))
    with pytest.raises(RecipeError, match="graph is empty"):
        build(Lang.read(lang_dir), FstArrays.read(lang_dir / "L_disambig.fst"), other, ToyHmms(1), CONF)


def test_command_line(lang_dir: Path, root: Path, tmp_path: Path) -> None:
    """The graph is written, and sizes, seconds and memory of each step beside it and in the log."""
    lang = Lang.read(lang_dir)
    to_acceptor(Arpa.read(lang_dir.parent / "arpa"), lang.words).write(tmp_path / "G.fst")
    toy_model(lang).save(tmp_path / "model.pt")
    command = [sys.executable, "-m", "local.graph", "--lang", lang_dir, "--grammar", tmp_path / "G.fst"]
    command += ["--model", tmp_path / "model.pt", "--out", tmp_path / "HCLG.fst"]
    command += ["--conf", '{"transition_scale": 1.0, "self_loop_scale": 0.1}']
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    log = json.loads((tmp_path / "HCLG.json").read_text())
    graph = FstArrays.read(tmp_path / "HCLG.fst")
    assert (log["HCLG"]["states"], log["HCLG"]["arcs"]) == (graph.num_states, graph.num_arcs)
    assert list(log) == ["LG", "CLG", "HCLG without self-loops", "HCLG"]
    assert all(log[step].keys() >= {"seconds", "peak_GiB"} and step in done.stderr for step in log)
