"""Viterbi against all paths that there are, enumerated without the graph; what an alignment says; what fails."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from local.cli import RecipeError
from local.hmm.align import Aligner, Alignment, check_share, pronunciations_of
from local.hmm.model import HmmModel
from local.lexicon import END, START, Lang, Pronunciation, SilenceProbabilities
from tests.hmm.planted import PHONES, make_language, random_model, small_topology
from tests.lang.ways import probability, ways

SENTENCES = [(), ("c",), ("ab",), ("c", "c"), ("abc",), ("c", "abc"), ("never-heard",)]


def best_of_all_paths(model: HmmModel, words: Sequence[str], scores: np.ndarray, lang: Lang) -> float:
    """The score of the best path, found by walking every one."""

    def walk(hmms: list[list], at: int, state: int, frame: int) -> float:
        """The best way on: ``frame`` is spent in ``state`` of the phone ``at``."""
        last = max(arc.target for arc in hmms[at])
        best = -math.inf
        for arc in hmms[at]:
            if arc.source != state:
                continue
            here = arc.log_prob + float(scores[frame, arc.pdf])
            if arc.target < last:
                on = walk(hmms, at, arc.target, frame + 1) if frame + 1 < len(scores) else -math.inf
            elif at + 1 < len(hmms):
                on = walk(hmms, at + 1, 0, frame + 1) if frame + 1 < len(scores) else -math.inf
            else:
                on = 0.0 if frame + 1 == len(scores) else -math.inf
            best = max(best, here + on)
        return best

    best = -math.inf
    choices = [(1.0, ("sil",))] if not words else ways(words, lang)
    for probability_of, names in choices:
        ids = [0, *(PHONES[name] for name in names), 0]
        windows = list(zip(ids, ids[1:], ids[2:], strict=False))
        hmms = [model.hmm(window if model.context_width == 3 else window[1:2]) for window in windows]
        best = max(best, math.log(probability_of) + walk(hmms, 0, 0, 0))
    return best


def make(width: int, seed: int, uneven: bool = False) -> tuple[Lang, HmmModel, Aligner]:
    lang = make_language(small_topology())
    if uneven:
        lang = with_random_silence(lang, random.Random(seed))
    model = random_model(lang, width, seed)
    return lang, model, Aligner(model, lang)


def with_random_silence(lang: Lang, draw: random.Random) -> Lang:
    """The language with silence probabilities of every pronunciation's own, far from even."""

    def numbers() -> list[float]:
        return [draw.uniform(0.05, 0.95), draw.uniform(0.1, 5), draw.uniform(0.1, 5)]

    lexicon = {word: [Pronunciation(*entry[:2], *numbers()) for entry in entries] for word, entries in lang.lexicon.items()}
    return replace(lang, lexicon=lexicon, silence=SilenceProbabilities(0.5, *numbers()))


def random_scores(model: HmmModel, frames: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(-20, 4, (frames, model.num_pdfs)).astype(np.float32)


def align(aligner: Aligner, words: Sequence[str], scores: np.ndarray) -> Alignment | None:
    ((key, alignment),) = aligner.align([("u", scores, aligner.compile(words))])
    assert key == "u"
    return alignment


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("words", SENTENCES)
def test_best_path_is_the_best_of_all(width: int, words: tuple[str, ...], uneven: bool) -> None:
    for seed, frames in enumerate((1, 2, 3, 5, 7)):
        lang, model, aligner = make(width, seed, uneven)
        scores = random_scores(model, frames, seed)
        expected = best_of_all_paths(model, words, scores, lang)
        found = align(aligner, words, scores)
        if expected == -math.inf:
            assert found is None
        else:
            assert found is not None
            assert found.log_likelihood == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("width", [1, 3])
def test_alignment_says_the_path_that_it_scores(width: int) -> None:
    """Pdfs, transitions, phones and words together give the score back, and so do the pronunciations read off."""
    for seed in range(6):
        lang, model, aligner = make(width, seed, uneven=seed % 2 == 1)
        words = ("c", "abc", "never-heard", "ab")
        scores = random_scores(model, 25, seed)
        found = align(aligner, words, scores)
        assert found is not None
        names = [name for name, _, _ in found.phones]
        assert [start for _, start, _ in found.phones] == [0, *np.cumsum([n for *_, n in found.phones])[:-1]]
        assert sum(n for *_, n in found.phones) == 25
        chosen = max(math.log(p) for p, phones in ways(words, lang) if phones == tuple(names))
        spoken = pronunciations_of(found, words)
        variants = [after.variant for after in spoken]
        assert [after.before for after in spoken] == [START, *variants[:-1]]
        assert [word for word, _ in variants] == [*words, "</s>"]
        entries = [next(e for e in lang.pronunciations(word) if e.phones == phones) for word, phones in variants[:-1]]
        assert math.log(probability(lang, entries, [after.silence for after in spoken])) == pytest.approx(chosen)
        total = chosen + float(scores[np.arange(25), found.pdf_ids].astype(np.float64).sum())
        total += float(model.transitions[found.transitions].sum())
        assert found.log_likelihood == pytest.approx(total, abs=1e-6)
        assert [place for place, _, _ in found.words] == [0, 1, 2, 3]
        speech = [(start, n) for name, start, n in found.phones if name != "sil"]
        assert found.words[0][1] == speech[0][0]
        assert sum(n for *_, n in found.words) == sum(n for _, n in speech)
        windows = np.repeat(found.windows, [n for *_, n in found.phones], axis=0).tolist()
        for window, state, pdf in zip(windows, found.hmm_states.tolist(), found.pdf_ids.tolist(), strict=True):
            assert model.tree.pdf(tuple(window) if width == 3 else (window[1],), state) == pdf
        assert found.pdf_ids.dtype == np.int32


def test_together_as_alone_whatever_their_lengths() -> None:
    _, model, aligner = make(3, 1)
    lengths = [9, 40, 0, 1, 17, 3, 40]
    batch = [
        (f"u{i}", random_scores(model, n, i), aligner.compile(("c", "abc", "ab")[: 1 + i % 3])) for i, n in enumerate(lengths)
    ]
    together = list(aligner.align(batch))
    assert [key for key, _ in together] == [key for key, _, _ in batch]
    for item, (_, found) in zip(batch, together, strict=True):
        ((_, alone),) = aligner.align([item])
        if alone is None:
            assert found is None
        else:
            assert found is not None
            assert (found.phones, found.words) == (alone.phones, alone.words)
            assert found.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-9)
            assert np.array_equal(found.transitions, alone.transitions)
    assert [found is None for _, found in together] == [False, False, True, False, False, True, False]


def test_many_utterances_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _, model, aligner = make(1, 0)
    batch = [(f"u{i}", random_scores(model, 12, i), aligner.compile(("ab", "c"))) for i in range(9)]
    whole = list(aligner.align(batch))
    monkeypatch.setattr("local.hmm.align._CELLS_AT_ONCE", 400)
    for (key, one), (again, other) in zip(whole, aligner.align(iter(batch)), strict=True):
        assert key == again
        assert np.array_equal(one.pdf_ids, other.pdf_ids)


@pytest.mark.parametrize("width", [1, 3])
def test_by_features_as_by_all_likelihoods(width: int) -> None:
    _, model, aligner = make(width, 2)
    features = 2 * torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    graph = aligner.compile(("ab", "c", "abc"))
    ((_, one),) = aligner.align_features([("u", features, graph)])
    ((_, other),) = aligner.align([("u", model.log_likelihoods(features).numpy(), graph)])
    assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-3)
    assert np.array_equal(one.pdf_ids, other.pdf_ids)


def test_certain_frames_give_known_times() -> None:
    """Where every frame has one pdf that fits, its times come out: silence, a word, no silence, a word, silence."""
    lang, model, aligner = make(1, 0)
    path = [("sil", 4), ("a", 3), ("c", 5), ("b", 2), ("sil", 3)]  # abc as "a c", c as "b"
    scores = np.full((17, model.num_pdfs), -50, dtype=np.float32)
    frame = 0
    for name, count in path:
        for arc in model.hmm((lang.phones[name],)):
            scores[frame : frame + count, arc.pdf] = 0
        frame += count
    found = align(aligner, ("abc", "c"), scores)
    assert found.phones == [("sil", 0, 4), ("a", 4, 3), ("c", 7, 5), ("b", 12, 2), ("sil", 14, 3)]
    assert found.words == [(0, 4, 8), (1, 12, 2)]
    abc, c = ("abc", ("a", "c")), ("c", ("b",))
    assert pronunciations_of(found, ("abc", "c")) == [(START, abc, True), (abc, c, False), (c, END, True)]


def test_a_word_that_is_spoken_as_silence_is_no_silence() -> None:
    """A phone belongs to a word by its place, not its name."""
    alignment = Alignment(
        pdf_ids=np.zeros(9, np.int32),
        phones=[("sil", 0, 2), ("sil", 2, 4), ("a", 6, 1), ("b", 7, 1), ("sil", 8, 1)],
        words=[(0, 2, 4), (1, 6, 2)],
        log_likelihood=0.0,
        transitions=np.zeros(9, int),
        windows=np.zeros((5, 3), int),
        hmm_states=np.zeros(9, int),
    )
    pause, ab = ("<pause>", ("sil",)), ("ab", ("a", "b"))
    assert pronunciations_of(alignment, ("<pause>", "ab")) == [(START, pause, True), (pause, ab, False), (ab, END, True)]
    empty = replace(alignment, words=[], phones=[("sil", 0, 9)])
    assert pronunciations_of(empty, ()) == []


def test_failures_are_named_and_too_many_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    check_share(0, 100, [], "have no features")
    assert capsys.readouterr().err == ""
    check_share(5, 100, ["sw1", "sw2"], "have no features")
    assert "5 of 100 utterances have no features: sw1, sw2" in capsys.readouterr().err
    with pytest.raises(RecipeError, match="6 of 100 utterances have no features: sw1"):
        check_share(6, 100, ["sw1"], "have no features")
