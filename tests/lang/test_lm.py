"""The language model against back-off worked out by hand, closed forms and the acceptor's own path costs."""

from __future__ import annotations

import gzip
import itertools
import math
from pathlib import Path

import kaldifst
import kaldilm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.lexicon import BOS, EOS, Lang
from local.lm import Arpa, acceptor
from local.lm.estimate import Text
from local.lm.grammar import make_grammar
from tests.graph.toy import ARPA, write_lang
from tests.lang.lm_models import random_model


@pytest.fixture
def lang_dir(tmp_path: Path) -> Path:
    return write_lang(tmp_path)


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


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_g_of_random_models(tmp_path_factory: pytest.TempPathFactory, seed: int, order: int) -> None:
    """Any sentence costs what the model says, and what kaldilm's G does; each state but the first and the start has a word
    or the end."""
    folder = tmp_path_factory.mktemp("toy")
    lang_dir = write_lang(folder)
    lang, model = Lang.read(lang_dir), random_model(seed, order)
    model.write(folder / "arpa.gz")
    (folder / "plain").write_bytes(gzip.decompress((folder / "arpa.gz").read_bytes()))
    names = {"disambig_symbol": "#0", "read_symbol_table": str(lang_dir / "words.txt"), "max_arpa_warnings": 0}
    kaldilm.arpa2fst(str(folder / "plain"), str(folder / "G"), **names)
    fst, other = acceptor(folder / "arpa.gz", lang_dir), kaldifst.StdVectorFst.read(str(folder / "G"))
    assert fst.num_states <= max(2, other.num_states)
    for sentence in itertools.chain.from_iterable(itertools.product("abcd", repeat=n) for n in range(4)):
        rows = model.events([list(sentence)], "<unk>")
        cost = -model.log10_probs(rows).sum() * math.log(10)
        words = [lang.words[word] for word in sentence]
        assert explicit_cost(fst, words, lang) == pytest.approx(cost, abs=1e-3)
        assert explicit_cost(other, words, lang) == pytest.approx(cost, abs=1e-3)
    for state in set(range(1, fst.num_states)) - {fst.start}:
        assert fst.num_arcs(state) > 1 or fst.final(state).value < math.inf


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


def test_format_drops_words_without_pronunciation(lang_dir: Path, tmp_path: Path) -> None:
    arpa = ARPA.replace("1=6", "1=7").replace("2=6", "2=8").replace("\n\n\\2-grams", "\n-1\tq\t-0.5\n\n\\2-grams")
    arpa = arpa.replace("\n\\end", "-0.1\ta q\n-0.1\tq a\n\n\\end")
    with gzip.open(tmp_path / "user.gz", "wt") as file:
        file.write(arpa)
    (tmp_path / "text").write_text("utt1 a b\nutt2 q a\n")
    stats = make_grammar(tmp_path / "user.gz", lang_dir, [Text(tmp_path / "text")], tmp_path)
    assert stats["full"] == stats["first_pass"]
    assert [stats["full"][key] for key in ("ngrams", "dropped_ngrams", "dropped_words")] == [[7, 8], 3, 1]
    assert stats["full"]["texts"][tmp_path.name]["unknown_words"] == 0  # the model knows q, though the lexicon does not
    fst = kaldifst.StdVectorFst.read(str(tmp_path / "G.fst"))
    assert str(fst) == str(acceptor(lang_dir.parent / "arpa", lang_dir))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("2=6", "2=7"), "arpa:21: the 2-grams end here; the header announces more"),
        (("2=6", "2=5"), r"arpa:19: expected '\\end\\' after the 5 2-grams that the header announces, found '-0.3.td d'"),
        (("1=6", "1=5"), r"expected '\\2-grams:' after the 5 1-grams"),
        (("ngram 2=6\n", ""), r"expected '\\end\\'"),
        (("ngram 2=6", "ngram 3=6"), "expected the counts of orders 1, 2"),
        (("\\2-grams", "\\3-grams"), r"expected '\\2-grams:'"),
        (("\\end\\", ""), "cut off"),
        (("\\data\\", ""), "cut off"),
        (("-0.3\td d\n\n\\end\\", ""), "cut off"),
        (("ngram 1=6", "ngram one=6"), "expected 'ngram ORDER=COUNT'"),
        (("-0.4\ta b", "-0.4\ta"), "arpa:16: expected log10 probability, 2 words"),
        (("-0.4\ta b", "x\ta b"), "expected log10 probability, 2 words"),
        (("-0.4\ta b", "0.4\ta b"), "expected log10 probability, 2 words"),
        (("-0.4\ta b", "nan\ta b"), "expected log10 probability, 2 words"),
        (("-0.4\ta b", "-0.4\ta b\tinf"), "expected log10 probability, 2 words"),
        (("-0.4\ta b", "some junk here"), "arpa:16: expected log10 probability, 2 words, weight; found 'some junk here'"),
        (("-0.4\ta b", "-0.5\t<s> a"), "2-gram '<s> a' stands there twice"),
        (("-0.4\ta b", "-0.4\ta q"), "arpa:16: the word 'q' of a 2-gram is no 1-gram"),
        (("-0.9\tb\t-0.4", "-0.9\ta\t-0.4"), "1-gram 'a' stands there twice"),
        (("-99\t<s>\t-0.3\n", "-99\te\n"), "the word '<s>' of a 2-gram is no 1-gram"),
        (("-0.7\t</s>\n", "-0.7\te\n"), "'</s>' of a 2-gram is no 1-gram"),
    ],
)
def test_damaged_arpa(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "arpa").write_text(ARPA.replace(*change))
    with pytest.raises(RecipeError, match=message):
        Arpa.read(tmp_path / "arpa")


@pytest.mark.parametrize("word", [BOS, EOS])
def test_arpa_without_start_or_end(tmp_path: Path, word: str) -> None:
    kept = next(other for other in (BOS, EOS) if other != word)
    (tmp_path / "arpa").write_text(f"\\data\\\nngram 1=2\n\n\\1-grams:\n-0.3\ta\n-0.3\t{kept}\n\n\\end\\\n")
    with pytest.raises(RecipeError, match=f"no 1-gram {word}"):
        Arpa.read(tmp_path / "arpa")


def test_cut_gzip_and_missing_file(tmp_path: Path) -> None:
    zipped = gzip.compress(ARPA.encode())
    (tmp_path / "cut.gz").write_bytes(zipped[: len(zipped) // 2])
    (tmp_path / "bad.gz").write_bytes(zipped[:30] + b"\xff" * 20 + zipped[50:])
    for name in ("cut", "bad"):
        with pytest.raises(RecipeError, match=rf"{name}\.gz"):
            Arpa.read(tmp_path / f"{name}.gz")
    with pytest.raises(RecipeError, match="no such ARPA"):
        Arpa.read(tmp_path / "none")


def test_heldout_text_of_another_language(lang_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("utt1 q r s\n")
    with pytest.raises(RecipeError, match="100% of its words"):
        make_grammar(lang_dir.parent / "arpa", lang_dir, [Text(tmp_path / "text")], tmp_path)
    assert not (tmp_path / "G.fst").exists()


def test_g_of_a_pruned_model(lang_dir: Path, tmp_path: Path) -> None:
    """A threshold beyond every n-gram's worth leaves the 1-grams, and G one state."""
    (tmp_path / "text").write_text("utt1 a b\n")
    stats = make_grammar(lang_dir.parent / "arpa", lang_dir, [Text(tmp_path / "text")], tmp_path, 10.0)
    assert (stats["full"]["ngrams"], stats["first_pass"]["ngrams"]) == ([6, 6], [6])
    assert Arpa.read(tmp_path / "pruned.arpa.gz").order == 1
    assert stats["states"] == kaldifst.StdVectorFst.read(str(tmp_path / "G.fst")).num_states <= 2
    assert stats["first_pass"]["texts"][tmp_path.name]["log10_prob"] == pytest.approx(-0.6 - 0.9 - 0.7)
