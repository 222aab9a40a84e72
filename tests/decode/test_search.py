"""Search and lattices against the enumeration of everything that can be said in so many frames."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.fst import FstArrays
from local.graph import GraphConf, build
from local.lattice import Lattice, Point, word_lattice
from local.lexicon import Lang
from local.lm import Arpa
from local.lm.grammar import to_acceptor
from local.search import BeamSearch, OutOfTimeError, SearchConf
from tests.graph.toy import ToyHmms, path_cost, random_toy, read_ngrams, sentence_cost, spoken, write_lang, write_ngrams

CONF = GraphConf(transition_scale=0.7, self_loop_scale=0.4)
SCALE = 0.5
AS_SEARCHED = Point(SCALE, 0.0)
WIDE = 1e4


class Case:
    """A toy language, its graph, frames, and what each word sequence costs in them, graph and sound together."""

    def __init__(self, folder: Path, seed: int | None, frames: int, width: int = 1) -> None:
        lang_dir, self.ngrams = random_toy(seed, folder / "toy") if seed is not None else (write_lang(folder), {})
        self.arpa = lang_dir.parent / "arpa"
        self.ngrams = read_ngrams(self.arpa.read_text())
        self.lang, self.model = Lang.read(lang_dir), ToyHmms(width)
        lexicon, grammar = FstArrays.read(lang_dir / "L_disambig.fst"), to_acceptor(Arpa.read(self.arpa), self.lang.words)
        self.graph, _ = build(self.lang, lexicon, grammar, self.model, CONF)
        self.search = BeamSearch(self.graph)
        self.scores = np.random.default_rng(frames).normal(0, 6, (frames, self.model.num_pdfs)).astype(np.float32)
        self.names = self.lang.names()
        self.costs: dict[tuple[str, ...], float] = {}
        for words, cost, phones in spoken(self.lang, self.ngrams, frames):
            if phones and math.isfinite(cost):
                total = cost + path_cost(phones, self.lang, self.model, CONF, SCALE * self.scores)
                self.costs[words] = min(total, self.costs.get(words, math.inf))

    def within(self, beam: float) -> dict[tuple[str, ...], float]:
        """The word sequences that cost no more than so much above the best."""
        best = min(self.costs.values())
        return {words: cost for words, cost in self.costs.items() if cost <= best + beam}

    def lattice(self, beam: float = WIDE, lattice_beam: float = 8.0) -> Lattice:
        states = self.search(self.scores, SCALE, SearchConf(beam, 100_000, lattice_beam))
        assert states.complete
        return word_lattice(states, SCALE, lattice_beam)

    def words_of(self, lattice: Lattice, point: Point = AS_SEARCHED) -> dict[tuple[str, ...], float]:
        """Every path's words and cost."""
        found: dict[tuple[str, ...], float] = {}
        for cost, numbers in lattice.paths(point):
            words = tuple(self.names[number] for number in numbers)
            assert words not in found  # deterministic
            found[words] = cost
        return found


def same(found: dict[tuple[str, ...], float], expected: dict[tuple[str, ...], float]) -> None:
    assert set(found) >= set(expected)
    for words, cost in expected.items():
        assert found[words] == pytest.approx(cost, abs=0.02)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("toy"), None, 8, width=3)


@pytest.mark.parametrize("lattice_beam", [0.5, 4.0, 12.0])
def test_a_lattice_has_all_that_can_be_said_within_its_beam(case: Case, lattice_beam: float) -> None:
    expected = case.within(lattice_beam - 0.02)
    assert len(case.within(12.0)) > 20
    found = case.words_of(case.lattice(lattice_beam=lattice_beam))
    same(found, expected)
    assert len(found) <= len(case.within(lattice_beam + 0.05))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), frames=st.integers(3, 7), width=st.sampled_from([1, 3]))
def test_lattices_of_random_languages(tmp_path_factory: pytest.TempPathFactory, seed: int, frames: int, width: int) -> None:
    case = Case(tmp_path_factory.mktemp("toy"), seed, frames, width)
    if case.costs:
        same(case.words_of(case.lattice(lattice_beam=6.0)), case.within(5.98))


def test_paths_come_in_the_order_of_their_costs(case: Case) -> None:
    paths = [cost for cost, _ in case.lattice().paths(Point(0.3, 1.0))]
    assert paths == sorted(paths)


@pytest.mark.parametrize("point", [AS_SEARCHED, Point(0.45, 0.0), Point(SCALE, 1.5), Point(0.6, -1.0)])
def test_other_scales_and_penalties_weigh_the_same_paths(case: Case, point: Point) -> None:
    """At the search's scale a penalty's costs are exact; at another they are those of paths that were best at the search's."""
    lattice = case.lattice(lattice_beam=14.0)
    found, plain = case.words_of(lattice, point), case.words_of(lattice)
    if point.acoustic_scale == SCALE:
        for words, cost in found.items():
            assert cost == pytest.approx(plain[words] + point.insertion_penalty * len(words), abs=1e-3)
    graph_only = case.words_of(lattice, Point(1e-9, 0.0))
    for words, cost in found.items():
        share = point.acoustic_scale / SCALE
        expected = graph_only[words] + share * (plain[words] - graph_only[words]) + point.insertion_penalty * len(words)
        assert cost == pytest.approx(expected, abs=0.05)


def test_confidences_are_posteriors_over_everything_that_can_be_said(case: Case) -> None:
    lattice = case.lattice(lattice_beam=14.0)
    numbers, confidences = lattice.confidences(AS_SEARCHED, 10_000)
    best = tuple(case.names[number] for number in numbers)
    costs = case.within(14.0)
    assert best == min(costs, key=costs.__getitem__)
    total = sum(math.exp(-cost) for cost in costs.values())

    def share(keep: Callable[[tuple[str, ...]], bool]) -> float:
        return sum(math.exp(-cost) for words, cost in costs.items() if keep(words)) / total

    assert 0.05 < share(lambda words: words == best) < 0.95
    for word, confidence in zip(best, confidences, strict=True):
        assert share(lambda words: words == best) - 0.01 <= confidence
        assert confidence <= share(lambda words, word=word: word in words) + 0.01
    assert case.lattice(lattice_beam=0.01).confidences(AS_SEARCHED, 5)[1] == pytest.approx([1.0] * len(best))


def test_rescoring_is_the_other_models_cost(case: Case, tmp_path: Path) -> None:
    """A trigram model in place of the bigrams: every word sequence's cost changes by what the models' own differ."""
    other = dict(case.ngrams)
    other |= {("<s>", "a"): (-0.9, -0.2), ("a", "b"): (-0.7, 0.1), ("d", "d"): (-1.0, -0.3)}
    other |= {("<s>", "a", "b"): (-0.1, 0.0), ("a", "b", "a"): (-1.9, 0.0), ("d", "d", "d"): (-0.2, 0.0)}
    (tmp_path / "arpa").write_text(write_ngrams(other))
    old, new = Arpa.read(case.arpa), Arpa.read(tmp_path / "arpa")
    plain = case.words_of(case.lattice())
    found = case.words_of(case.lattice().rescored(old, new, case.names))
    assert set(found) == set(plain)
    for words, cost in found.items():
        change = sentence_cost(other, words, free=False) - sentence_cost(case.ngrams, words, free=False)
        assert cost == pytest.approx(plain[words] + change, abs=1e-3)
    back = case.words_of(case.lattice().rescored(old, new, case.names).rescored(new, old, case.names))
    assert back == {words: pytest.approx(cost, abs=1e-3) for words, cost in plain.items()}


def test_a_model_without_the_lattices_words(case: Case, tmp_path: Path) -> None:
    few = {ngram: weights for ngram, weights in case.ngrams.items() if "a" not in ngram}
    (tmp_path / "arpa").write_text(write_ngrams(few))
    with pytest.raises(RecipeError, match="the word a is not in both language models"):
        case.lattice().rescored(Arpa.read(case.arpa), Arpa.read(tmp_path / "arpa"), case.names)


@pytest.mark.parametrize(("beam", "max_active"), [(25.0, 1000), (18.0, 1000), (WIDE, 60), (WIDE, 30), (25.0, 40)])
def test_narrow_searches_find_no_less_than_the_best(case: Case, beam: float, max_active: int) -> None:
    """And their paths cost what they cost: a partial path apart, which may end where it pleases."""
    states = case.search(case.scores, SCALE, SearchConf(beam, max_active, 4.0))
    assert len(states.source) <= len(case.search(case.scores, SCALE, SearchConf(WIDE, 100_000, 4.0)).source)
    if states.complete:
        for words, cost in case.words_of(word_lattice(states, SCALE, 4.0)).items():
            assert cost >= case.costs[words] - 0.01
    else:
        assert max_active < 60


def test_kaldis_search_finds_the_same_words(case: Case) -> None:
    graph, scaled = kaldifst.StdConstFst(case.graph.to_fst()), np.float32(SCALE) * case.scores  # neither is kept alive by these
    decoder = kaldi_decoder.FasterDecoder(graph, kaldi_decoder.FasterDecoderOptions(beam=WIDE, max_active=100_000))
    decoder.decode(kaldi_decoder.DecodableCtc(scaled))
    _, _, numbers, _ = kaldifst.get_linear_symbol_sequence(decoder.get_best_path()[1])
    assert case.lattice().best(AS_SEARCHED) == tuple(numbers)


def test_searches_leave_nothing_behind(case: Case) -> None:
    first = case.lattice()
    with pytest.raises(OutOfTimeError):
        case.search(case.scores, SCALE, SearchConf(WIDE, 1000, 4.0), seconds=-1.0)
    again = case.lattice()
    np.testing.assert_array_equal(first.matrix(), again.matrix())
    assert bool(case.search._best.isinf().all())


def test_a_matrix_reads_back_and_another_does_not(case: Case) -> None:
    lattice = case.lattice()
    np.testing.assert_array_equal(Lattice.of_matrix(lattice.matrix(), "u").matrix(), lattice.matrix())
    matrix = lattice.matrix()
    for damaged in (matrix[:, :4], matrix[:0], matrix[::-1], np.where(matrix == matrix[0, 3], np.nan, matrix)):
        with pytest.raises(RecipeError, match=r"^u: .*decode again"):
            Lattice.of_matrix(damaged, "u")


def test_a_cycle_of_epsilons(case: Case) -> None:
    fst = kaldifst.compile("0 1 1 0\n1 2 0 0\n2 1 0 0\n1 0.0\n", acceptor=False)
    with pytest.raises(RecipeError, match="cycle of epsilons"):
        BeamSearch(FstArrays.of(fst))


def test_log_likelihoods_of_too_few_pdfs(case: Case) -> None:
    with pytest.raises(RecipeError, match="a graph of 9 pdfs or more, log-likelihoods of 4"):
        case.search(case.scores[:, :4], SCALE, SearchConf(WIDE, 1000, 4.0))
