"""The dictionary: the odd lines of the real one, words from CMUdict, acronyms by letters, words in none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from local.cli import RecipeError
from recipes.swbd.dictionary import from_cmudict, read_msu, spell

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
    assert spell(["u._s.", "x._y."], lexicon) == {"u._s.": {("y", "uw", "eh", "s")}}
    assert from_cmudict(["cat", "zzzz"], {"k", "ae", "t"}) == {"cat": {("k", "ae", "t")}}
    assert from_cmudict(["dog"], {"k", "ae", "t"}) == {}


def test_no_dictionary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        read_msu(tmp_path / "none")
    (tmp_path / "dict").write_text("# nothing\n")
    with pytest.raises(RecipeError, match="the dictionary is empty"):
        read_msu(tmp_path / "dict")


def test_a_word_in_no_dictionary_is_counted_and_listed(tmp_path: Path, root: Path) -> None:
    (tmp_path / "msu").write_text(MSU)
    (tmp_path / "text").write_text("utt-1 hello zelvyn zelvyn u._s. [noise]\nutt-2 tack brabbleton\n")
    arguments = ["--dictionary", tmp_path / "msu", "--text", tmp_path / "text", "--out", tmp_path / "dict"]
    done = subprocess.run(
        [sys.executable, "-m", "recipes.swbd.dictionary", *map(str, arguments)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dict" / "oov_words.txt").read_text() == "zelvyn 2\nbrabbleton 1\n"
    assert "2 words (3 tokens) are in no dictionary and become <unk>" in done.stderr
    assert (tmp_path / "dict" / "added_words.txt").read_text() == "tack t ae k\nu._s. y uw eh s\n"
    lexicon = (tmp_path / "dict" / "lexiconp.txt").read_text().splitlines()
    assert "<unk>\t1.0\tspn" in lexicon
    assert lexicon == sorted(lexicon)
