"""HCLG against the enumeration of everything that can be said in so many frames."""

from __future__ import annotations

from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest

from local.cli import RecipeError
from local.decode import Decoder, Stats
from local.graph import Fst, GraphConf, build
from local.lexicon import Lang
from local.lm import acceptor
from tests.graph.toy import ToyHmms, path_cost, sentence_cost, spoken, write_lang

CONF = GraphConf(transition_scale=0.7, self_loop_scale=0.4)


@pytest.fixture(scope="module")
def lang_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lang(tmp_path_factory.mktemp("toy"))


def make(lang_dir: Path, width: int) -> Fst:
    lexicon = Fst.read(str(lang_dir / "L_disambig.fst"))
    graph, _ = build(Lang.read(lang_dir), lexicon, acceptor(lang_dir.parent / "arpa", lang_dir), ToyHmms(width), CONF)
    return graph


@pytest.fixture(scope="module", params=[1, 3])
def width(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def graph(lang_dir: Path, width: int) -> Fst:
    return make(lang_dir, width)


def random_scores(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).normal(0, 4, (frames, ToyHmms.num_pdfs)).astype(np.float32)


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("penalty", [0.0, 2.5])
def test_best_path_is_the_minimum_over_everything_that_can_be_said(
    lang_dir: Path, width: int, graph: Fst, frames: int, penalty: float
) -> None:
    lang, model, scores = Lang.read(lang_dir), ToyHmms(width), random_scores(frames)
    costs: dict[tuple[str, ...], float] = {}
    for words, cost, phones in spoken(frames):
        if phones:
            total = cost + penalty * len(words) + path_cost(phones, lang, model, CONF, scores)
            costs[words] = min(total, costs.get(words, np.inf))
    best = min(costs, key=costs.__getitem__)
    names = {number: word for word, number in lang.words.items()}
    decoder = Decoder(graph, names, penalty, beam=1e4, max_active=100_000)
    stats = Stats()
    assert decoder.decode(scores, stats) == best
    assert (stats.retried, stats.partial) == (0, 0)

    penalized = kaldi_decoder.SimpleDecoder(decoder.graph, 1e4)
    penalized.decode(kaldi_decoder.DecodableCtc(scores))
    _, path = penalized.get_best_path()
    weight = kaldifst.get_linear_symbol_sequence(path)[3]
    assert weight.value1 + weight.value2 == pytest.approx(costs[best], abs=1e-3)


def test_a_word_sequence_costs_the_same_in_the_graph(lang_dir: Path, width: int, graph: Fst) -> None:
    """Not only the best: each sentence's own minimum, on silence-free evidence for it."""
    lang, model, scores = Lang.read(lang_dir), ToyHmms(width), random_scores(8)
    costs: dict[tuple[str, ...], float] = {}
    for words, cost, phones in spoken(8):
        if phones:
            costs[words] = min(cost + path_cost(phones, lang, model, CONF, scores), costs.get(words, np.inf))
    for words in [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("c", "c"), ("d",), ("a", "c"), ("a", "a", "b")]:
        acceptor = kaldifst.make_linear_acceptor([lang.words[word] for word in words])
        kaldifst.arcsort(graph, "olabel")
        one = kaldifst.StdVectorFst(kaldifst.compose(graph, acceptor))
        decoder = kaldi_decoder.SimpleDecoder(one, 1e4)
        decoder.decode(kaldi_decoder.DecodableCtc(scores))
        assert decoder.reached_final()
        weight = kaldifst.get_linear_symbol_sequence(decoder.get_best_path()[1])[3]
        assert weight.value1 + weight.value2 == pytest.approx(costs[words], abs=1e-3)


def test_the_toys_back_off_is_sometimes_better() -> None:
    """Else the tests above would not see a graph that allows explicit n-grams alone: <s> c is such a case."""
    by_hand = -(-0.3 - 0.8 + 0.0 - 0.7) * np.log(10)
    assert sentence_cost(("c",)) == pytest.approx(by_hand)


def test_input_labels_are_pdfs(graph: Fst) -> None:
    labels = {arc.ilabel for s in range(graph.num_states) for arc in kaldifst.ArcIterator(graph, s)}
    assert labels <= set(range(ToyHmms.num_pdfs + 1))


def test_same_bytes_twice(lang_dir: Path, width: int, graph: Fst, tmp_path: Path) -> None:
    for number in range(2):
        make(lang_dir, width).write(str(tmp_path / f"{number}"))
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_grammar_without_a_word_of_the_lexicon(lang_dir: Path) -> None:
    other = kaldifst.compile("0 1 999 999\n1\n", acceptor=False)
    lexicon = Fst.read(str(lang_dir / "L_disambig.fst"))
    with pytest.raises(RecipeError, match="graph is empty"):
        build(Lang.read(lang_dir), lexicon, other, ToyHmms(1), CONF)
