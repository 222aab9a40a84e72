"""ARPA files as SRILM writes them, against KenLM and against back-off over a dictionary of n-grams."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.lexicon import BOS, EOS
from local.lm import Arpa
from tests.lang.lm_models import histories, random_model

# a blank line first, tabs, -99 for <s>, weights only where longer n-grams follow, one of them above 0
SRILM = """
\\data\\
ngram 1=7
ngram 2=9
ngram 3=5

\\1-grams:
-0.7269987	</s>
-99	<s>	-0.4113209
-1.3424227	<unk>	-0.0969100
-0.6020600	a	-0.2518120
-0.7447275	b	-0.3357921
-0.9030900	c	-0.1760913
-1.2041200	d

\\2-grams:
-0.3979400	<s> a	-0.1249387
-0.6989700	<s> b
-0.5228787	a a	-0.0457575
-0.3010300	a b	-0.2218487
-0.2596373	b </s>
-0.8239087	b c	-0.0791812
-0.6197888	c a	0.1038037
-0.9208188	c <unk>
-0.5528420	<unk> d

\\3-grams:
-0.1760913	<s> a b
-0.2041200	a b </s>
-0.4259687	a a b
-0.3187588	b c a
-0.2730013	c a a

\\end\\
"""
# KenLM 0.3.0 (pip install kenlm): [p for p, _, _ in kenlm.Model(path).full_scores(sentence)]; q is in no model
KENLM = {
    "a b": [-0.39794, -0.176091, -0.20412],
    "a a b c a a b": [-0.39794, -0.647817, -0.425969, -1.045757, -0.318759, -0.273001, -0.425969, -0.20412],
    "b c a a a b": [-0.69897, -0.823909, -0.318759, -0.273001, -0.568636, -0.425969, -0.20412],
    "d d c": [-1.615441, -1.20412, -0.90309, -0.90309],
    "": [-1.13832],
    "b b b": [-0.69897, -1.08052, -1.08052, -0.259637],
    "c a b": [-1.314411, -0.619789, -0.197226, -0.20412],
    "a q b": [-0.39794, -1.719173, -0.841637, -0.259637],
    "c q d b c a": [-1.314411, -0.920819, -0.552842, -0.744727, -0.823909, -0.318759, -0.875007],
}
# of the same file without <unk>: what follows q (itself left out, place 1)
KENLM_WITHOUT_UNK = {"a q b": [-0.744727, -0.259637], "c q d b c a": [-1.20412, -0.744727, -0.823909, -0.318759, -0.875007]}


@pytest.fixture
def srilm(tmp_path: Path) -> Path:
    (tmp_path / "arpa").write_text(SRILM)
    return tmp_path / "arpa"


@pytest.mark.parametrize("sentence", KENLM)
def test_probabilities_are_kenlms(srilm: Path, sentence: str) -> None:
    model = Arpa.read(srilm)
    words = sentence.split()
    assert model.log10_probs(model.events([words], "<unk>")) == pytest.approx(KENLM[sentence], abs=2e-6)
    history: tuple[str, ...] = (BOS,)
    for word, expected in zip([word if word in model else "<unk>" for word in words] + [EOS], KENLM[sentence], strict=True):
        assert model.log10_prob(history, word) == pytest.approx(expected, abs=2e-6)
        history = (*history, word)


def test_perplexity_is_kenlms(srilm: Path) -> None:
    """Including unknown words, as <unk>; and without them, where the model has no <unk>."""
    sentences = [sentence.split() for sentence in KENLM]
    found = Arpa.read(srilm).perplexity(sentences, "<unk>")
    total = sum(map(sum, KENLM.values()))
    assert found["log10_prob"] == pytest.approx(total, abs=1e-4)
    assert found["perplexity"] == pytest.approx(10 ** (-total / sum(map(len, KENLM.values()))), rel=1e-4)
    assert (found["sentences"], found["words"], found["unknown_words"]) == (9, 33, 2)
    lines = [line for line in SRILM.splitlines(keepends=True) if "<unk>" not in line]
    srilm.write_text("".join(lines).replace("1=7", "1=6").replace("2=9", "2=7"))
    found = Arpa.read(srilm).perplexity(sentences, "<unk>")
    for sentence, after in KENLM_WITHOUT_UNK.items():
        total += KENLM[sentence][0] + sum(after) - sum(KENLM[sentence])
    assert found["log10_prob"] == pytest.approx(total, abs=1e-4)
    assert found["perplexity"] == pytest.approx(10 ** (-total / (42 - 2)), rel=1e-4)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_n_grams_that_lack_what_they_begin_or_end_with(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Any n-grams with any numbers: what is put in changes no probability of back-off over a dictionary."""
    draw = np.random.default_rng(seed)
    order = int(draw.integers(2, 5))
    words = ["a", "b", "c", BOS, EOS]
    ngrams: dict[tuple[str, ...], tuple[float, float]] = {}
    for length in range(1, order + 1):
        for ngram in itertools.product(words, repeat=length):
            if length == 1 or draw.random() < 0.15:
                ngrams[ngram] = (round(-3 * draw.random(), 4), 0.0 if length == order else round(draw.normal(), 4))
    path = tmp_path_factory.mktemp("random") / "arpa"
    sections = [[(ngram, values) for ngram, values in ngrams.items() if len(ngram) == n] for n in range(1, order + 1)]
    lines = ["\\data\\", *(f"ngram {n}={len(section)}" for n, section in enumerate(sections, 1))]
    for n, section in enumerate(sections, 1):
        draw.shuffle(section)
        lines += [f"\\{n}-grams:", *(f"{p} {' '.join(ngram)}" + (f" {b}" if b else "") for ngram, (p, b) in section)]
    path.write_text("\n".join([*lines, "\\end\\"]))
    model = Arpa.read(path)

    def by_dictionary(ngram: tuple[str, ...]) -> float:
        if ngram in ngrams:
            return ngrams[ngram][0]
        return ngrams.get(ngram[:-1], (0.0, 0.0))[1] + by_dictionary(ngram[1:])

    for ngram in itertools.product(["a", "b", BOS], repeat=order):
        expected = by_dictionary(ngram)
        assert model.log10_prob(ngram[:-1], ngram[-1]) == pytest.approx(expected, abs=1e-5)
        assert model.log10_prob(("c", *ngram[:-1]), ngram[-1]) == pytest.approx(expected, abs=1e-5)  # no longer history
        row = np.array([[model.ids[word] for word in ngram]])
        assert model.log10_probs(row) == pytest.approx([expected], abs=1e-5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_written_and_read(tmp_path_factory: pytest.TempPathFactory, seed: int, order: int) -> None:
    model = random_model(seed, order)
    path = tmp_path_factory.mktemp("written") / "arpa.gz"
    model.write(path)
    again = Arpa.read(path)
    assert again.words == model.words
    for mine, other in zip(model.sections, again.sections, strict=True):
        assert (mine.keys == other.keys).all()
        assert mine.log10_probs == pytest.approx(other.log10_probs, abs=1e-6)
        assert mine.backoffs == pytest.approx(other.backoffs, abs=1e-6)
    once = path.read_bytes()
    again.write(path)
    assert path.read_bytes() == once


def test_words_that_the_model_lacks(srilm: Path) -> None:
    model = Arpa.read(srilm)
    assert "a" in model
    assert "q" not in model
    assert model.order == 3
    assert model.log10_prob((BOS, "a"), "q") == -np.inf
    assert model.log10_prob(("q", "a"), "b") == model.log10_prob(("a",), "b")
    assert model.log10_prob((), "b") == pytest.approx(-0.7447275)


def test_every_history_of_a_random_model_by_both_ways() -> None:
    model = random_model(7, 4)
    for history in histories(4):
        row = [-1] * (3 - len(history)) + [model.ids[word] for word in history]
        rows = np.array([[*row, model.ids[word]] for word in "abcd"])
        expected = [model.log10_prob(history, word) for word in "abcd"]
        assert model.log10_probs(rows) == pytest.approx(expected, abs=1e-6)


def test_order_without_n_grams(tmp_path: Path) -> None:
    """Its weights still count."""
    (tmp_path / "arpa").write_text("\\data\\\nngram 1=2\nngram 2=0\n\\1-grams:\n-0.5 </s>\n-1 <s> -0.25\n\\2-grams:\n\\end\\\n")
    model = Arpa.read(tmp_path / "arpa")
    assert model.log10_prob((BOS,), EOS) == -0.75
    assert model.log10_probs(model.events([[]], "<unk>")) == [-0.75]


@pytest.mark.parametrize(("weight", "refused"), [("-0.5", True), ("0", False), ("", False)])
def test_weights_of_the_longest(tmp_path: Path, weight: str, refused: bool) -> None:
    """Nothing backs off from them: a model that has such was cut down from a longer one, and its sums are not one."""
    text = f"\\data\\\nngram 1=2\nngram 2=1\n\\1-grams:\n-0.5 </s>\n-1 <s> -0.25\n\\2-grams:\n-0.1 <s> </s> {weight}\n\\end\\\n"
    (tmp_path / "arpa").write_text(text)
    if not refused:
        assert Arpa.read(tmp_path / "arpa").log10_prob((BOS,), EOS) == pytest.approx(-0.1)
        return
    with pytest.raises(RecipeError, match="its longest n-grams, of order 2, have back-off weights"):
        Arpa.read(tmp_path / "arpa")


def test_longer_than_4_grams(tmp_path: Path) -> None:
    (tmp_path / "arpa").write_text("\\data\\\n" + "".join(f"ngram {n}=1\n" for n in range(1, 6)))
    with pytest.raises(RecipeError, match="at most 4, found 'ngram 5=1'"):
        Arpa.read(tmp_path / "arpa")
