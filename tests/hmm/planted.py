"""A language of three words and speech made from known Gaussians at known times: what training must find again."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import torch

from local.datadir import DataDir, Recording, Utterance
from local.files import write_archive
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.hmm.topology import Topology, Transition, num_states
from local.hmm.tree import Node, Tree, monophone_tree
from local.lexicon import Lang, LexiconConf, Pronunciation, SilenceProbabilities, make_lang

LEXICON = {
    "ab": [(1.0, ("a", "b"))],
    "abc": [(0.7, ("a", "b", "c")), (0.3, ("a", "c"))],
    "c": [(0.9, ("c",)), (0.1, ("b",))],
    "<unk>": [(1.0, ("spn",))],
}
PHONES = {"sil": 1, "spn": 2, "a": 3, "b": 4, "c": 5}
SILENCE = ("sil", "spn")

MONO = {
    "iterations": 12,
    "realign": [2, 3, 4, 5, 6, 8],
    "stops": [],
    "gaussians": 40,
    "grow_until": 8,
    "power": 0.25,
    "min_frames": 10.0,
    "boost_silence": 1.0,
    "utterances": None,
    "of_shortest": None,
}
TRI = {**MONO, "iterations": 6, "realign": [2, 4], "gaussians": 60, "grow_until": 4, "leaves": 30, "min_count": 10.0}
LDA = {**TRI, "context": 1, "dims": 5, "mllt": [1, 2, 3]}
SAT = {**TRI, "fmllr": [1, 2, 3]}
TREE = {"leaves": 40, "min_count": 10.0}


def small_topology() -> Topology:
    """One state for speech; two for silence, the second of which may be left out."""
    speech = (Transition(0, 0, 0.6), Transition(0, 1, 0.4))
    silence = (Transition(0, 0, 0.5), Transition(0, 1, 0.3), Transition(0, 2, 0.2))
    return Topology(speech, (*silence, Transition(1, 1, 0.7), Transition(1, 2, 0.3)))


def make_language(topology: Topology, silence_probability: float = 0.4) -> Lang:
    lexicon = {word: [Pronunciation(*entry, silence_probability) for entry in entries] for word, entries in LEXICON.items()}
    silence = SilenceProbabilities(silence_probability, silence_probability)
    return Lang(PHONES, {"#0": 6}, {}, lexicon, SILENCE, "sil", silence, "<unk>", topology)


def random_model(lang: Lang, width: int, seed: int, dims: int = 3) -> HmmModel:
    """A model of random mixtures; with ``width`` 3 each root asks a random question to either side."""
    draw = random.Random(seed)
    states = {
        number: num_states(lang.topology.silence if name in SILENCE else lang.topology.speech)
        for name, number in lang.phones.items()
    }
    tree = monophone_tree(states)
    if width == 3:
        roots, pdf = {}, 0
        for key in tree.roots:
            left, right = (frozenset(draw.sample(range(6), 3)) for _ in range(2))
            leaves = [Node(pdf + i) for i in range(3)]
            roots[key] = Node(position=0, phones=left, yes=leaves[0])
            roots[key].no = Node(position=2, phones=right, yes=leaves[1], no=leaves[2])
            pdf += 3
        tree = Tree(3, roots, pdf)
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 4, (tree.num_pdfs,), generator=generator)
    gmm = random_gmm(sizes, dims, generator)
    model = HmmModel(lang.phones, SILENCE, lang.topology, tree, torch.zeros(0), gmm, torch.ones(tree.num_pdfs))
    model.transitions = model.initial_transitions()
    return model


def random_gmm(sizes: torch.Tensor, dims: int, generator: torch.Generator) -> Gmm:
    count = int(sizes.sum())
    weights = torch.rand(count, generator=generator) + 0.1
    pdf_of = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    weights /= torch.zeros(len(sizes)).index_add_(0, pdf_of, weights)[pdf_of]
    means = 3 * torch.randn(count, dims, generator=generator)
    return Gmm(weights, means, torch.rand(count, dims, generator=generator) + 0.3, sizes)


class PlantedCorpus:
    """Data, features and language in ``folder``, and the true times of the words.

    A phone in its left neighbour's context has a mean of its own; so contexts matter, and silence does not.
    """

    def __init__(self, folder: Path, utterances: int = 60) -> None:
        self.data, self.feats, self.lang = folder / "data", folder / "feats", folder / "lang"
        self._write_lang(folder / "dict")
        draw = np.random.default_rng(7)
        dims = 5
        means = {phone: draw.normal(0, 4, dims) for phone in PHONES}
        shifts = {phone: draw.normal(0, 1.0, dims) for phone in PHONES}
        self.words: dict[str, list[tuple[str, int, int]]] = {}
        recordings, entries, features = {}, {}, {}
        for number in range(utterances):
            side = f"sw0{2001 + number // 12}-A"
            key = f"{side}_{number:06d}"
            phones: list[str] = []
            word_of: list[int] = []
            words = [["ab", "abc", "c"][i] for i in draw.integers(0, 3, draw.integers(1, 5))]
            for place, word in enumerate(words):
                if draw.random() < 0.5:
                    phones.append("sil")
                    word_of.append(-1)
                variants = LEXICON[word]
                chosen = variants[0 if draw.random() < variants[0][0] else 1][1]
                phones += chosen
                word_of += [place] * len(chosen)
            lengths = draw.integers(6, 14, len(phones))
            rows, starts, before = [], np.cumsum([0, *lengths]), "sil"
            for phone, length in zip(phones, lengths, strict=True):
                mean = means[phone] + (0 if phone == "sil" else shifts[before])
                rows.append(mean + draw.normal(0, 1.0 if phone == "sil" else 0.5, (length, dims)))
                before = phone
            self.words[key] = [
                (word, int(starts[word_of.index(place)]), int(lengths[np.array(word_of) == place].sum()))
                for place, word in enumerate(words)
            ]
            features[key] = np.concatenate(rows).astype(np.float32)
            recordings[side] = Recording(side, Path("none.sph"), 0, side[:-2], "A", 8000 * 600)
            begin = number % 12 * 10.0
            entries[key] = Utterance(key, side, side, begin, begin + len(features[key]) / 100 + 0.02, tuple(words))
        DataDir(recordings, entries).write(self.data)
        self.frames = {key: len(matrix) for key, matrix in features.items()}
        self.write_features(features)

    def write_features(self, features: dict[str, np.ndarray]) -> None:
        """Write them as the set's MFCC, with statistics that leave them as they are."""
        write_archive(self.feats / "mfcc.scp", sorted(features.items()))
        dims = next(iter(features.values())).shape[1]
        neutral = np.zeros((2, dims + 1))
        neutral[0, -1] = 1
        speakers = sorted(DataDir.read(self.data).speakers)
        write_archive(self.feats / "mfcc_cmvn.scp", ((speaker, neutral) for speaker in speakers))

    def _write_lang(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "silence_phones.txt").write_text("sil\nspn\n")
        (folder / "nonsilence_phones.txt").write_text("a\nb\nc\n")
        (folder / "optional_silence.txt").write_text("sil\n")
        (folder / "oov.txt").write_text("<unk>\n")
        lines = [f"{word}\t{p}\t{' '.join(spelled)}\n" for word, entries in LEXICON.items() for p, spelled in entries]
        (folder / "lexiconp.txt").write_text("".join(sorted(lines)))
        make_lang(folder, LexiconConf(0.5), self.lang)

    def arguments(self, out: Path, conf: dict[str, object]) -> list[str]:
        """Of the training's command line."""
        paths = ["--data", self.data, "--feats", self.feats, "--lang", self.lang, "--out", out]
        until = ["--until", str(conf["iterations"])] if "iterations" in conf else []
        return [*map(str, paths), *until, "--conf", json.dumps(conf)]
