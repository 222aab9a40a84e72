"""Grapheme-to-phoneme conversion: planted spelling rules are learnt, the n-gram and its search held against enumeration."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.g2p import G2p, Phones, align, estimate

# letters to phones: plain ones, two letters for a phone, a letter for two phones, a silent one
RULES: list[tuple[str, Phones]] = [
    ("a", ("ae",)),
    ("b", ("b",)),
    ("d", ("d",)),
    ("i", ("ih",)),
    ("n", ("n",)),
    ("sh", ("sh",)),
    ("s", ("s",)),
    ("h", ("hh",)),
    ("x", ("k", "s")),
    ("e", ()),
]


def planted(words: int, seed: int) -> dict[str, Phones]:
    draw = random.Random(seed)
    entries: dict[str, Phones] = {}
    while len(entries) < words:
        cut = draw.choices(RULES, k=draw.randint(3, 7))
        word = "".join(letters for letters, _ in cut)
        spelt_otherwise = any(a == "s" and b == "h" for (a, _), (b, _) in itertools.pairwise(cut))
        phones = tuple(phone for _, spoken in cut for phone in spoken)
        if phones and not spelt_otherwise:
            entries[word] = phones
    return entries


def test_planted_rules_are_learnt() -> None:
    entries = planted(400, 1)
    heldout = {word: phones for word, phones in planted(200, 2).items() if word not in entries}
    guesses = G2p.train(entries.items()).pronounce(heldout)
    assert len(heldout) > 150
    assert {word: guess.phones for word, guess in guesses.items()} == heldout
    assert min(guess.share for guess in guesses.values()) > 0.5
    assert max(guess.share for guess in guesses.values()) <= 1


def test_the_alignment_finds_the_planted_graphones() -> None:
    graphones = {graphone for cut in align(sorted(planted(400, 1).items())) for graphone in cut}
    assert graphones == set(RULES)


def scrambled(words: int, seed: int) -> list[tuple[str, Phones]]:
    draw = random.Random(seed)
    return [
        ("".join(draw.choices("ab", k=draw.randint(1, 4))), tuple(draw.choices("xy", k=draw.randint(1, 6))))
        for _ in range(words)
    ]


def test_every_cut_spells_and_speaks_its_word() -> None:
    entries = scrambled(60, 3)
    cuts = [("".join(g for g, _ in cut), tuple(phone for _, spoken in cut for phone in spoken)) for cut in align(entries)]
    assert Counter(cuts) == Counter((word, phones) for word, phones in entries if len(phones) <= 2 * len(word))


def test_the_same_twice_whatever_the_order() -> None:
    entries = list(planted(100, 4).items())
    words = sorted(planted(50, 5))
    assert G2p.train(entries).pronounce(words) == G2p.train([*reversed(entries), entries[0]]).pronounce(words)


def test_what_cannot_be_read() -> None:
    model = G2p.train(planted(50, 6).items())
    assert model.pronounce(["zip", "4", "", "e"]) == {}  # letters never seen; nothing to say
    with pytest.raises(RecipeError, match="no word of the dictionary"):
        G2p.train([])
    with pytest.raises(RecipeError, match="no word of the dictionary"):
        G2p.train([("w", ("d", "ah", "b", "l", "y", "uw"))])  # one letter cannot stand for six phones


Ngram = tuple[dict[tuple[int, ...], dict[int, float]], dict[tuple[int, ...], float]]


def probability(number: int, history: tuple[int, ...], ngram: Ngram) -> float:
    """By the definition of back-off; after a history that was never seen, of the shorter one."""
    probs, weights = ngram
    if number in probs.get(history, {}) or not history:
        return probs[history][number]
    return weights.get(history, 1.0) * probability(number, history[1:], ngram)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(1, 4), max_size=6), min_size=1, max_size=8), st.integers(1, 4))
def test_probabilities_after_every_history_sum_to_one(sequences: list[list[int]], order: int) -> None:
    ngram = estimate(sequences, order)
    for history, weight in ngram[1].items():
        assert 0 < weight < 1
        assert sum(probability(number, history, ngram) for number in ngram[0][()]) == pytest.approx(1)


def test_modified_kneser_ney_by_hand() -> None:
    """Bigrams: start 1 thrice, 1 2 and 2 end twice, 1 3 and 3 end once; so n1 = 2, n2 = 2, n3 = 1, and n4 is taken as 1."""
    probs, weights = estimate([[1, 2], [1, 2], [1, 3]], 2)
    y = 2 / (2 + 2 * 2)
    one, two, three = 1 - 2 * y * 2 / 2, 2 - 3 * y * 1 / 2, 3 - 4 * y * 1 / 1
    # 1-grams count what stands before: of 1, 2 and 3 one number, of the end two; n1 = 3, n2 = 1, n3 is taken as 1
    y = 3 / (3 + 2 * 1)
    one_below, two_below = 1 - 2 * y * 1 / 3, 2 - 3 * y * 1 / 1
    uniform = (3 * one_below + two_below) / 5 / 4
    below = (1 - one_below) / 5 + uniform
    assert probs[()] == pytest.approx({1: below, 2: below, 3: below, 0: (2 - two_below) / 5 + uniform})
    assert weights[(1,)] == pytest.approx((one + two) / 3)
    assert probs[(1,)][2] == pytest.approx((2 - two) / 3 + (one + two) / 3 * below)
    assert probs[(1,)][3] == pytest.approx((1 - one) / 3 + (one + two) / 3 * below)
    assert probs[(-1,)][1] == pytest.approx((3 - three) / 3 + three / 3 * below)


def test_the_best_reading_is_the_models() -> None:
    """Against every cut of a word into graphones, scored by the n-gram's definition."""
    entries = sorted(set(scrambled(40, 7)))
    model = G2p.train(entries)
    labels = {graphone: label for label, graphone in enumerate(model.graphones, 1)}
    ngram = estimate([[labels[graphone] for graphone in cut] for cut in align(entries)], 6)

    def readings(word: str) -> list[tuple[int, ...]]:
        if not word:
            return [()]
        return [
            (label, *others)
            for (letters, _), label in labels.items()
            if word.startswith(letters)
            for others in readings(word.removeprefix(letters))
        ]

    def likelihood(reading: tuple[int, ...]) -> float:
        whole = (-1, *reading, 0)
        return math.prod(probability(whole[end], whole[max(0, end - 5) : end], ngram) for end in range(1, len(whole)))

    for word in ("ab", "ba", "aab", "bba"):
        best = max(readings(word), key=likelihood)
        assert model.pronounce([word])[word].phones == tuple(p for label in best for p in model.graphones[label - 1][1])
