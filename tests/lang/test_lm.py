"""The language model against back-off worked out by hand, closed forms and the acceptor's own path costs."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path

import kaldifst
import pytest

from local.cli import RecipeError
from local.lexicon import BOS, EOS, Lang
from local.lm import Arpa, acceptor, estimate, make_grammar
from tests.graph.toy import ARPA, write_lang

SENTENCES = ["a b a", "a b", "b a a b", "c", "a", "b b q a"]  # q is in no lexicon; d is in no sentence


@pytest.fixture
def lang_dir(tmp_path: Path) -> Path:
    return write_lang(tmp_path)


@pytest.fixture
def estimated(lang_dir: Path) -> Path:
    path = lang_dir.parent / "arpa.gz"
    estimate((sentence.split() for sentence in SENTENCES), Lang.read(lang_dir), 3, path)
    return path


# log10, with the back-off weights of the toy's model: explicit; backed off; backed off from a history without weight
BY_HAND = [
    ("a", [-0.5, -0.2 - 0.7]),
    ("a b", [-0.5, -0.4, -0.9]),
    ("c", [-1.6, 0.0 - 0.7]),
    ("d d c", [-0.3 - 1.1, -0.3, -0.1 - 0.8, 0.0 - 0.7]),
    ("", [-0.3 - 0.7]),
]


@pytest.mark.parametrize(("sentence", "costs"), BY_HAND)
def test_back_off_by_hand(lang_dir: Path, sentence: str, costs: list[float]) -> None:
    model = Arpa.read(lang_dir.parent / "arpa")
    history: tuple[str, ...] = (BOS,)
    found = []
    for word in [*sentence.split(), EOS]:
        found.append(model.log10_prob(history, word))
        history = (*history, word)
    assert found == pytest.approx(costs)


@pytest.mark.parametrize(("sentence", "costs"), BY_HAND)
def test_g_costs_what_the_model_says(lang_dir: Path, sentence: str, costs: list[float]) -> None:
    lang = Lang.read(lang_dir)
    cost = explicit_cost(acceptor(lang_dir.parent / "arpa", lang_dir), [lang.words[word] for word in sentence.split()], lang)
    assert cost == pytest.approx(-sum(costs) * math.log(10), abs=1e-4)


def explicit_cost(fst: kaldifst.StdVectorFst, words: list[int], lang: Lang) -> float:
    """Follow words through G, backing off only where there is no arc for the word; #0 has no output."""
    state, cost = fst.start, 0.0
    for word in [*words, None]:
        while True:
            arcs = {arc.ilabel: arc for arc in kaldifst.ArcIterator(fst, state)}
            final = fst.final(state).value
            if word is None and final < math.inf:
                return cost + final
            arc = arcs.get(word) or arcs[lang.words["#0"]]
            assert arc.olabel == (word if arc.ilabel == word else 0)
            state, cost = arc.nextstate, cost + arc.weight.value
            if arc.ilabel == word:
                break
    raise AssertionError


def test_perplexity_by_hand(lang_dir: Path) -> None:
    """Of "a b" and "d d c": 3 + 4 events; a word of no 1-gram is left out where there is no <unk>."""
    model = Arpa.read(lang_dir.parent / "arpa")
    found = model.perplexity([["a", "b"], ["d", "d", "c"]], "<unk>")
    total = sum(BY_HAND[1][1]) + sum(BY_HAND[3][1])
    assert found["log10_prob"] == pytest.approx(total)
    assert found["perplexity"] == pytest.approx(10 ** (-total / 7))
    assert (found["sentences"], found["words"], found["unknown_words"]) == (2, 5, 0)
    found = model.perplexity([["a", "q"]], "<unk>")
    assert found["log10_prob"] == pytest.approx(-0.5 - 0.7)
    assert found["perplexity"] == pytest.approx(10 ** (1.2 / 2))
    assert found["unknown_share"] == 0.5


def test_estimated_probabilities_sum_to_one(estimated: Path) -> None:
    """After every history that the model knows and some it does not; over all words, the sentence's end included."""
    model = Arpa.read(estimated)
    vocabulary = {word for (word,) in model.ngrams[0]} - {BOS}
    assert vocabulary == {"a", "b", "c", "d", "<unk>", EOS}
    histories = [(), (BOS,), *itertools.product("abcd", repeat=1), *itertools.product("abcd", repeat=2), (BOS, "a")]
    for history in histories:
        total = sum(10 ** model.log10_prob(history, word) for word in vocabulary)
        assert total == pytest.approx(1, abs=1e-5), history


def test_kneser_ney_by_hand(lang_dir: Path, tmp_path: Path) -> None:
    """Bigrams of "a b" twice and "a a" once. Counts: <s> a 3, a b 2, b </s> 2, a a 1, a </s> 1; two of them once and
    two twice: D = 2 / (2 + 2 * 2) = 1/3. Contexts: a 2 (<s>, a), b 1, </s> 2 (b, a), and one each for c and d: 7.
    """
    estimate([["a", "b"], ["a", "b"], ["a", "a"]], Lang.read(lang_dir), 2, tmp_path / "arpa.gz")
    model = Arpa.read(tmp_path / "arpa.gz")
    discount = 1 / 3
    for words, probability in {
        (BOS, "a"): (3 - discount) / 3,
        ("a", "b"): (2 - discount) / 4,
        ("a", "a"): (1 - discount) / 4,
        ("b", EOS): (2 - discount) / 2,
        ((), "a"): 2 / 7,
        ((), "d"): 1 / 7,
        # seen after b: </s> alone; what its discount leaves goes to the others by their unigrams
        ("b", "a"): discount / 2 / (1 - 2 / 7) * 2 / 7,
    }.items():
        history = words[0] if isinstance(words[0], tuple) else (words[0],)
        assert 10 ** model.log10_prob(history, words[1]) == pytest.approx(probability, abs=1e-6), words


def test_same_bytes_twice(estimated: Path, lang_dir: Path, tmp_path: Path) -> None:
    estimate((sentence.split() for sentence in SENTENCES), Lang.read(lang_dir), 3, tmp_path / "again.gz")
    assert (tmp_path / "again.gz").read_bytes() == estimated.read_bytes()


def test_format_drops_words_without_pronunciation(lang_dir: Path, tmp_path: Path) -> None:
    arpa = ARPA.replace("1=6", "1=7").replace("2=6", "2=8").replace("\n\n\\2-grams", "\n-1\tq\t-0.5\n\n\\2-grams")
    arpa = arpa.replace("\n\\end", "-0.1\ta q\n-0.1\tq a\n\n\\end")
    with gzip.open(tmp_path / "user.gz", "wt") as file:
        file.write(arpa)
    (tmp_path / "text").write_text("utt1 a b\nutt2 q a\n")
    make_grammar(tmp_path / "user.gz", lang_dir, tmp_path / "text", tmp_path)
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert (stats["ngrams"], stats["dropped_ngrams"], stats["dropped_words"]) == ([7, 8], 3, 1)
    assert stats["heldout"]["unknown_words"] == 0  # the model knows q, though the lexicon does not
    fst = kaldifst.StdVectorFst.read(str(tmp_path / "G.fst"))
    assert str(fst) == str(acceptor(lang_dir.parent / "arpa", lang_dir))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("2=6", "2=7"), "announces n-grams by order"),
        (("\\end\\", ""), "cut off"),
        (("\\data\\", ""), "cut off"),
        (("ngram 1=6", "ngram one=6"), "expected 'ngram ORDER=COUNT'"),
        (("-0.4\ta b", "-0.4\ta"), "expected log10 probability, 2 words"),
        (("-0.4\ta b", "x\ta b"), "expected log10 probability, 2 words"),
        (("-0.4\ta b", "-0.5\t<s> a"), "stands there twice"),
        (("-99\t<s>\t-0.3\n", "-99\te\n"), "no 1-gram <s>"),
    ],
)
def test_damaged_arpa(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "arpa").write_text(ARPA.replace(*change))
    with pytest.raises(RecipeError, match=message):
        Arpa.read(tmp_path / "arpa")


def test_cut_gzip_and_missing_file(estimated: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(estimated.read_bytes()[:100])
    with pytest.raises(RecipeError, match=r"cut\.gz"):
        Arpa.read(tmp_path / "cut.gz")
    with pytest.raises(RecipeError, match="no such ARPA"):
        Arpa.read(tmp_path / "none")


def test_bad_estimation_input(lang_dir: Path, tmp_path: Path) -> None:
    lang = Lang.read(lang_dir)
    with pytest.raises(RecipeError, match=r"lm\.order"):
        estimate([["a"]], lang, 1, tmp_path / "arpa.gz")
    with pytest.raises(RecipeError, match="text is empty"):
        estimate([], lang, 3, tmp_path / "arpa.gz")


def test_heldout_text_of_another_language(lang_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("utt1 q r s\n")
    with pytest.raises(RecipeError, match="100% of its words"):
        make_grammar(lang_dir.parent / "arpa", lang_dir, tmp_path / "text", tmp_path)
    assert not (tmp_path / "G.fst").exists()
