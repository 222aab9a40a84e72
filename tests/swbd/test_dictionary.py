"""The dictionary: the odd lines of the real one, and words that it lacks, from every source that there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from recipes.swbd.dictionary import Lexicon, add_words, compose, phones_of, read_cmudict, read_msu

MSU = """# header line
*** a comment
A.  ey
B.  b iy
U.  y uw
S.  eh s
A.T.&amp;T.  ey t iy ae n d t iy
Hello  hh ax l ow
hello  hh eh l ow
[silence]  sil
cat  k ae t
them_1  ax m
Creek  k r ih k
huh-uh  hh ah hh ah
"""


def test_the_msu_dictionary(tmp_path: Path) -> None:
    (tmp_path / "dict").write_text(MSU)
    lexicon = read_msu(tmp_path / "dict")
    assert lexicon["hello"] == {("hh", "ax", "l", "ow"), ("hh", "eh", "l", "ow")}
    assert lexicon["a.t.&t."] == {("ey", "t", "iy", "ae", "n", "d", "t", "iy")}
    assert lexicon["them"] == {("ax", "m")}
    assert (lexicon["creek"], lexicon["huh-uh"]) == ({("k", "r", "iy", "k")}, {("ah", "hh", "ah")})  # put right
    assert "[silence]" not in lexicon


def test_no_dictionary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        read_msu(tmp_path / "none")
    (tmp_path / "dict").write_text("# nothing\n")
    with pytest.raises(RecipeError, match="the dictionary is empty"):
        read_msu(tmp_path / "dict")


def test_cmudict_in_the_dictionarys_phones() -> None:
    found = read_cmudict({"cat": {("k", "ae", "t")}})
    assert found["tack"] == {("t", "ae", "k")}
    assert "dog" not in found
    # CMUdict's unstressed AH: about, ago, AH0 B AW1 T, AH0 G OW1; cut has AH1
    common = {"cut": {("k", "ah", "t")}, "got": {("g", "aa", "t")}, "bow": {("b", "aw"), ("b", "ow")}}
    assert read_cmudict(common | {"about": {("ax", "b", "aw", "t")}})["ago"] == {("ax", "g", "ow")}
    assert read_cmudict(common | {"about": {("ah", "b", "aw", "t")}})["ago"] == {("ah", "g", "ow")}
    assert read_cmudict(common | {"about": {("ax", "b", "aw", "t")}})["cut"] == {("k", "ah", "t")}


NAMES: Lexicon = {
    "u.": {("y", "uw")},
    "s.": {("eh", "s")},
    "c.": {("s", "iy")},
    "d.": {("d", "iy")},
    "w.": {("d", "ah", "b", "y", "uw"), ("d", "ah", "b", "l", "y", "uw")},
    "cat": {("k", "ae", "t")},
    "dog": {("d", "ao", "g")},
    "jones": {("jh", "ow", "n", "z")},
}


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("u._s.", "y uw eh s"),
        ("u._s.'s", "y uw eh s ih z"),
        ("c._d.s", "s iy d iy z"),
        ("d.'s", "d iy z"),
        ("w._w.", "d ah b l y uw d ah b l y uw"),
        ("cat's", "k ae t s"),
        ("dog's", "d ao g z"),
        ("jones's", "jh ow n z ih z"),
        ("jones'", "jh ow n z"),
        ("cat-dog", "k ae t d ao g"),
        ("u._s.-cat's", "y uw eh s k ae t s"),
        ("x._y.", None),
        ("x.", None),
        ("cow's", None),
        ("cat-cow", None),
        ("cat--dog", None),
        ("'s", None),
        ("-", None),
        ("cats", None),
    ],
)
def test_words_of_known_parts(word: str, phones: str | None) -> None:
    assert compose(word, NAMES) == (phones and tuple(phones.split()))


# CMUdict has some thousand words of these phones
FEW: Lexicon = {
    "b.": {("b", "iy")},
    "t.": {("t", "iy")},
    "talent": {("t", "ae", "l", "ax", "n", "t")},
    "kiss": {("k", "ih", "s")},
    "dizzy": {("d", "ih", "z", "iy")},
    "but": {("b", "ah", "t")},
}


def test_sources_in_order() -> None:
    words = ["ballot", "b._t.", "ballot's", "dannel", "dan-nel", "taddin", "we-", "-ing", "4", "naïve", "[foo]", "zelvyn"]
    guessable = set(words) - {"taddin"}
    added = add_words(words, guessable, FEW)
    assert {word: entry.source.split()[0] for word, entry in added.items()} == {
        "ballot": "cmudict",
        "b._t.": "letters",
        "ballot's": "parts",
        "dannel": "g2p",
        "dan-nel": "g2p",
    }
    assert added["ballot"].variants == {("b", "ae", "l", "ax", "t")}
    assert added["ballot's"].variants == {("b", "ae", "l", "ax", "t", "s")}
    assert added["dannel"] == added["dan-nel"]
    assert added["dannel"].variants == {("d", "ae", "n", "ax", "l")}
    assert 0 < float(added["dannel"].source.split()[1]) <= 1
    assert added == add_words(words[::-1], guessable, FEW)


@settings(max_examples=15, deadline=None)
@given(st.text("abdilnst-'._", min_size=1, max_size=8))
def test_no_phone_but_the_dictionarys(word: str) -> None:
    """Whatever the word: of all sources but the model, which learns from no other phones."""
    added = add_words([word, f"{word}'s", f"b._t.-{word}"], set(), FEW)
    assert phones_of(FEW) >= phones_of({word: entry.variants for word, entry in added.items()})


def test_no_phone_but_the_dictionarys_from_the_model() -> None:
    words = ["dannel", "taddin", "kibbital", "alabantic", "bliss", "sizzik"]
    added = add_words(words, set(words), FEW)
    assert len(added) == len(words)
    assert phones_of(FEW) >= phones_of({word: entry.variants for word, entry in added.items()})


def run(root: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["--dictionary", folder / "msu", "--train", folder / "text", *arguments, "--out", folder / "dict"]
    return subprocess.run(
        [sys.executable, "-m", "recipes.swbd.dictionary", *map(str, command)], cwd=root, capture_output=True, text=True
    )


def test_words_of_all_texts_are_added_or_listed(tmp_path: Path, root: Path) -> None:
    (tmp_path / "msu").write_text(MSU)
    (tmp_path / "text").write_text("utt-1 hello zelvyn zelvyn u._s. [noise]\nutt-2 tack hel- hel- cato\n")
    (tmp_path / "other").write_text("utt-3 steak stick hockle hockle\nutt-4 kettlo\n")
    (tmp_path / "plain").write_text("hammock kettla hel-\n")
    done = run(root, tmp_path, "--text", str(tmp_path / "other"), "--plain", str(tmp_path / "plain"))
    assert done.returncode == 0, done.stderr
    # without the phone v no word has the letter; without ih there is no stick; kettlo and kettla were seen once, in no audio
    assert (tmp_path / "dict" / "oov_words.txt").read_text() == "hel- 3\nzelvyn 2\nkettla 1\nkettlo 1\nstick 1\n"
    assert "5 words (4 tokens of the training text) have no pronunciation and become <unk>" in done.stderr
    added = [line.split("\t") for line in (tmp_path / "dict" / "added_words.txt").read_text().splitlines()]
    assert [(word, source.split()[0]) for word, source, _ in added] == [
        ("cato", "cmudict"),
        ("hammock", "cmudict"),
        ("hockle", "g2p"),
        ("steak", "cmudict"),
        ("tack", "cmudict"),
        ("u._s.", "letters"),
    ]
    assert added[4:] == [["tack", "cmudict", "t ae k"], ["u._s.", "letters", "y uw eh s"]]
    lexicon = (tmp_path / "dict" / "lexiconp.txt").read_text().splitlines()
    assert "<unk>\t1.0\toov" in lexicon
    assert "[vocalized-noise]\t1.0\tspn" in lexicon
    assert set(lexicon) >= {f"{word}\t1.0\t{phones}" for word, _, phones in added}
    assert lexicon == sorted(lexicon)
    first = {path.name: path.read_bytes() for path in (tmp_path / "dict").iterdir()}
    assert run(root, tmp_path, "--text", str(tmp_path / "other"), "--plain", str(tmp_path / "plain")).returncode == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "dict").iterdir()} == first


def test_a_missing_text_is_an_error(tmp_path: Path, root: Path) -> None:
    (tmp_path / "msu").write_text(MSU)
    (tmp_path / "text").write_text("utt-1 hello\n")
    done = run(root, tmp_path, "--plain", str(tmp_path / "none"))
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path / 'none'}: no such text\n")
    assert not (tmp_path / "dict").exists()
