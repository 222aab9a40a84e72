"""Grapheme-to-phoneme conversion: pronunciations of words that no dictionary has, learnt from the words that it has.

A joint-sequence model (Bisani and Ney 2008, "Joint-sequence models for grapheme-to-phoneme conversion"): an n-gram of
graphones, one or two letters with the phones they stand for. The letters and phones of a dictionary are aligned by EM
(Jiampojamarn, Kondrak and Sherif 2007), the n-gram is estimated on the alignments, and a word's pronunciation is its best
path through the n-gram's automaton (Novak, Minematsu and Hirose 2012).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import kaldifst
import numpy as np

from local.cli import RecipeError

_ORDER = 6  # of the n-gram: on CMUdict 8 is no better
_ITERATIONS = 5  # of EM: more change no error rate
_NBEST = 20  # paths that the best pronunciation's share is taken of
_SHAPES = ((1, 0), (1, 1), (1, 2), (2, 1))  # letters and phones of a graphone
_MARGIN = 0.05  # a discount lies so far above 0 and below the count
_START, _END = -1, 0  # of a word, among the numbers of graphones, which begin at 1

Phones = tuple[str, ...]
Entry = tuple[str, Phones]  # a word and its pronunciation
Graphone = tuple[str, Phones]
History = tuple[int, ...]
Tables = dict[tuple[int, int], np.ndarray]  # of each shape a value for every code


class Guess(NamedTuple):
    """A pronunciation and its share of the probability of the word's likeliest readings."""

    phones: Phones
    share: float


@dataclass(frozen=True)
class G2p:
    """A trained model."""

    graphones: list[Graphone]  # number n is the label n + 1
    automaton: kaldifst.StdVectorFst  # of the n-gram

    @staticmethod
    def train(entries: Iterable[Entry]) -> G2p:
        """Learn from words and their pronunciations; a word may have several.

        :raises RecipeError: where there are none, or none that can be aligned.
        """
        sequences = align(sorted(set(entries)))
        graphones = sorted({graphone for sequence in sequences for graphone in sequence})
        if not graphones:
            raise RecipeError("grapheme-to-phoneme conversion: no word of the dictionary to learn spelling from")
        labels = {graphone: label for label, graphone in enumerate(graphones, 1)}
        numbers = [[labels[graphone] for graphone in sequence] for sequence in sequences]
        return G2p(graphones, automaton(*estimate(numbers, _ORDER)))

    def pronounce(self, words: Iterable[str]) -> dict[str, Guess]:
        """The best pronunciation of each word; words with a letter that no word of the dictionary had are left out."""
        by_letters: dict[str, list[int]] = defaultdict(list)
        for label, (letters, _) in enumerate(self.graphones, 1):
            by_letters[letters].append(label)
        guesses = {word: self._guess(word, by_letters) for word in words}
        return {word: guess for word, guess in guesses.items() if guess is not None and guess.phones}

    def _guess(self, word: str, by_letters: Mapping[str, list[int]]) -> Guess | None:
        segmentations = kaldifst.StdVectorFst()
        for _ in range(len(word) + 1):
            segmentations.add_state()
        segmentations.start = 0
        segmentations.set_final(len(word), 0.0)
        for first in range(len(word)):
            for last in range(first + 1, min(first + 2, len(word)) + 1):
                for label in by_letters.get(word[first:last], ()):
                    segmentations.add_arc(first, kaldifst.StdArc(label, label, 0.0, last))
        kaldifst.arcsort(segmentations, "olabel")
        paths = kaldifst.compose(segmentations, self.automaton)
        if paths.start < 0:
            return None
        costs: dict[tuple[int, ...], float] = {}  # of each sequence of graphones: some paths back off for nothing
        for path in kaldifst.convert_nbest_to_vector(kaldifst.shortest_path(paths, n=_NBEST)):
            _, labels, _, cost = kaldifst.get_linear_symbol_sequence(path)
            costs[tuple(labels)] = min(cost.value, costs.get(tuple(labels), math.inf))
        best = min(costs, key=costs.__getitem__)
        shares: Counter[Phones] = Counter()
        for reading, cost in costs.items():
            shares[self._spoken(reading)] += math.exp(costs[best] - cost)
        return Guess(self._spoken(best), shares[self._spoken(best)] / sum(shares.values()))

    def _spoken(self, labels: Iterable[int]) -> Phones:
        return tuple(phone for label in labels for phone in self.graphones[label - 1][1])


def align(entries: Sequence[Entry]) -> list[list[Graphone]]:
    """Cut each word and its phones into graphones; a word with more phones than they can hold is left out."""
    letters = {letter: number for number, letter in enumerate(sorted({x for word, _ in entries for x in word}))}
    phones = {phone: number for number, phone in enumerate(sorted({x for _, spoken in entries for x in spoken}))}
    by_lengths: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    for word, spoken in entries:
        if len(spoken) <= 2 * len(word):
            by_lengths[len(word), len(spoken)].append((word, spoken))
    groups = []  # words of the same lengths, and their codes: one array operation does for all of them
    for (n, m), group in sorted(by_lengths.items()):
        x = np.array([[letters[letter] for letter in word] for word, _ in group], dtype=int).reshape(-1, n)
        y = np.array([[phones[phone] for phone in spoken] for _, spoken in group], dtype=int).reshape(-1, m)
        groups.append((group, _codes(x, y, len(letters), len(phones))))
    if not groups:
        return []
    tables = {(a, b): np.ones(len(letters) ** a * len(phones) ** b) for a, b in _SHAPES}
    for _ in range(_ITERATIONS):
        counts = {shape: np.zeros_like(table) for shape, table in tables.items()}
        for _, codes in groups:
            _count(codes, tables, counts)
        total = sum(table.sum() for table in counts.values())
        tables = {shape: table / total for shape, table in counts.items()}
    # a graphone with two letters or phones counts as two of its probability: else long ones win, as they save a factor
    with np.errstate(divide="ignore"):
        scores = {(a, b): max(a, b) * np.log(table) for (a, b), table in tables.items()}
    return [graphones for group, codes in groups for graphones in _best(group, codes, scores)]


def _codes(x: np.ndarray, y: np.ndarray, letters: int, phones: int) -> Tables:
    """Where the tables have the graphone of each shape that begins at a letter and a phone.

    :param x: letters ``(words, N)``; :param y: phones ``(words, M)``.
    :return: of the shape ``(a, b)`` an array ``(N + 1 - a, words, M + 1 - b)``.
    """
    x, y = x.T[:, :, None], y[None]
    codes = {
        (1, 0): np.broadcast_to(x, (*x.shape[:2], y.shape[2] + 1)),
        (1, 1): x * phones + y,
        (1, 2): (x * phones + y[:, :, :-1]) * phones + y[:, :, 1:],
        (2, 1): (x[:-1] * letters + x[1:]) * phones + y,
    }
    return {shape: array for shape, array in codes.items() if array.size}


def _count(codes: Tables, tables: Tables, counts: Tables) -> None:
    """The E step: add to ``counts`` how often the words of a group are expected to have each graphone."""
    n, words, m = codes[1, 0].shape[0], codes[1, 0].shape[1], codes[1, 0].shape[2] - 1
    probs = {shape: tables[shape][places] for shape, places in codes.items()}
    forward, backward = np.zeros((n + 1, words, m + 1)), np.zeros((n + 1, words, m + 1))
    forward[0, :, 0] = backward[n, :, m] = 1
    for i in range(1, n + 1):
        for a, b in (shape for shape in codes if shape[0] <= i):
            forward[i, :, b:] += forward[i - a, :, : m + 1 - b] * probs[a, b][i - a]
    for i in range(n - 1, -1, -1):
        for a, b in (shape for shape in codes if shape[0] <= n - i):
            backward[i, :, : m + 1 - b] += backward[i + a, :, b:] * probs[a, b][i]
    total = forward[n, :, m][:, None]
    for (a, b), places in codes.items():
        posteriors = forward[: n + 1 - a, :, : m + 1 - b] * probs[a, b] * backward[a:, :, b:] / total
        counts[a, b] += np.bincount(places.ravel(), posteriors.ravel(), len(counts[a, b]))


def _best(group: Sequence[Entry], codes: Tables, scores: Tables) -> list[list[Graphone]]:
    """The best cut of each word of a group."""
    n, m = codes[1, 0].shape[0], codes[1, 0].shape[2] - 1
    best = np.full((n + 1, len(group), m + 1), -np.inf)
    best[0, :, 0] = 0
    chosen = np.zeros(best.shape, dtype=int)
    for i in range(1, n + 1):
        for number, (a, b) in enumerate(_SHAPES):
            if (a, b) in codes and a <= i:
                score = best[i - a, :, : m + 1 - b] + scores[a, b][codes[a, b][i - a]]
                better = score > best[i, :, b:]
                best[i, :, b:][better] = score[better]
                chosen[i, :, b:][better] = number
    cuts = []
    for place, (word, spoken) in enumerate(group):
        i, j, cut = n, m, []
        while i:
            a, b = _SHAPES[chosen[i, place, j]]
            cut.append((word[i - a : i], spoken[j - b : j]))
            i, j = i - a, j - b
        cuts.append(cut[::-1])
    return cuts


def estimate(sequences: Iterable[Sequence[int]], order: int) -> tuple[dict[History, dict[int, float]], dict[History, float]]:
    """Interpolated modified Kneser-Ney (Chen and Goodman 1998) over numbers from 1 on.

    Unlike words, graphones are few and their n-grams long, so that three discounts an order pay.

    :return: P(number | history) for the numbers seen after each history, where 0 is the end and a history at the beginning
        starts with -1; and the weight of the history without its first number for all others.
    """
    counts: Counter[History] = Counter()
    for sequence in sequences:
        whole = (_START, *sequence, _END)
        counts.update(whole[max(0, end - order) : end] for end in range(2, len(whole) + 1))
    by_order: list[dict[History, dict[int, int]]] = []  # the longest first
    for length in range(order, 0, -1):
        after: dict[History, dict[int, int]] = defaultdict(dict)
        continuations: Counter[History] = Counter()
        for ngram in [ngram for ngram in counts if len(ngram) == length]:
            after[ngram[:-1]][ngram[-1]] = counts[ngram]
            continuations[ngram[1:]] += 1
        by_order.append(after)
        counts.update(continuations)  # n-grams from the beginning, which nothing precedes, have counts of the text
    probs: dict[History, dict[int, float]] = {}
    weights: dict[History, float] = {}
    for after in reversed(by_order):
        discounts = _discounts(Counter(count for numbers in after.values() for count in numbers.values()))
        for history, numbers in after.items():
            total = sum(numbers.values())
            weights[history] = weight = sum(discounts[min(count, 3)] for count in numbers.values()) / total
            lower = probs[history[1:]] if history else dict.fromkeys(numbers, 1 / len(numbers))
            probs[history] = {
                number: (count - discounts[min(count, 3)]) / total + weight * lower[number] for number, count in numbers.items()
            }
    return probs, weights


def _discounts(counts_of_counts: Mapping[int, int]) -> dict[int, float]:
    """What is taken from counts of 1, of 2 and of 3 or more: Chen and Goodman's equation 26, kept between 0 and the count."""
    n = {count: counts_of_counts.get(count, 1) for count in range(1, 5)}
    y = n[1] / (n[1] + 2 * n[2])
    return {c: min(max(c - (c + 1) * y * n[c + 1] / n[c], _MARGIN), c - _MARGIN) for c in range(1, 4)}


def automaton(probs: Mapping[History, Mapping[int, float]], weights: Mapping[History, float]) -> kaldifst.StdVectorFst:
    """The n-gram as an acceptor of numbers, a state a history, back-off by epsilon.

    An interpolated model gives a number seen after a history more than backing off would: the best path is the model's.
    """
    fst = kaldifst.StdVectorFst()
    states = {history: fst.add_state() for history in sorted(probs, key=lambda history: (len(history), history))}
    longest = max(map(len, states))
    for history, state in states.items():
        if history:
            fst.add_arc(state, kaldifst.StdArc(0, 0, -math.log(weights[history]), states[history[1:]]))
        for number, prob in sorted(probs[history].items()):
            if number == _END:
                fst.set_final(state, -math.log(prob))
                continue
            target = (*history, number)[-longest:] if longest else ()
            while target not in states:
                target = target[1:]
            fst.add_arc(state, kaldifst.StdArc(number, number, -math.log(prob), states[target]))
    fst.start = states[_START,]
    return fst
