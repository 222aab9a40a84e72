"""The language directory: symbol tables, HMM topology and the lexicon transducer L.

    python -m local.lexicon --dict exp/dict --out exp/lang --conf '{"silence_probability": 0.5}'
    python -m local.lexicon --dict exp/dict --counts ali/pronunciations.txt --out exp/lang_sp --conf '{...}'

With counts of an alignment, the probabilities of pronunciations and of silence around each are estimated as in Chen, Xu,
Povey and Khudanpur 2015, "Pronunciation and silence probability modeling for ASR".
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import kaldifst

from local.cli import RecipeError, parse_conf, run
from local.files import atomic_dir, write_text
from local.hmm.topology import Topology

EPSILON, BACKOFF, BOS, EOS = "<eps>", "#0", "<s>", "</s>"
_LEXICON_SILPROB, _SILPROB = "lexiconp_silprob.txt", "silprob.txt"  # Kaldi's
_SILPROB_NAMES = ("overall", "<s>", "</s>_s", "</s>_n")  # in the order of SilenceProbabilities
NO_WORDS = frozenset({EPSILON, BACKOFF, BOS, EOS})  # in words.txt, but no words

_SMOOTHING = 2.0  # counts that the overall silence is worth: the paper's lambda_2 and lambda_3
_MIN_SILENCE = 0.01  # of silence after a word, and of none; of a correction too. As in Kaldi


class Pronunciation(NamedTuple):
    """A word's pronunciation: what it costs, and silence around it."""

    probability: float  # the word's likeliest may have 1, so they need not sum to 1
    phones: tuple[str, ...]
    silence_after: float  # P(silence | this pronunciation before)
    silence_before: float = 1.0  # F: how much likelier silence before it is than by what stands before that
    no_silence_before: float = 1.0  # F: the same of no silence


class SilenceProbabilities(NamedTuple):
    """Silence that belongs to no word."""

    overall: float
    start: float  # P(silence | <s>)
    before_end: float = 1.0  # F(silence | </s>)
    none_before_end: float = 1.0  # F(no silence | </s>)


Variant = tuple[str, tuple[str, ...]]  # a word and the phones of one of its pronunciations; <s> and </s> have none
START: Variant = (BOS, ())
END: Variant = (EOS, ())


class Spoken(NamedTuple):
    """A word, or the end, as an alignment has it. Counts of these are all that :func:`estimate` needs, and add up.

    Whether silence was expected before a word hangs on what stood there, so that counts of single words do not do.
    """

    before: Variant
    variant: Variant
    silence: bool  # between them


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
    silence: SilenceProbabilities
    oov: str
    topology: Topology

    def names(self) -> dict[int, str]:
        """The words by their ids."""
        return {number: word for word, number in self.words.items()}

    def pronunciations(self, word: str) -> list[Pronunciation]:
        """The pronunciations of a word; of the unknown word where it has none."""
        return self.lexicon.get(word) or self.lexicon[self.oov]

    def words_of(self, phones: Collection[str]) -> set[str]:
        """The words spoken with these phones alone."""
        only = set(phones)
        return {word for word, entries in self.lexicon.items() if all(only.issuperset(entry.phones) for entry in entries)}

    @staticmethod
    def read(path: str | Path) -> Lang:
        """Read a folder that this module's command line has made.

        :raises RecipeError: for a missing file or a damaged line.
        """
        path = Path(path)
        if not (path / "words.txt").exists():
            raise RecipeError(f"{path}: no words.txt; run the stage 'lang'")
        symbols = _symbols(path / "phones.txt")
        if (path / _SILPROB).exists():
            lexicon, silence = read_lexicon(path / _LEXICON_SILPROB), _read_silence(path / _SILPROB)
        else:
            fixed = float(_lines(path / "silence_probability.txt")[0])
            lexicon, silence = read_lexicon(path / "lexiconp.txt", fixed), SilenceProbabilities(fixed, fixed)
        return Lang(
            phones={name: number for name, number in symbols.items() if number and not name.startswith("#")},
            disambiguation={name: number for name, number in symbols.items() if name.startswith("#")},
            words=_symbols(path / "words.txt"),
            lexicon=lexicon,
            silence_phones=tuple(_lines(path / "silence_phones.txt")),
            optional_silence=_lines(path / "optional_silence.txt")[0],
            silence=silence,
            oov=_lines(path / "oov.txt")[0],
            topology=Topology.read(path / "topo.json"),
        )


def _lines(path: Path, stage: str = "lang") -> list[str]:
    if not path.exists():
        raise RecipeError(f"{path}: no such file; run the stage '{stage}'")
    return path.read_text(encoding="utf-8").splitlines()


def _symbols(path: Path) -> dict[str, int]:
    return {name: int(number) for name, number in (line.split() for line in _lines(path))}


def read_lexicon(
    path: Path, silence_probability: float | None = None, phones: set[str] | None = None
) -> dict[str, list[Pronunciation]]:
    """Read ``word<TAB>probability<TAB>phones`` lines, as Kaldi's lexiconp.txt has them.

    :param silence_probability: after every pronunciation; ``None``: the file is a lexiconp_silprob.txt, whose lines have
        ``silence_after``, ``silence_before`` and ``no_silence_before`` behind the probability.
    :param phones: the phones that may occur; any where ``None``.
    :raises RecipeError: for a line of another form, an unknown phone, an entry given twice, naming the line.
    """
    lexicon: dict[str, list[Pronunciation]] = {}
    fixed = silence_probability is not None
    form = f"word<TAB>probability<TAB>{'' if fixed else 'three numbers of silence<TAB>'}phones"
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}:{number}"
        try:
            word, probability_text, *silence_texts, pronunciation = line.split("\t")
            probability, silence = float(probability_text), [float(text) for text in silence_texts]
            if len(silence) != (0 if fixed else 3):
                raise ValueError
        except ValueError:
            raise RecipeError(f"{where}: expected '{form}', found {line!r}") from None
        spelled = tuple(pronunciation.split())
        if word in NO_WORDS or word.split() != [word]:
            raise RecipeError(f"{where}: {word!r} cannot be a word; take another spelling")
        if not 0 < probability <= 1:
            raise RecipeError(f"{where}: expected a probability above 0 and at most 1, found {probability}")
        if not fixed and not (0 < silence[0] < 1 and silence[1] > 0 and silence[2] > 0):
            raise RecipeError(f"{where}: expected a probability of silence between 0 and 1 and factors above 0: {silence}")
        if not spelled:
            raise RecipeError(f"{where}: the word {word} has no phones")
        if phones is not None and (unknown := [phone for phone in spelled if phone not in phones]):
            raise RecipeError(f"{where}: the phone {unknown[0]} of {word} is in no list of phones")
        entries = lexicon.setdefault(word, [])
        if spelled in (entry.phones for entry in entries):
            raise RecipeError(f"{where}: this pronunciation of {word} stands there twice")
        entries.append(Pronunciation(probability, spelled, *([silence_probability] if fixed else silence)))
    if not lexicon:
        raise RecipeError(f"{path}: the lexicon is empty")
    return lexicon


def _read_silence(path: Path) -> SilenceProbabilities:
    try:
        values = {name: float(text) for name, text in (line.split() for line in _lines(path))}
        return SilenceProbabilities(*(values[name] for name in _SILPROB_NAMES))
    except (KeyError, ValueError):
        raise RecipeError(f"{path}: expected a number for each of {', '.join(_SILPROB_NAMES)}; make it anew") from None


def write_pronunciations(path: Path, counts: Counter[Spoken]) -> None:
    """Write a line for each, ``word<TAB>phones<TAB>word<TAB>phones<TAB>silence or none<TAB>count``, sorted."""
    rows = []
    for ((before, its_phones), (word, phones), silence), count in sorted(counts.items()):
        between = "silence" if silence else "none"
        rows.append(f"{before}\t{' '.join(its_phones)}\t{word}\t{' '.join(phones)}\t{between}\t{count}\n")
    write_text(path, "".join(rows))


def read_pronunciations(path: Path) -> Counter[Spoken]:
    """Read what :func:`write_pronunciations` has written.

    :raises RecipeError: for a line of another form, naming it.
    """
    counts: Counter[Spoken] = Counter()
    for number, line in enumerate(_lines(path, "align"), 1):
        try:
            before, its_phones, word, phones, between, count = line.split("\t")
            silence = {"silence": True, "none": False}[between]
            counts[Spoken((before, tuple(its_phones.split())), (word, tuple(phones.split())), silence)] += int(count)
        except (KeyError, ValueError):
            raise RecipeError(f"{path}:{number}: expected words, phones, silence and a count, found {line!r}") from None
    return counts


def estimate(
    lexicon: dict[str, list[Pronunciation]], counts: Counter[Spoken], oov: str
) -> tuple[dict[str, list[Pronunciation]], SilenceProbabilities]:
    """Estimate the probabilities of pronunciations and of silence around them.

    With C(w s) the number of times that silence followed the pronunciation w, and one more than C(w) for every w:

    - probability: C(w) over the largest C of the word's pronunciations; words never spoken keep what they have
    - P(s | w) = (C(w s) + 2 P(s)) / (C(w) + 2)
    - F(s | w) = (C(s w) + 2) / (sum over v of C(v w) P(s | v) + 2), where v stood before w; F(n | w) likewise

    They are Chen et al.'s equations with Kaldi's constants. A path's cost has P and F of each place, though F is no
    probability: it corrects P by the word that follows.

    :param counts: words that the lexicon lacks count as ``oov``.
    :raises RecipeError: for no counts, or a pronunciation that the lexicon lacks.
    """
    known = {(word, entry.phones) for word, entries in lexicon.items() for entry in entries} | {START, END}

    def in_lexicon(variant: Variant) -> Variant:
        word, phones = variant
        variant = variant if word in lexicon or not phones else (oov, phones)
        if variant not in known:
            raise RecipeError(
                f"the counts have {word} as '{' '.join(phones)}', the lexicon does not: are they from another lexicon?"
            )
        return variant

    together: Counter[tuple[Variant, Variant]] = Counter()  # C(v w)
    before: Counter[tuple[Variant, bool]] = Counter()  # C(s w) and C(n w)
    after: Counter[tuple[Variant, bool]] = Counter()  # C(w s) and C(w n)
    for (left, right, silence), count in sorted(counts.items()):
        left, right = in_lexicon(left), in_lexicon(right)
        together[left, right] += count
        after[left, silence] += count
        before[right, silence] += count
    if not together.total():
        raise RecipeError("no counts of pronunciations: has the alignment any words?")
    overall = sum(count for (_, silence), count in after.items() if silence) / together.total()

    def silence_after(variant: Variant) -> float:
        number = after[variant, True] + after[variant, False]
        probability = (after[variant, True] + _SMOOTHING * overall) / (number + _SMOOTHING)
        return min(max(probability, _MIN_SILENCE), 1 - _MIN_SILENCE)

    expected: defaultdict[tuple[Variant, bool], float] = defaultdict(float)
    for (left, right), count in together.items():
        expected[right, True] += count * silence_after(left)
        expected[right, False] += count * (1 - silence_after(left))

    def corrections(variant: Variant) -> list[float]:
        ratios = ((before[variant, s] + _SMOOTHING) / (expected[variant, s] + _SMOOTHING) for s in (True, False))
        return [max(ratio, _MIN_SILENCE) for ratio in ratios]

    estimated: dict[str, list[Pronunciation]] = {}
    for word, entries in lexicon.items():
        variants = [(word, entry.phones) for entry in entries]
        numbers = [after[variant, True] + after[variant, False] for variant in variants]
        estimated[word] = [
            Pronunciation(
                (number + 1) / (max(numbers) + 1) if any(numbers) else entry.probability,
                entry.phones,
                silence_after(variant),
                *corrections(variant),
            )
            for entry, variant, number in zip(entries, variants, numbers, strict=True)
        ]
    return estimated, SilenceProbabilities(overall, silence_after(START), *corrections(END))


def disambiguate(lexicon: dict[str, list[Pronunciation]]) -> tuple[dict[str, list[tuple[str, ...]]], int]:
    """Append ``#1``, ``#2``, ... to pronunciations that others share or begin with, so that L can be determinized.

    :return: each word's pronunciations in order, and the highest number used.
    """
    variants = [(word, entry.phones) for word, entries in lexicon.items() for entry in entries]
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
    silence: SilenceProbabilities,
) -> kaldifst.StdVectorFst:
    """Build L with disambiguation symbols: phones to words, optional silence at the start and after each word.

    Words start after silence and after none, at a cost of each; where no cost depends on it these are one state.

    :param phones: all phones and disambiguation symbols; the last of these marks optional silence.
    """
    marked, highest = disambiguate(lexicon)
    fst = kaldifst.StdVectorFst()
    start, after_none, before_silence, unmarked = (fst.add_state() for _ in range(4))
    factors = [factor for entries in lexicon.values() for entry in entries for factor in entry[3:]]
    after_silence = after_none if {*factors, *silence[2:]} == {1.0} else fst.add_state()
    fst.start = start
    fst.set_final(after_silence, -math.log(silence.before_end))
    fst.set_final(after_none, -math.log(silence.none_before_end))

    def arc(source: int, target: int, phone: int, word: int, cost: float) -> None:
        fst.add_arc(source, kaldifst.StdArc(ilabel=phone, olabel=word, weight=cost, nextstate=target))

    arc(start, after_none, 0, 0, -math.log1p(-silence.start))
    arc(start, before_silence, 0, 0, -math.log(silence.start))
    arc(before_silence, unmarked, phones[optional_silence], 0, 0.0)
    arc(unmarked, after_silence, phones[f"#{highest + 1}"], 0, 0.0)
    for word, entries in lexicon.items():
        for entry, (*others, last) in zip(entries, marked[word], strict=True):
            sources = {
                after_none: -math.log(entry.probability * entry.no_silence_before),
                after_silence: -math.log(entry.probability * entry.silence_before),
            }
            label = words[word]
            for phone in others:
                target = fst.add_state()
                for source, cost in sources.items():
                    arc(source, target, phones[phone], label, cost)
                sources, label = {target: 0.0}, 0
            for source, cost in sources.items():
                arc(source, after_none, phones[last], label, cost - math.log1p(-entry.silence_after))
                arc(source, before_silence, phones[last], label, cost - math.log(entry.silence_after))
    for state in sorted({after_none, after_silence}):
        arc(state, state, phones[BACKOFF], words[BACKOFF], 0.0)
    return fst


def make_lang(dictionary: Path, conf: LexiconConf, out: Path, counts: Counter[Spoken] | None = None) -> None:
    """Write the language directory of a dictionary.

    :param counts: estimate the probabilities from these; ``None``: the dictionary's and the conf's stand.
    :raises RecipeError: for phones or words that cannot be, a silence probability out of range, a lexicon line that
        :func:`read_lexicon` refuses, an unknown word that has no pronunciation, counts that :func:`estimate` refuses.
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
    lexicon = read_lexicon(dictionary / "lexiconp.txt", conf.silence_probability, set(every))
    oov = _lines(dictionary / "oov.txt")[0]
    if oov not in lexicon:
        raise RecipeError(f"{dictionary}: the unknown word {oov} has no pronunciation")
    silence_probabilities = SilenceProbabilities(conf.silence_probability, conf.silence_probability)
    if counts is not None:
        lexicon, silence_probabilities = estimate(lexicon, counts, oov)
    _, highest = disambiguate(lexicon)
    names = [EPSILON, *every, *(f"#{number}" for number in range(highest + 2))]
    phones = {name: number for number, name in enumerate(names)}
    words = {name: number for number, name in enumerate([EPSILON, *sorted(lexicon), BACKOFF, BOS, EOS])}
    fst = lexicon_fst(lexicon, phones, words, optional_silence, silence_probabilities)
    with atomic_dir(out) as folder:
        for name, table in (("phones.txt", phones), ("words.txt", words)):
            (folder / name).write_text("".join(f"{symbol} {n}\n" for symbol, n in table.items()), encoding="utf-8")
        for name in ("silence_phones.txt", "optional_silence.txt", "oov.txt"):
            shutil.copy(dictionary / name, folder / name)
        if counts is None:
            shutil.copy(dictionary / "lexiconp.txt", folder / "lexiconp.txt")
            (folder / "silence_probability.txt").write_text(f"{conf.silence_probability}\n", encoding="utf-8")
        else:
            lines = [
                f"{word}\t{p}\t{after}\t{before}\t{none_before}\t{' '.join(spelled)}\n"
                for word, entries in lexicon.items()
                for p, spelled, after, before, none_before in entries
            ]
            (folder / _LEXICON_SILPROB).write_text("".join(lines), encoding="utf-8")
            lines = [f"{name} {value}\n" for name, value in zip(_SILPROB_NAMES, silence_probabilities, strict=True)]
            (folder / _SILPROB).write_text("".join(lines), encoding="utf-8")
        Topology.default().write(folder / "topo.json")
        fst.write(str(folder / "L_disambig.fst"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dict", type=Path, required=True, dest="dictionary")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of LexiconConf")
    parser.add_argument("--counts", type=Path, help="estimate the probabilities from these counts of an alignment")
    arguments = parser.parse_args()
    counts = read_pronunciations(arguments.counts) if arguments.counts else None
    make_lang(arguments.dictionary, parse_conf(LexiconConf, arguments.conf), arguments.out, counts)


if __name__ == "__main__":
    run(main)
