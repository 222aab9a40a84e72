"""Kneser-Ney against its formulas, computed anew by recursion over n-grams."""

from __future__ import annotations

import gzip
import itertools
import math
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from local.cli import RecipeError, parse_conf
from local.lexicon import BOS, EOS, Lang
from local.lm import Arpa
from local.lm.estimate import LmConf, Text, estimate, utterances, vocabulary
from tests.graph.toy import write_lang

SENTENCES = ["a b a", "a b", "b a a b", "c", "a", "b b q a"]  # q is in no lexicon; d is in no sentence


@pytest.fixture
def lang(tmp_path: Path) -> Lang:
    return Lang.read(write_lang(tmp_path))


def made_of(sentences: list[str], lang: Lang, order: int) -> Arpa:
    return estimate((sentence.split() for sentence in sentences), set(lang.lexicon), lang, order)


class Reference:
    """Interpolated Kneser-Ney by its definition (Chen and Goodman 1998, section 2.7)."""

    def __init__(self, sentences: list[list[str]], order: int, unseen: set[str], modified_discounts: bool) -> None:
        self.windows = [
            Counter(
                tuple(padded[first : first + n])
                for padded in ([BOS, *sentence, EOS] for sentence in sentences)
                for first in range(len(padded) - n + 1)
            )
            for n in range(1, order + 1)
        ]
        self.preceded = [Counter(longer[1:] for longer in of_order) for of_order in self.windows[1:]]
        self.order, self.unseen = order, unseen
        self.vocabulary = {word for sentence in sentences for word in sentence} | unseen | {EOS}
        self.discounts = [0.0]
        for n in range(2, order + 1):
            counts = Counter(self.count(ngram) if modified_discounts else raw for ngram, raw in self.windows[n - 1].items())
            self.discounts.append(counts[1] / (counts[1] + 2 * counts[2]))

    def count(self, ngram: tuple[str, ...]) -> int:
        if len(ngram) == self.order or ngram[0] == BOS:
            return self.windows[len(ngram) - 1][ngram] if ngram != (BOS,) else 0
        return self.preceded[len(ngram) - 1][ngram] + (len(ngram) == 1 and ngram[0] in self.unseen)

    @cache  # noqa: B019
    def prob(self, history: tuple[str, ...], word: str) -> float:
        counts = {other: count for other in self.vocabulary if (count := self.count((*history, other)))}
        total = sum(counts.values())
        if not history:
            return counts.get(word, 0) / total
        lower = self.prob(history[1:], word)
        if not total:
            return lower
        discount = self.discounts[len(history)]
        return max(0, counts.get(word, 0) - discount) / total + discount * len(counts) / total * lower


@pytest.mark.parametrize("order", [2, 3, 4])
def test_interpolated_kneser_ney(lang: Lang, order: int) -> None:
    model = made_of(SENTENCES, lang, order)
    sentences = [[word if word in lang.lexicon else "<unk>" for word in sentence.split()] for sentence in SENTENCES]
    reference = Reference(sentences, order, {"d"}, modified_discounts=False)
    for length in range(order):
        for history in itertools.product(["a", "b", "c", "<unk>", BOS], repeat=length):
            if BOS in history[1:]:
                continue
            for word in ("a", "b", "c", "d", "<unk>", EOS):
                expected = reference.prob(history, word)
                assert 10 ** model.log10_prob(history, word) == pytest.approx(expected, rel=1e-4), (history, word)


def test_perplexity_near_the_textbooks(lang: Lang) -> None:
    """Chen and Goodman take the lower orders' discounts from the counts that these are of; kaldingram, as SRILM with
    -kn-modify-counts-at-end, from the text's. On 1,000 sentences of a made-up language that is less than 2 %."""
    draw = random.Random(1)
    words = [f"w{number}" for number in range(150)]
    likely = {word: draw.choices(words, [1 / rank for rank in range(1, 151)], k=4) for word in words}
    sentences = []
    for _ in range(1200):
        sentence = draw.choices(words, [1 / rank for rank in range(1, 151)], k=1)
        while draw.random() < 0.85:
            sentence.append(draw.choice(likely[sentence[-1]] if draw.random() < 0.6 else words))
        sentences.append(sentence)
    training, heldout = sentences[:1000], sentences[1000:]
    unseen = set(words) - {word for sentence in training for word in sentence}
    model = estimate(training, set(words), lang, 3)
    textbook = Reference(training, 3, unseen, modified_discounts=True)
    total = events = 0.0
    for sentence in heldout:
        padded = [BOS, *sentence, EOS]
        for end in range(1, len(padded)):
            total += math.log(textbook.prob(tuple(padded[max(0, end - 2) : end]), padded[end]))
            events += 1
    assert model.perplexity(heldout, "<unk>")["perplexity"] == pytest.approx(math.exp(-total / events), rel=0.02)


def test_kneser_ney_by_hand(lang: Lang) -> None:
    """Bigrams of "a b" twice and "a a" once. Counts: <s> a 3, a b 2, b </s> 2, a a 1, a </s> 1; two of them once and
    two twice: D = 2 / (2 + 2 * 2) = 1/3. Contexts: a 2 (<s>, a), b 1, </s> 2 (b, a), and one each for c and d: 7.
    """
    model = estimate([["a", "b"], ["a", "b"], ["a", "a"]], set(lang.lexicon), lang, 2)
    discount = 1 / 3
    for words, probability in {
        (BOS, "a"): (3 - discount) / 3 + discount / 3 * 2 / 7,
        ("a", "b"): (2 - discount) / 4 + 3 * discount / 4 * 1 / 7,
        ("a", "a"): (1 - discount) / 4 + 3 * discount / 4 * 2 / 7,
        ("b", EOS): (2 - discount) / 2 + discount / 2 * 2 / 7,
        ((), "a"): 2 / 7,
        ((), "d"): 1 / 7,
        ("b", "a"): discount / 2 * 2 / 7,
    }.items():
        history = words[0] if isinstance(words[0], tuple) else (words[0],)
        assert 10 ** model.log10_prob(history, words[1]) == pytest.approx(probability, abs=1e-6), words


def test_estimated_probabilities_sum_to_one(lang: Lang) -> None:
    model = made_of(SENTENCES, lang, 3)
    others = {*model.words} - {BOS}
    assert others == {"a", "b", "c", "d", "<unk>", EOS}
    for history in [(), (BOS,), *itertools.product("abcd", repeat=1), *itertools.product("abcd", repeat=2), (BOS, "a")]:
        assert sum(10 ** model.log10_prob(history, word) for word in others) == pytest.approx(1, abs=1e-5), history


def test_every_n_gram_once(lang: Lang) -> None:
    """Where nothing is seen twice the whole discount is 1, and all there is are the 1-grams."""
    model = made_of(["a b c"], lang, 3)
    assert 10 ** model.log10_prob(("a",), "b") == pytest.approx(10 ** model.log10_prob((), "b"), rel=1e-5)


def test_vocabulary(lang: Lang) -> None:
    counts = [Counter(["a", "b", "b", "q", "q", "q"]), Counter(["a", "a", "c", "c", "<unk>"])]
    assert vocabulary(counts, lang, None) == set(lang.lexicon)
    assert vocabulary(counts, lang, 1) == {"a", "<unk>"}
    assert vocabulary(counts, lang, 2) == {"a", "b", "<unk>"}  # c as often as b, but later
    assert vocabulary(counts, lang, 9) == {"a", "b", "c", "<unk>"}
    model = estimate([["a", "b", "c"]], {"a", "<unk>"}, lang, 2)
    assert model.words == [EOS, BOS, "<unk>", "a"]
    assert model.log10_prob(("<unk>",), "<unk>") > -1


def test_texts(tmp_path: Path) -> None:
    (tmp_path / "fisher").mkdir()
    keyed, plain = tmp_path / "fisher/text", tmp_path / "web.gz"
    keyed.write_text("u1 a b\nu2\nu3 c\n")
    plain.write_bytes(gzip.compress(b"a b\n\nc\n"))
    assert (Text(keyed).name, list(Text(keyed))) == ("fisher", [["a", "b"], [], ["c"]])
    assert list(Text(keyed, only={"u3"})) == [["c"]]
    assert utterances(keyed) == {"u1", "u2", "u3"}
    assert (Text(plain, keyed=False).name, list(Text(plain, keyed=False))) == ("web.gz", [["a", "b"], ["c"]])
    plain.write_bytes(b"a\n\xff\n")
    with pytest.raises(RecipeError, match=r"web\.gz:2: not UTF-8"):
        list(Text(plain, keyed=False))
    with pytest.raises(RecipeError, match="no such text; run the stage 'data'"):
        list(Text(tmp_path / "none/text"))


def test_bad_estimation_input(lang: Lang) -> None:
    with pytest.raises(RecipeError, match="no sentence"):
        estimate([], set(lang.lexicon), lang, 3)
    for order in (1, 5):
        with pytest.raises(RecipeError, match=r"lm\.order: expected 2 to 4"):
            parse_conf(LmConf, f'{{"order": {order}, "vocabulary": null}}')
