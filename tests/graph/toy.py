"""A language and HMMs small enough to enumerate, and the enumeration: what the graph and the search must find."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from local.graph import GraphConf
from local.hmm.model import HmmArc
from local.lexicon import Lang, LexiconConf, make_lang

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


def sentence_cost(words: tuple[str, ...]) -> float:
    """The cheapest way through the bigram model: every word by its bigram or by backing off."""
    sections = ARPA.split("-grams:")
    unigrams = {fields[1]: [float(fields[0]), *map(float, fields[2:])] for fields in _rows(sections[1])}
    bigrams = {tuple(fields[1].split()): float(fields[0]) for fields in _rows(sections[2])}
    total = 0.0
    for history, word in itertools.pairwise(["<s>", *words, "</s>"]):
        backoff = unigrams[history][1] if len(unigrams[history]) > 1 else 0.0
        total += max(bigrams.get((history, word), -math.inf), backoff + unigrams[word][0])
    return -total * math.log(10)


def _rows(section: str) -> Iterator[list[str]]:
    return (line.split("\t") for line in section.splitlines() if "\t" in line)


def spoken(frames: int) -> Iterator[tuple[tuple[str, ...], float, tuple[str, ...]]]:
    """All words, their cost and phones, silences chosen, that may fill so many frames (speech takes two a phone)."""
    with_silence, without = -math.log(SILENCE_PROBABILITY), -math.log(1 - SILENCE_PROBABILITY)

    def extend(words: tuple[str, ...], cost: float, phones: tuple[str, ...], room: int) -> Iterator:
        yield words, cost + sentence_cost(words), phones
        for word, probability, spelling in LEXICON[1:]:
            spelled = tuple(spelling.split())
            left = room - 2 * len(spelled)
            if left >= 0:
                said = ((*words, word), cost - math.log(probability))
                yield from extend(said[0], said[1] + without, (*phones, *spelled), left)
                if left:
                    yield from extend(said[0], said[1] + with_silence, (*phones, *spelled, "sil"), left - 1)

    yield from extend((), without, (), frames)
    yield from extend((), with_silence, ("sil",), frames - 1)


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
