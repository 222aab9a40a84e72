"""Entropy pruning against Stolcke's formula by hand and against relative entropy summed over every word."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.lexicon import BOS, EOS
from local.lm import Arpa
from local.lm.prune import prune
from tests.lang.lm_models import WORDS, assert_sums_to_one, random_model

SEEDS = st.integers(0, 2**32 - 1)


def texts(model: Arpa, order: int) -> set[str]:
    return set(model.texts(order, np.arange(len(model.sections[order - 1].keys)))) if order <= model.order else set()


def test_stolckes_formula_by_hand(tmp_path: Path) -> None:
    """P(a) = P(b) = P(</s>) = 1/3. After a, P(a|a) = 1/2: 1/2 is left over 2/3, so its weight is 3/4, without the bigram 1.
    D = -1/3 {1/2 [ln 1/3 + ln 1 - ln 1/2] + 1/2 [ln 1 - ln 3/4]}.
    After b, P(a|b) = 0.4 alike: 0.6 over 2/3 is 0.9. D = -1/3 {0.4 [ln 1/3 - ln 0.4] + 0.6 [ln 1 - ln 0.9]}.
    """
    third = math.log10(1 / 3)
    unigrams = f"-99 <s>\n{third} </s>\n{third} a {math.log10(0.75)}\n{third} b {math.log10(0.9)}"
    bigrams = f"{math.log10(0.5)} a a\n{math.log10(0.4)} b a"
    (tmp_path / "arpa").write_text(f"\\data\\\nngram 1=4\nngram 2=2\n\\1-grams:\n{unigrams}\n\\2-grams:\n{bigrams}\n\\end\\\n")
    model = Arpa.read(tmp_path / "arpa")
    after_a = -1 / 3 * (0.5 * (math.log(1 / 3) - math.log(0.5)) - 0.5 * math.log(0.75))
    after_b = -1 / 3 * (0.4 * (math.log(1 / 3) - math.log(0.4)) - 0.6 * math.log(0.9))
    assert after_b < after_a
    for entropy, kept in ((after_b, {"a a"}), (after_a, set())):
        assert texts(prune(model, math.expm1(entropy) * 0.999), 2) == kept | ({"b a"} if entropy == after_b else {"a a"})
        assert texts(prune(model, math.expm1(entropy) * 1.001), 2) == kept
    alone = prune(model, math.expm1(after_b) * 1.001)
    assert alone.log10_prob(("a",), "b") == pytest.approx(math.log10(0.75 / 3), abs=1e-6)
    assert alone.log10_prob(("b",), "a") == pytest.approx(math.log10(1 / 3), abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_relative_entropy_over_every_word(seed: int) -> None:
    """A trigram goes just above exp(D) - 1, not just below, D = P(h) sum of P(w|h) ln P(w|h) / P'(w|h), P' without it."""
    model = random_model(seed, 3)
    if model.order < 3:
        return
    keys, log10_probs = ([arrays[column] for arrays in model.sections] for column in (0, 1))
    for place, text in enumerate(model.texts(3, np.arange(len(keys[2])))):
        first, second, _ = text.split()
        without = Arpa.normalised(model.words, *([*of[:2], np.delete(of[2], place)] for of in (keys, log10_probs)))
        history = model.log10_prob((), EOS if first == BOS else first) + model.log10_prob((first,), second)
        probs = [(model.log10_prob((first, second), w), without.log10_prob((first, second), w)) for w in (*WORDS, EOS)]
        entropy = 10**history * sum(10**p * (p - q) * math.log(10) for p, q in probs)
        if entropy < 1e-5:
            continue  # too little for float32
        assert text in texts(prune(model, math.expm1(entropy) * 0.98), 3)
        assert text not in texts(prune(model, math.expm1(entropy) * 1.02), 3)


@settings(deadline=None, max_examples=50)
@given(SEEDS, st.integers(2, 4), st.floats(0, 0.3), st.floats(0, 0.3))
def test_pruned_models(seed: int, order: int, threshold: float, more: float) -> None:
    """What stays has its probability, all it begins and ends with, and sums to one; a higher threshold leaves fewer."""
    model = random_model(seed, order)
    pruned = prune(model, threshold)
    assert_sums_to_one(pruned)
    assert texts(pruned, 1) == texts(model, 1)
    further = prune(model, threshold + more)
    for n in range(2, order + 1):
        assert texts(further, n) <= texts(pruned, n) <= texts(model, n)
        for text in texts(pruned, n):
            *history, word = text.split()
            assert pruned.log10_prob(tuple(history), word) == model.log10_prob(tuple(history), word)
            assert {text.rsplit(" ", 1)[0], text.split(" ", 1)[1]} <= texts(pruned, n - 1)


@settings(deadline=None, max_examples=20)
@given(SEEDS, st.integers(2, 4))
def test_threshold_zero_changes_nothing(seed: int, order: int) -> None:
    model = random_model(seed, order)
    pruned = prune(model, 0.0)
    for n in range(1, order + 1):
        for text in texts(model, n):
            *history, word = text.split()
            assert pruned.log10_prob(tuple(history), word) == pytest.approx(model.log10_prob(tuple(history), word), abs=1e-4)
