"""The language directory: what L costs, what disambiguation leaves apart, what is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import kaldifst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.hmm.topology import Topology
from local.lexicon import (
    Lang,
    LexiconConf,
    Pronunciation,
    SilenceProbabilities,
    disambiguate,
    lexicon_fst,
    make_lang,
    read_lexicon,
)
from tests.graph.toy import LEXICON, SILENCE_PROBABILITY, write_dictionary, write_lang
from tests.lang.ways import ways


@pytest.fixture
def lang_dir(tmp_path: Path) -> Path:
    return write_lang(tmp_path)


def test_read_back(lang_dir: Path) -> None:
    lang = Lang.read(lang_dir)
    assert list(lang.phones) == ["sil", "spn", "x", "y", "z"]
    assert list(lang.words) == ["<eps>", "<unk>", "a", "b", "c", "d", "#0", "<s>", "</s>"]
    assert lang.pronunciations("a") == [
        Pronunciation(0.6, ("x",), SILENCE_PROBABILITY),
        Pronunciation(0.3, ("x", "y"), SILENCE_PROBABILITY),
    ]
    assert lang.pronunciations("never heard") == [Pronunciation(1.0, ("spn",), SILENCE_PROBABILITY)]
    assert lang.silence == SilenceProbabilities(SILENCE_PROBABILITY, SILENCE_PROBABILITY)
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
    spelled = {"red": ("r", "eh", "d"), "read": ("r", "eh", "d"), "re": ("r",)}
    lexicon = {word: [Pronunciation(1.0, phones, 0.5)] for word, phones in spelled.items()}
    marked, highest = disambiguate(lexicon)
    assert marked == {"red": [("r", "eh", "d", "#1")], "read": [("r", "eh", "d", "#2")], "re": [("r", "#1")]}
    assert highest == 2


SPELLINGS = st.lists(st.sampled_from("xyz"), min_size=1, max_size=4).map(tuple)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), SPELLINGS), min_size=1, unique=True))
def test_no_marked_pronunciation_begins_another(entries: list[tuple[str, tuple[str, ...]]]) -> None:
    lexicon: dict[str, list[Pronunciation]] = {}
    for word, spelled in entries:
        lexicon.setdefault(word, []).append(Pronunciation(1.0, spelled, 0.5))
    marked = list(itertools.chain(*disambiguate(lexicon)[0].values()))
    for one, other in itertools.permutations(marked, 2):
        assert other[: len(one)] != one


PROBABILITIES = st.floats(0.01, 0.99)
FACTORS = st.just(1.0) | st.floats(0.01, 20)
ENTRIES = st.builds(Pronunciation, PROBABILITIES, SPELLINGS, PROBABILITIES, FACTORS, FACTORS)


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(ENTRIES, min_size=1, max_size=3, unique_by=lambda e: e.phones), min_size=1
    ),
    st.builds(SilenceProbabilities, PROBABILITIES, PROBABILITIES, FACTORS, FACTORS),
    st.data(),
)
@settings(max_examples=60)
def test_l_determinized_costs_what_every_way_costs(
    lexicon: dict[str, list[Pronunciation]], silence: SilenceProbabilities, data: st.DataObject
) -> None:
    """All paths of a word sequence, not its best one alone; and L with silence before words told apart can be determinized."""
    said = data.draw(st.lists(st.sampled_from(sorted(lexicon)), max_size=3))
    _, highest = disambiguate(lexicon)
    symbols = ["<eps>", "sil", "x", "y", "z", *(f"#{n}" for n in range(highest + 2))]
    phones = {name: number for number, name in enumerate(symbols)}
    words = {name: number for number, name in enumerate(["<eps>", *sorted(lexicon), "#0"])}
    lang = Lang(phones, {}, words, lexicon, ("sil",), "sil", silence, "a", Topology.default())
    fst = lexicon_fst(lexicon, phones, words, "sil", silence)
    kaldifst.determinize_star(fst, use_log=True)
    kaldifst.arcsort(fst, "olabel")
    paths = kaldifst.compose(fst, kaldifst.make_linear_acceptor([words[word] for word in said]))
    found = []
    for path in kaldifst.convert_nbest_to_vector(kaldifst.shortest_path(paths, n=1000)):
        _, labels, _, weight = kaldifst.get_linear_symbol_sequence(path)
        spoken = tuple(name for label in labels if (name := symbols[label])[0] != "#")
        found.append((spoken, weight.value))
    expected = sorted((spoken, -math.log(p)) for p, spoken in ways(said, lang))
    assert [spoken for spoken, _ in sorted(found)] == [spoken for spoken, _ in expected]
    costs = [cost for _, cost in sorted(found)]
    assert costs == pytest.approx([cost for _, cost in expected], abs=2e-3)  # determinization rounds


def test_words_start_in_one_state_where_silence_before_them_costs_nothing(tmp_path: Path) -> None:
    """Four states and one between the phones of each pronunciation: no more work for the graph than it needs."""
    lexicon = kaldifst.StdVectorFst.read(str(write_lang(tmp_path) / "L_disambig.fst"))
    # spn; x #1; x y #1; x #2; y z; x y z
    assert lexicon.num_states == 4 + 0 + 1 + 2 + 1 + 1 + 2


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
        ("e\t1.0\t0.5\t1.0\t1.0\tx", r":7: expected 'word<TAB>"),
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
        read_lexicon(tmp_path / "lexiconp.txt", 0.5)
