"""Interpolated Kneser-Ney models of texts."""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kaldingram.train import NgramCounts

from local.cli import RecipeError
from local.lexicon import EPSILON, Lang
from local.lm.arpa import LOG_ZERO, MAX_ORDER, Arpa, Ngrams, open_binary


@dataclass(frozen=True)
class LmConf:
    """How the language model is estimated."""

    order: int  # 2 to 4
    vocabulary: int | None  # the most frequent words of the texts; None: every word of the lexicon

    def __post_init__(self) -> None:
        if not 2 <= self.order <= MAX_ORDER:
            raise RecipeError(f"lm.order: expected 2 to {MAX_ORDER}, found {self.order}")


@dataclass(frozen=True)
class Text:
    """Sentences in a file, one a line."""

    path: Path  # gzip or not
    keyed: bool = True  # utterance ids come first, as in Kaldi's text
    only: Container[str] | None = None  # of these utterances

    @property
    def name(self) -> str:
        """What to call it: the data directory that it is of, or the file."""
        return self.path.parent.name if self.keyed else self.path.name

    def __iter__(self) -> Iterator[list[str]]:
        if not self.path.exists():
            raise RecipeError(f"{self.path}: no such text" + ("; run the stage 'data'" if self.keyed else ""))
        with open_binary(self.path) as file:
            for number, line in enumerate(file, 1):
                try:
                    words = line.decode().split()
                except UnicodeDecodeError:
                    raise RecipeError(f"{self.path}:{number}: not UTF-8: {line[:80]!r}") from None
                if not words:
                    continue
                if not self.keyed:
                    yield words
                elif self.only is None or words[0] in self.only:
                    yield words[1:]


def utterances(text: Path) -> frozenset[str]:
    """The ids of the utterances of a Kaldi ``text``."""
    return frozenset(line.split(maxsplit=1)[0] for line in text.read_text(encoding="utf-8").splitlines() if line)


def vocabulary(texts: Iterable[Counter[str]], lang: Lang, size: int | None) -> set[str]:
    """The words that a language model tells apart: those of the lexicon, or the ``size`` most frequent of them.

    :param texts: how often each text has each word. Silence words do not count and always belong to the vocabulary.
    """
    if size is None:
        return set(lang.lexicon)
    noises = lang.words_of(lang.silence_phones)  # and the unknown word
    counts: Counter[str] = sum(texts, Counter())
    words = sorted(set(lang.lexicon) & set(counts) - noises, key=lambda word: (-counts[word], word))
    return {*words[:size], *noises}


def estimate(sentences: Iterable[list[str]], known: set[str], lang: Lang, order: int) -> Arpa:
    """Estimate an interpolated Kneser-Ney model (Chen and Goodman 1998, with one discount an order).

    kaldingram counts and discounts: f(w|h) = max(0, c(hw) - D) / c(h) with counts of the text for the longest n-grams and
    for those that begin the sentence, else of the words that precede; D = n1 / (n1 + 2 n2) from how many n-grams occur once
    and twice. Then P(w|h) = f(w|h) + (1 - sum of f(v|h) over v) P(w|h'), where h' is h without its first word.

    Words that are not ``known`` count as the unknown word. Known words that the text lacks, silence words apart, enter the
    1-grams as if seen in one context: else they could never be recognised.

    :raises RecipeError: for an empty text.
    """
    counts = NgramCounts(order)
    seen = lang.words_of(lang.silence_phones)
    lines = 0
    gc.disable()  # millions of dictionaries without a cycle
    try:
        for sentence in sentences:
            words = [word if word in known else lang.oov for word in sentence]
            counts.add_raw_counts_from_line(" ".join(words))
            seen.update(words)
            lines += 1
        if not lines:
            raise RecipeError("no sentence to estimate a language model on")
        for word in sorted(known - seen):
            counts.add_count((), word, EPSILON, 1)
        counts.cal_discounting_constants()
        counts.cal_f()
        discounted = _discounted(counts)
    finally:
        gc.enable()
    return interpolated(discounted)


def _discounted(counts: NgramCounts) -> Arpa:
    """kaldingram's f as a model without back-off weights."""
    words = sorted(counts.counts[0][()].word_to_f)
    ids = {word: number for number, word in enumerate(words)}
    orders = []
    for by_history in counts.counts:
        prefixes, last, values = array("q"), array("q"), array("d")
        for history, of_history in by_history.items():
            prefix = 0
            for word in history:
                prefix = prefix * len(ids) + ids[word]
            prefixes.extend([prefix] * len(of_history.word_to_f))
            last.extend([ids[word] for word in of_history.word_to_f])
            values.extend(of_history.word_to_f.values())
        log10_probs = np.log10(np.maximum(np.array(values), 10.0**LOG_ZERO))
        orders.append(Ngrams(np.array(prefixes), np.array(last), log10_probs, np.zeros(len(values))))
    by_word = np.argsort(orders[0].last)
    orders[0] = Ngrams(*(values[by_word] for values in orders[0]))
    return Arpa.build(words, orders, "the language model")


def interpolated(discounted: Arpa) -> Arpa:
    """Give to each n-gram's probability f what f leaves of one after its history, by the order below."""
    size = len(discounted.words)
    probs = [10.0 ** section.log10_probs.astype(np.float64) for section in discounted.sections]
    suffixes = discounted.suffixes()
    for n in range(1, discounted.order):
        prefixes = discounted.sections[n].keys // size
        rest = 1 - np.bincount(prefixes, probs[n], len(probs[n - 1]))
        probs[n] += rest[prefixes] * probs[n - 1][suffixes[n]]
    keys = [section.keys for section in discounted.sections]
    return Arpa.normalised(discounted.words, keys, [np.log10(values) for values in probs])
