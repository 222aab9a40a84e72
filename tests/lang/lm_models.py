"""Random back-off models, small enough to sum over every word after every history."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from local.lexicon import BOS, EOS
from local.lm import Arpa
from local.lm.arpa import Ngrams

WORDS = "abcd"


def random_model(seed: int, order: int, words: str = WORDS) -> Arpa:
    """A proper model of the n-grams of random sentences: after each history that it has, words seen have 30 to 95 %."""
    draw = np.random.default_rng(seed)
    seen: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    seen[()] = {*words, EOS}
    for _ in range(draw.integers(1, 5)):
        sentence = [BOS, *draw.choice(list(words), draw.integers(0, 6)), EOS]
        for end in range(1, len(sentence)):
            for first in range(max(0, end - order + 1), end):
                seen[tuple(map(str, sentence[first:end]))].add(str(sentence[end]))
    vocabulary = sorted({*words, BOS, EOS})
    ids = {word: number for number, word in enumerate(vocabulary)}
    rows: list[list[tuple[int, int, float]]] = [[] for _ in range(order)]
    rows[0].append((0, ids[BOS], -99.0))
    for history, followers in seen.items():
        shares = draw.dirichlet(np.ones(len(followers)))
        if len(followers) < len(words) + 1:
            shares *= draw.uniform(0.3, 0.95)
        prefix = 0
        for word in history:
            prefix = prefix * len(ids) + ids[word]
        rows[len(history)] += [
            (prefix, ids[word], float(np.log10(share))) for word, share in zip(sorted(followers), shares, strict=True)
        ]
    rows[0].sort(key=lambda row: row[1])
    orders = [Ngrams(*map(np.array, zip(*of_order, strict=True)), np.zeros(len(of_order))) for of_order in rows if of_order]
    model = Arpa.build(vocabulary, orders, "random")
    return Arpa.normalised(vocabulary, *zip(*(section[:2] for section in model.sections), strict=True))


def histories(order: int, words: str = WORDS) -> Iterator[tuple[str, ...]]:
    """Every history shorter than ``order``, the start of a sentence too."""
    for length in range(order):
        yield from itertools.product(words, repeat=length)
        if length:
            yield from ((BOS, *rest) for rest in itertools.product(words, repeat=length - 1))


def assert_sums_to_one(model: Arpa, words: str = WORDS) -> None:
    """After every history, words and the sentence's end share 1."""
    for history in histories(model.order, words):
        total = sum(10 ** model.log10_prob(history, word) for word in (*words, EOS))
        assert total == pytest.approx(1, abs=1e-5), history
