"""Linear interpolation of models, with the weights that suit a held-out text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from local.arrays import distinct
from local.lm.arpa import LOG_ZERO, Arpa

_TOLERANCE = 1e-6  # nats a word: the weights stand once an iteration gains less
_ITERATIONS = 1000


def mixture_weights(probs: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The weights of models that make a held-out text likeliest, by EM from equal ones.

    :param probs: probability of each word of the text by each model, ``[words, models]``; words that no model has go.
    :return: weights ``[models]`` that sum to one; mean natural log probability of a word before each iteration.
    """
    probs = probs[probs.any(axis=1)]
    weights = np.full(probs.shape[1], 1 / probs.shape[1])
    history: list[float] = []
    for _ in range(_ITERATIONS):
        shares = probs * weights
        totals = shares.sum(axis=1, keepdims=True)
        history.append(float(np.log(totals).mean()))
        if len(history) > 1 and history[-1] - history[-2] < _TOLERANCE:
            break
        weights = (shares / totals).mean(axis=0)
    return weights, history


def mix(models: Sequence[Arpa], weights: Sequence[float]) -> Arpa:
    """Interpolate models into one of all their n-grams, P(w|h) = sum over models of weight times P(w|h) by back-off.

    The back-off weights make the probabilities after every history sum to one, as SRILM's ``ngram -mix-lm`` does.
    """
    words = sorted(set().union(*(model.words for model in models)))
    members = [_Member(model, words) for model in models]
    keys = [np.arange(len(words))]
    links = np.zeros(len(words), np.int64)  # the places of n-grams without their first word
    mixed = [_weighted(members, weights)]
    for order in range(2, max(model.order for model in models) + 1):
        of_members = [member.keys(order) for member in members]
        keys.append(distinct(np.concatenate(of_members)))
        prefixes, last = np.divmod(keys[-1], len(words))
        links = np.searchsorted(keys[-2], links[prefixes] * len(words) + last)
        for member, own in zip(members, of_members, strict=True):
            member.extend(order, np.searchsorted(keys[-1], own), prefixes, links)
        mixed.append(_weighted(members, weights))
    return Arpa.normalised(words, keys, [np.log10(np.maximum(probs, 10.0**LOG_ZERO)) for probs in mixed])


class _Member:
    """One of the models at the n-grams of all of them, order after order."""

    def __init__(self, model: Arpa, words: list[str]) -> None:
        ids = {word: number for number, word in enumerate(words)}
        self.model, self.size = model, len(words)
        self.numbers = np.array([ids[word] for word in model.words])  # its words' ids among all
        self.probs, self.weights = np.zeros(self.size), np.ones(self.size)  # where it has none: no word, no weight
        self.put(1, self.numbers)

    def put(self, order: int, places: np.ndarray) -> None:
        self.places = places  # of its n-grams among all
        if order <= self.model.order:
            section = self.model.sections[order - 1]
            self.probs[places] = 10.0 ** section.log10_probs.astype(np.float64)
            self.weights[places] = 10.0 ** section.backoffs.astype(np.float64)

    def keys(self, order: int) -> np.ndarray:
        """Its n-grams' keys among all; they ascend as its own do."""
        if order > self.model.order:
            return np.zeros(0, np.int64)
        prefixes, last = np.divmod(self.model.sections[order - 1].keys, len(self.model.words))
        return self.places[prefixes] * self.size + self.numbers[last]

    def extend(self, order: int, places: np.ndarray, prefixes: np.ndarray, links: np.ndarray) -> None:
        """Go on to the next order: backed off where it lacks the n-gram."""
        self.probs = self.weights[prefixes] * self.probs[links]
        self.weights = np.ones(len(links))
        self.put(order, places)


def _weighted(members: list[_Member], weights: Sequence[float]) -> np.ndarray:
    return sum((weight * member.probs for weight, member in zip(weights, members, strict=True)), np.zeros(1))
