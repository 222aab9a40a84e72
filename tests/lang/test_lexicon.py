"""The language directory: what L costs, what disambiguation leaves apart, what is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import kaldifst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.cli import RecipeError
from local.lexicon import Lang, LexiconConf, disambiguate, make_lang, read_lexicon
from tests.graph.toy import LEXICON, SILENCE_PROBABILITY, write_dictionary, write_lang


@pytest.fixture
def lang_dir(tmp_path: Path) -> Path:
    return write_lang(tmp_path)


def test_read_back(lang_dir: Path) -> None:
    lang = Lang.read(lang_dir)
    assert list(lang.phones) == ["sil", "spn", "x", "y", "z"]
    assert list(lang.words) == ["<eps>", "<unk>", "a", "b", "c", "d", "#0", "<s>", "</s>"]
    assert lang.pronunciations("a") == [(0.6, ("x",)), (0.3, ("x", "y"))]
    assert lang.pronunciations("never heard") == [(1.0, ("spn",))]
    # x is a's, b's and begins others; x y begins d; the last one is optional silence's
    assert list(lang.disambiguation) == ["#0", "#1", "#2", "#3"]


def test_costs_of_words_in_l(lang_dir: Path) -> None:
    """-log of pronunciation and of silence or none at the start and after each word, over all ways to say "a c"."""
    lang = Lang.read(lang_dir)
    lexicon = kaldifst.StdVectorFst.read(str(lang_dir / "L_disambig.fst"))
    kaldifst.arcsort(lexicon, "olabel")
    said = kaldifst.make_linear_acceptor([lang.words["a"], lang.words["c"]])
    ways = kaldifst.convert_nbest_to_vector(kaldifst.shortest_path(kaldifst.compose(lexicon, said), n=100))
    names = {number: name for name, number in {**lang.phones, **lang.disambiguation}.items()}
    found = {}
    for way in ways:
        _, labels, _, weight = kaldifst.get_linear_symbol_sequence(way)
        found[" ".join(name for label in labels if (name := names[label])[0] != "#")] = weight.value
    expected = {}
    for (p, spelled), silences in itertools.product(((0.6, "x"), (0.3, "x y")), itertools.product([0, 1], repeat=3)):
        parts = ["sil" * silences[0], spelled, "sil" * silences[1], "y z", "sil" * silences[2]]
        probability = p * 0.8 * math.prod(SILENCE_PROBABILITY if s else 1 - SILENCE_PROBABILITY for s in silences)
        expected[" ".join(part for part in parts if part)] = -math.log(probability)
    assert found == pytest.approx(expected, abs=1e-5)
    assert len(expected) == 16


def test_disambiguation_by_hand() -> None:
    lexicon = {"red": [(1.0, ("r", "eh", "d"))], "read": [(1.0, ("r", "eh", "d"))], "re": [(1.0, ("r",))]}
    marked, highest = disambiguate(lexicon)
    assert marked == {"red": [("r", "eh", "d", "#1")], "read": [("r", "eh", "d", "#2")], "re": [("r", "#1")]}
    assert highest == 2


SPELLINGS = st.lists(st.sampled_from("xyz"), min_size=1, max_size=4).map(tuple)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), SPELLINGS), min_size=1, unique=True))
def test_no_marked_pronunciation_begins_another(entries: list[tuple[str, tuple[str, ...]]]) -> None:
    lexicon: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
    for word, spelled in entries:
        lexicon.setdefault(word, []).append((1.0, spelled))
    marked = list(itertools.chain(*disambiguate(lexicon)[0].values()))
    for one, other in itertools.permutations(marked, 2):
        assert other[: len(one)] != one


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("e 1.0 x", r":7: expected 'word<TAB>"),
        ("e\tone\tx", r":7: expected 'word<TAB>"),
        ("e\t0\tx", ":7: expected a probability"),
        ("e\t1.5\tx", ":7: expected a probability"),
        ("e\tnan\tx", ":7: expected a probability"),
        ("e\t1.0\t", ":7: the word e has no phones"),
        ("e\t1.0\tx q", ":7: the phone q of e"),
        ("a\t0.1\tx", ":7: this pronunciation of a stands there twice"),
        ("#0\t1.0\tx", ":7: '#0' cannot be a word"),
        ("two words\t1.0\tx", ":7: 'two words' cannot be a word"),
    ],
)
def test_bad_lexicon_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    folder = write_dictionary(tmp_path / "dict")
    with open(folder / "lexiconp.txt", "a") as file:
        file.write(line + "\n")
    assert len(LEXICON) == 6
    with pytest.raises(RecipeError, match=message):
        make_lang(folder, LexiconConf(0.5), tmp_path / "lang")
    assert not (tmp_path / "lang").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("silence_phones.txt", "sil\nspn\nx\n", r"name \['x'\] twice"),
        ("nonsilence_phones.txt", "x\ny\nz\n#1\n", "'#1' cannot be a phone"),
        ("optional_silence.txt", "x\n", "x is no silence phone"),
        ("oov.txt", "<oov>\n", "unknown word <oov> has no pronunciation"),
    ],
)
def test_bad_dictionary_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = write_dictionary(tmp_path / "dict")
    (folder / name).write_text(content)
    with pytest.raises(RecipeError, match=message):
        make_lang(folder, LexiconConf(0.5), tmp_path / "lang")


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0, 2.0])
def test_silence_probability_out_of_range(tmp_path: Path, probability: float) -> None:
    with pytest.raises(RecipeError, match="silence_probability"):
        make_lang(write_dictionary(tmp_path / "dict"), LexiconConf(probability), tmp_path / "lang")


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"words\.txt"):
        Lang.read(tmp_path)
    (tmp_path / "lexiconp.txt").write_text("")
    with pytest.raises(RecipeError, match="empty"):
        read_lexicon(tmp_path / "lexiconp.txt")
