"""Interpolation against its definition, and EM against weights known beforehand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.lexicon import EOS, Lang
from local.lm import Arpa
from local.lm.__main__ import make_model
from local.lm.estimate import LmConf, Text
from local.lm.mix import mix, mixture_weights
from tests.graph.toy import write_lang
from tests.lang.lm_models import WORDS, assert_sums_to_one, histories, random_model

SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=30)
@given(SEEDS, SEEDS, st.integers(1, 4), st.integers(2, 4), st.floats(0.05, 0.95))
def test_mixture(seed: int, other_seed: int, order: int, other_order: int, weight: float) -> None:
    """Its n-grams are those of both, with the mixed probabilities; after every history it sums to one."""
    models = [random_model(seed, order), random_model(other_seed, other_order)]
    mixed = mix(models, [weight, 1 - weight])
    assert mixed.order == max(model.order for model in models)
    assert_sums_to_one(mixed)
    for n in range(1, mixed.order + 1):
        texts = [
            set(model.texts(n, np.arange(len(model.sections[n - 1].keys)))) if n <= model.order else set()
            for model in (*models, mixed)
        ]
        assert texts[0] | texts[1] == texts[2]
        for text in texts[2] - {"<s>"}:
            *history, word = text.split()
            expected = sum(
                share * 10 ** model.log10_prob(tuple(history), word)
                for share, model in zip((weight, 1 - weight), models, strict=True)
            )
            assert 10 ** mixed.log10_prob(tuple(history), word) == pytest.approx(expected, rel=1e-5)


def test_words_of_one_model_alone() -> None:
    mixed = mix([random_model(1, 3, "abc"), random_model(2, 3, "bcd")], [0.25, 0.75])
    assert_sums_to_one(mixed)
    assert 10 ** mixed.log10_prob((), "a") == pytest.approx(0.25 * 10 ** random_model(1, 3, "abc").log10_prob((), "a"))


def test_one_model_alone() -> None:
    model = random_model(3, 3)
    again = mix([model], [1.0])
    for history in histories(3):
        for word in (*WORDS, EOS):
            assert again.log10_prob(history, word) == pytest.approx(model.log10_prob(history, word), abs=1e-5)


def test_weights_of_models_that_share_no_words() -> None:
    """Each word is of one model, whatever its probability: the weights are the shares of the words."""
    probs = np.array([[0.5, 0], [0.01, 0], [0.2, 0], [0, 0.001], [0, 0]])
    weights, _ = mixture_weights(probs)
    assert weights == pytest.approx([0.75, 0.25])


@settings(deadline=None, max_examples=50)
@given(SEEDS, st.integers(2, 5))
def test_em_climbs_to_the_top(seed: int, models: int) -> None:
    """The likelihood never falls, and no weights that are tried are better."""
    draw = np.random.default_rng(seed)
    probs = draw.dirichlet(np.ones(models), 200) ** 2
    weights, history = mixture_weights(probs)
    assert weights.sum() == pytest.approx(1)
    assert (np.diff(history) > -1e-12).all()
    best = np.log(probs @ weights).mean()
    for other in draw.dirichlet(np.ones(models), 100):
        assert np.log(probs @ (0.9 * weights + 0.1 * other)).mean() < best + 1e-4


@pytest.fixture
def texts(tmp_path: Path) -> list[Text]:
    """Two texts of different habits, and a held-out one of the second's with a little of the first's."""
    for name, sentences in {
        "one": ["a b", "a b c", "a b a b", "q a b"],
        "two": ["c d", "c c d", "d c d", "c d c d", "d"],
        "heldout": ["c d", "c d c", "a b", "d c d", "q"],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text("".join(f"u{n} {words}\n" for n, words in enumerate(sentences)))
    return [Text(tmp_path / name / "text") for name in ("one", "two", "heldout")]


def test_model_of_two_texts(texts: list[Text], tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    lang = Lang.read(write_lang(tmp_path / "toy"))
    one, two, heldout = texts
    model, figures = make_model([one, two], heldout, lang, LmConf(3, None))
    assert [of_text["text"] for of_text in figures] == ["one", "two"]
    assert [of_text["words"] for of_text in figures] == [12, 13]
    assert [of_text["unknown_share"] for of_text in figures] == [1 / 12, 0]
    assert sum(of_text["weight"] for of_text in figures) == pytest.approx(1)
    assert figures[1]["weight"] > figures[0]["weight"] > 0.05
    mixed = model.perplexity(heldout, lang.oov)["perplexity"]
    assert mixed < min(of_text["heldout_perplexity"] for of_text in figures)
    alone, [figure] = make_model([two], heldout, lang, LmConf(3, None))
    assert figure["weight"] == 1
    assert alone.perplexity(heldout, lang.oov)["perplexity"] == pytest.approx(figures[1]["heldout_perplexity"])


def test_text_without_words(texts: list[Text], tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    lang = Lang.read(write_lang(tmp_path / "toy"))
    texts[0].path.write_text("u0\nu1\n")
    with pytest.raises(RecipeError, match="one/text: no word to estimate"):
        make_model(texts[:2], texts[2], lang, LmConf(3, None))


def test_command_lines(texts: list[Text], tmp_path: Path) -> None:
    """A training corpus counts by the utterances of the training set; texts by name; twice the same bytes."""
    (tmp_path / "toy").mkdir()
    lang = write_lang(tmp_path / "toy")
    (tmp_path / "train").write_text("u0 a b\nu1 a b c\n")
    (tmp_path / "more.txt").write_text("d d a\n")

    def lm(*arguments: str | Path) -> None:
        subprocess.run([sys.executable, "-m", "local.lm", *map(str, arguments)], check=True, capture_output=True)

    one, two, heldout = (text.path for text in texts)
    for name in ("first", "again"):
        estimating = [
            "estimate",
            "--train",
            tmp_path / "train",
            "--corpora",
            one,
            "--text",
            two,
            "--plain",
            tmp_path / "more.txt",
        ]
        conf = ["--heldout", heldout, "--lang", lang, "--conf", '{"order": 3, "vocabulary": null}']
        lm(*estimating, *conf, "--out", tmp_path / name / "arpa.gz")
    assert (tmp_path / "first/arpa.gz").read_bytes() == (tmp_path / "again/arpa.gz").read_bytes()
    mixture = json.loads((tmp_path / "first/mixture.json").read_text())
    assert [(of_text["text"], of_text["words"]) for of_text in mixture] == [("one", 5), ("two", 13), ("more.txt", 3)]
    model = ["--arpa", tmp_path / "first/arpa.gz", "--mixture", tmp_path / "first/mixture.json", "--lang", lang]
    lm("grammar", *model, "--heldout", heldout, one, "--prune", "0.01", "--out", tmp_path / "first")
    stats = json.loads((tmp_path / "first/stats.json").read_text())
    assert stats["mixture"] == mixture
    assert list(stats["full"]["texts"]) == list(stats["first_pass"]["texts"]) == ["heldout", "one"]
    pruned = Arpa.read(tmp_path / "first/pruned.arpa.gz")
    assert [len(section.keys) for section in pruned.sections] == stats["first_pass"]["ngrams"]
    assert sum(stats["first_pass"]["ngrams"]) < sum(stats["full"]["ngrams"])
