"""A language and HMMs small enough to enumerate, and the enumeration: what the graph and the search must find."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from local.graph import GraphConf
from local.hmm.model import HmmArc
from local.lexicon import END, START, Lang, LexiconConf, Spoken, make_lang

SILENCE_PROBABILITY = 0.3
# a word that begins others, homophones, two pronunciations, one phone and several
LEXICON = [
    ("<unk>", 1.0, "spn"),
    ("a", 0.6, "x"),
    ("a", 0.3, "x y"),
    ("b", 1.0, "x"),
    ("c", 0.8, "y z"),
    ("d", 1.0, "x y z"),
]
# bigrams whose back-off is sometimes the better way, a word after which nothing was seen, one seen in no bigram
ARPA = """\\data\\
ngram 1=6
ngram 2=6

\\1-grams:
-0.7\t</s>
-99\t<s>\t-0.3
-0.6\ta\t-0.2
-0.9\tb\t-0.4
-0.8\tc
-1.1\td\t-0.1

\\2-grams:
-0.5\t<s> a
-1.6\t<s> c
-0.4\ta b
-0.9\tb </s>
-0.2\tb a
-0.3\td d

\\end\\
"""


def write_dictionary(folder: Path) -> Path:
    """Write the toy's dictionary."""
    folder.mkdir()
    (folder / "silence_phones.txt").write_text("sil\nspn\n")
    (folder / "nonsilence_phones.txt").write_text("x\ny\nz\n")
    (folder / "optional_silence.txt").write_text("sil\n")
    (folder / "oov.txt").write_text("<unk>\n")
    (folder / "lexiconp.txt").write_text("".join(f"{word}\t{p}\t{phones}\n" for word, p, phones in LEXICON))
    return folder


def write_lang(folder: Path) -> Path:
    """Write the toy's language directory and ``arpa`` below ``folder``."""
    make_lang(write_dictionary(folder / "dict"), LexiconConf(SILENCE_PROBABILITY), folder / "lang")
    (folder / "arpa").write_text(ARPA)
    return folder / "lang"


class ToyHmms:
    """HMMs of two states, silence with a way past the second; pdfs drawn for every phone in context and state."""

    num_pdfs = 9

    def __init__(self, context_width: int) -> None:
        self.context_width = context_width

    def hmm(self, window: tuple[int, ...]) -> list[HmmArc]:
        assert len(window) == self.context_width
        draw = random.Random(repr(window))
        first, second = draw.sample(range(self.num_pdfs), 2)
        stay = 0.3 if window[len(window) // 2] == 1 else 0.6
        skip = 0.2 if window[len(window) // 2] == 1 else 0.0
        arcs = [(0, 0, first, stay), (0, 1, first, 1 - stay - skip), (1, 1, second, 0.5), (1, 2, second, 0.5)]
        if skip:
            arcs.append((0, 2, first, skip))
        return [HmmArc(*arc[:3], math.log(arc[3]), number) for number, arc in enumerate(arcs)]


Ngrams = dict[tuple[str, ...], tuple[float, float]]  # to log10 probability and back-off weight


def read_ngrams(arpa: str) -> Ngrams:
    """The n-grams of an ARPA text."""
    rows = [line.split("\t") for line in arpa.splitlines() if "\t" in line]
    return {tuple(row[1].split()): (float(row[0]), float(row[2]) if row[2:] else 0.0) for row in rows}


def write_ngrams(ngrams: Ngrams) -> str:
    """The ARPA text of n-grams."""
    orders = range(1, max(map(len, ngrams)) + 1)
    text = "\\data\\\n" + "".join(f"ngram {n}={sum(len(ngram) == n for ngram in ngrams)}\n" for n in orders)
    for n in orders:
        text += f"\n\\{n}-grams:\n"
        rows = [(p, " ".join(words), back)[: 2 + (n < orders[-1])] for words, (p, back) in ngrams.items() if len(words) == n]
        text += "".join("\t".join(map(str, row)) + "\n" for row in rows)
    return text + "\n\\end\\\n"


def sentence_cost(ngrams: Ngrams, words: tuple[str, ...], free: bool = True) -> float:
    """The cheapest way through a back-off model: every word by the longest n-gram there is, or by one that backing off
    leads to even so; of the latter none unless ``free``."""

    def cheapest(history: tuple[str, ...], left: tuple[str, ...]) -> float:
        if not left:
            return 0.0
        while history and history not in ngrams:
            history = history[1:]
        ngram = (*history, left[0])
        ways = [ngrams[ngram][0] + cheapest(ngram[-order + 1 :] if order > 1 else (), left[1:])] if ngram in ngrams else []
        if history and (free or not ways):
            ways.append(ngrams[history][1] + cheapest(history[1:], left))
        return max(ways, default=-math.inf)

    order = max(map(len, ngrams))
    return -cheapest(("<s>",) if order > 1 else (), (*words, "</s>")) * math.log(10)


def spoken(lang: Lang, ngrams: Ngrams, frames: int) -> Iterator[tuple[tuple[str, ...], float, tuple[str, ...]]]:
    """All words, their cost and phones, silences chosen, that may fill so many frames (speech takes two a phone)."""
    words_of_both = [word for word in lang.lexicon if (word,) in ngrams]
    silence = lang.silence

    def extend(words: tuple[str, ...], cost: float, phones: tuple[str, ...], silent: bool, room: int) -> Iterator:
        end = silence.before_end if silent else silence.none_before_end
        yield words, cost - math.log(end) + sentence_cost(ngrams, words), phones
        for word in words_of_both:
            for entry in lang.lexicon[word]:
                left = room - 2 * len(entry.phones)
                if left >= 0:
                    factor = entry.silence_before if silent else entry.no_silence_before
                    said = cost - math.log(entry.probability * factor)
                    with_word = (*words, word)
                    heard = (*phones, *entry.phones)
                    yield from extend(with_word, said - math.log(1 - entry.silence_after), heard, False, left)
                    if left:
                        heard = (*heard, lang.optional_silence)
                        yield from extend(with_word, said - math.log(entry.silence_after), heard, True, left - 1)

    yield from extend((), -math.log(1 - silence.start), (), False, frames)
    yield from extend((), -math.log(silence.start), (lang.optional_silence,), True, frames - 1)


def random_toy(seed: int, folder: Path) -> tuple[Path, Ngrams]:
    """Write a language directory and ``arpa`` drawn by chance.

    Of the words some sound alike or begin others; the model lacks one of the lexicon and has one that the lexicon
    lacks; silence depends on the words around it, or not.
    """
    draw = random.Random(seed)
    folder.mkdir()
    names = ["a", "b", "c", "d"]
    known: list[tuple[str, ...]] = []
    lexicon: list[tuple[str, tuple[str, ...]]] = [("<unk>", ("spn",))]
    for word in names:
        for _ in range(draw.choice([1, 1, 2])):
            phones = tuple(draw.choices("xyz", k=draw.choice([1, 1, 2, 3])))
            if known and draw.random() < 0.5:
                phones = (*draw.choice(known)[:2], *phones)[: draw.choice([1, 2, 3])]
            if (word, phones) not in lexicon:
                lexicon.append((word, phones))
                known.append(phones)
    write_dictionary(folder / "dict")
    rows = (f"{word}\t{draw.uniform(0.2, 1):.3f}\t{' '.join(phones)}\n" for word, phones in lexicon)
    (folder / "dict" / "lexiconp.txt").write_text("".join(rows))
    counts = None
    if draw.random() < 0.5:
        variants = [START, *lexicon[1:], END]
        pairs = [(draw.choice(variants[:-1]), draw.choice(variants[1:])) for _ in range(12)]
        counts = Counter({Spoken(*pair, draw.random() < 0.5): draw.randint(1, 9) for pair in pairs})
    make_lang(folder / "dict", LexiconConf(draw.uniform(0.1, 0.9)), folder / "lang", counts)

    def weights() -> tuple[float, float]:
        return round(draw.uniform(-1.5, -0.1), 3), round(draw.uniform(-0.9, 0.2), 3)

    words = [*draw.sample(names, 3), "elsewhere"]
    ngrams = {(word,): weights() for word in [*words, "</s>"]}
    histories: list[tuple[str, ...]] = [("<s>",), *((word,) for word in words)]
    ngrams["<s>",] = (-99.0, weights()[1])
    for _ in range(draw.choice([0, 1, 2])):  # orders above the first
        seen = sorted({(*draw.choice(histories), draw.choice([*words, "</s>"])) for _ in range(8)})
        ngrams |= {ngram: weights() for ngram in seen}
        histories = [ngram for ngram in seen if ngram[-1] != "</s>"] or histories
    (folder / "arpa").write_text(write_ngrams(ngrams))
    return folder / "lang", ngrams


def path_cost(phones: tuple[str, ...], lang: Lang, model: ToyHmms, conf: GraphConf, scores: np.ndarray) -> float:
    """The cheapest sequence of HMM states through all frames, every arc's cost by the book."""
    half = model.context_width // 2
    padded = [0] * half + [lang.phones[phone] for phone in phones] + [0] * half
    start, arcs = 0, []
    for place in range(len(phones)):
        hmm = model.hmm(tuple(padded[place : place + model.context_width]))
        stay = {arc.source: math.exp(arc.log_prob) for arc in hmm if arc.source == arc.target}
        for arc in hmm:
            leave = math.log(1 - stay[arc.source])
            if arc.source == arc.target:
                log_prob = conf.self_loop_scale * arc.log_prob
            else:
                log_prob = conf.transition_scale * (arc.log_prob - leave) + conf.self_loop_scale * leave
            arcs.append((start + arc.source, start + arc.target, arc.pdf, -log_prob))
        start += max(arc.target for arc in hmm)
    best = [math.inf] * (start + 1)
    best[0] = 0.0
    for frame in scores:
        after = [math.inf] * (start + 1)
        for source, target, pdf, cost in arcs:
            after[target] = min(after[target], best[source] + cost - float(frame[pdf]))
        best = after
    return best[start]
