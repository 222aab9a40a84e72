"""The language directory: symbol tables, HMM topology and the lexicon transducer L.

python -m local.lexicon --dict exp/dict --out exp/lang --conf '{"silence_probability": 0.5}'
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import kaldifst

from local.cli import RecipeError, parse_conf, run
from local.files import atomic_dir
from local.hmm.topology import Topology

EPSILON, BACKOFF, BOS, EOS = "<eps>", "#0", "<s>", "</s>"
NO_WORDS = frozenset({EPSILON, BACKOFF, BOS, EOS})  # in words.txt, but no words

Pronunciation = tuple[float, tuple[str, ...]]  # probability, phones


@dataclass(frozen=True)
class LexiconConf:
    """How the lexicon transducer is built."""

    silence_probability: float  # of optional silence after a word and at the beginning


@dataclass(frozen=True)
class Lang:
    """A language directory as read."""

    phones: dict[str, int]  # without disambiguation symbols
    disambiguation: dict[str, int]  # #0, #1, ... among the phones
    words: dict[str, int]
    lexicon: dict[str, list[Pronunciation]]
    silence_phones: tuple[str, ...]
    optional_silence: str
    silence_probability: float
    oov: str
    topology: Topology

    def pronunciations(self, word: str) -> list[Pronunciation]:
        """The pronunciations of a word; of the unknown word where it has none."""
        return self.lexicon.get(word) or self.lexicon[self.oov]

    @staticmethod
    def read(path: str | Path) -> Lang:
        """Read a folder that this module's command line has made.

        :raises RecipeError: for a missing file.
        """
        path = Path(path)
        if not (path / "words.txt").exists():
            raise RecipeError(f"{path}: no words.txt; run the stage 'lang'")
        symbols = _symbols(path / "phones.txt")
        return Lang(
            phones={name: number for name, number in symbols.items() if number and not name.startswith("#")},
            disambiguation={name: number for name, number in symbols.items() if name.startswith("#")},
            words=_symbols(path / "words.txt"),
            lexicon=read_lexicon(path / "lexiconp.txt"),
            silence_phones=tuple(_lines(path / "silence_phones.txt")),
            optional_silence=_lines(path / "optional_silence.txt")[0],
            silence_probability=float(_lines(path / "silence_probability.txt")[0]),
            oov=_lines(path / "oov.txt")[0],
            topology=Topology.read(path / "topo.json"),
        )


def _lines(path: Path) -> list[str]:
    if not path.exists():
        raise RecipeError(f"{path}: no such file; run the stage 'lang'")
    return path.read_text(encoding="utf-8").splitlines()


def _symbols(path: Path) -> dict[str, int]:
    return {name: int(number) for name, number in (line.split() for line in _lines(path))}


def read_lexicon(path: Path, phones: set[str] | None = None) -> dict[str, list[Pronunciation]]:
    """Read ``word<TAB>probability<TAB>phones`` lines.

    :param phones: the phones that may occur; any where ``None``.
    :raises RecipeError: for a line of another form, an unknown phone, an entry given twice, naming the line.
    """
    lexicon: dict[str, list[Pronunciation]] = {}
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}:{number}"
        try:
            word, probability_text, pronunciation = line.split("\t")
            probability = float(probability_text)
        except ValueError:
            raise RecipeError(f"{where}: expected 'word<TAB>probability<TAB>phones', found {line!r}") from None
        spelled = tuple(pronunciation.split())
        if word in NO_WORDS or word.split() != [word]:
            raise RecipeError(f"{where}: {word!r} cannot be a word; take another spelling")
        if not 0 < probability <= 1:
            raise RecipeError(f"{where}: expected a probability above 0 and at most 1, found {probability}")
        if not spelled:
            raise RecipeError(f"{where}: the word {word} has no phones")
        if phones is not None and (unknown := [phone for phone in spelled if phone not in phones]):
            raise RecipeError(f"{where}: the phone {unknown[0]} of {word} is in no list of phones")
        if spelled in (known for _, known in lexicon.get(word, [])):
            raise RecipeError(f"{where}: this pronunciation of {word} stands there twice")
        lexicon.setdefault(word, []).append((probability, spelled))
    if not lexicon:
        raise RecipeError(f"{path}: the lexicon is empty")
    return lexicon


def disambiguate(lexicon: dict[str, list[Pronunciation]]) -> tuple[dict[str, list[tuple[str, ...]]], int]:
    """Append ``#1``, ``#2``, ... to pronunciations that others share or begin with, so that L can be determinized.

    :return: each word's pronunciations in order, and the highest number used.
    """
    variants = [(word, phones) for word, entries in lexicon.items() for _, phones in entries]
    counts = Counter(phones for _, phones in variants)
    prefixes = {phones[:length] for _, phones in variants for length in range(1, len(phones))}
    used: Counter[tuple[str, ...]] = Counter()
    marked: dict[str, list[tuple[str, ...]]] = {}
    for word, phones in variants:
        if counts[phones] > 1 or phones in prefixes:
            used[phones] += 1
            phones = (*phones, f"#{used[phones]}")
        marked.setdefault(word, []).append(phones)
    return marked, max(used.values(), default=0)


def lexicon_fst(
    lexicon: dict[str, list[Pronunciation]],
    phones: dict[str, int],
    words: dict[str, int],
    optional_silence: str,
    silence_probability: float,
) -> kaldifst.StdVectorFst:
    """Build L with disambiguation symbols: phones to words, optional silence at the start and after each word.

    :param phones: all phones and disambiguation symbols; the last of these marks optional silence.
    """
    marked, highest = disambiguate(lexicon)
    with_silence, without = -math.log(silence_probability), -math.log1p(-silence_probability)
    fst = kaldifst.StdVectorFst()
    start, loop, silence, after_silence = (fst.add_state() for _ in range(4))
    fst.start = start
    fst.set_final(loop, 0.0)

    def arc(source: int, target: int, phone: int, word: int, cost: float) -> None:
        fst.add_arc(source, kaldifst.StdArc(ilabel=phone, olabel=word, weight=cost, nextstate=target))

    arc(start, loop, 0, 0, without)
    arc(start, silence, 0, 0, with_silence)
    arc(silence, after_silence, phones[optional_silence], 0, 0.0)
    arc(after_silence, loop, phones[f"#{highest + 1}"], 0, 0.0)
    for word, entries in lexicon.items():
        for (probability, _), spelled in zip(entries, marked[word], strict=True):
            source = loop
            for position, phone in enumerate(spelled):
                cost = -math.log(probability) if position == 0 else 0.0
                label = words[word] if position == 0 else 0
                if position < len(spelled) - 1:
                    target = fst.add_state()
                    arc(source, target, phones[phone], label, cost)
                    source = target
                else:
                    arc(source, loop, phones[phone], label, cost + without)
                    arc(source, silence, phones[phone], label, cost + with_silence)
    arc(loop, loop, phones[BACKOFF], words[BACKOFF], 0.0)
    return fst


def make_lang(dictionary: Path, conf: LexiconConf, out: Path) -> None:
    """Write the language directory of a dictionary.

    :raises RecipeError: for phones or words that cannot be, a silence probability out of range, a lexicon line that
        :func:`read_lexicon` refuses, an unknown word that has no pronunciation.
    """
    if not 0 < conf.silence_probability < 1:
        raise RecipeError(f"lexicon.silence_probability: expected between 0 and 1, found {conf.silence_probability}")
    silence, speech = (_lines(dictionary / name) for name in ("silence_phones.txt", "nonsilence_phones.txt"))
    optional_silence = _lines(dictionary / "optional_silence.txt")[0]
    every = [*silence, *speech]
    if len(set(every)) < len(every):
        twice = sorted(phone for phone, count in Counter(every).items() if count > 1)
        raise RecipeError(f"{dictionary}: the lists of phones name {twice} twice")
    if wrong := [phone for phone in every if phone.split() != [phone] or phone.startswith("#") or phone == EPSILON]:
        raise RecipeError(f"{dictionary}: {wrong[0]!r} cannot be a phone; take another name")
    if optional_silence not in silence:
        raise RecipeError(f"{dictionary}: the optional silence {optional_silence} is no silence phone")
    lexicon = read_lexicon(dictionary / "lexiconp.txt", set(every))
    oov = _lines(dictionary / "oov.txt")[0]
    if oov not in lexicon:
        raise RecipeError(f"{dictionary}: the unknown word {oov} has no pronunciation")
    _, highest = disambiguate(lexicon)
    names = [EPSILON, *every, *(f"#{number}" for number in range(highest + 2))]
    phones = {name: number for number, name in enumerate(names)}
    words = {name: number for number, name in enumerate([EPSILON, *sorted(lexicon), BACKOFF, BOS, EOS])}
    fst = lexicon_fst(lexicon, phones, words, optional_silence, conf.silence_probability)
    with atomic_dir(out) as folder:
        for name, table in (("phones.txt", phones), ("words.txt", words)):
            (folder / name).write_text("".join(f"{symbol} {n}\n" for symbol, n in table.items()), encoding="utf-8")
        for name in ("lexiconp.txt", "silence_phones.txt", "optional_silence.txt", "oov.txt"):
            shutil.copy(dictionary / name, folder / name)
        (folder / "silence_probability.txt").write_text(f"{conf.silence_probability}\n", encoding="utf-8")
        Topology.default().write(folder / "topo.json")
        fst.write(str(folder / "L_disambig.fst"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dict", type=Path, required=True, dest="dictionary")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of LexiconConf")
    arguments = parser.parse_args()
    make_lang(arguments.dictionary, parse_conf(LexiconConf, arguments.conf), arguments.out)


if __name__ == "__main__":
    run(main)
