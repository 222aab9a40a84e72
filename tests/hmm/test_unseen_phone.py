"""A phone that training never hears, as the unknown word's where every word has a pronunciation: it harms nothing, and is
not recognised."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from planted import LDA, MONO, SAT, TREE, TRI, PlantedCorpus

from local.am.egs import FrameStore
from local.fst import FstArrays
from local.hmm.model import HmmModel
from local.hmm.train import main as train
from local.lexicon import Lang
from local.lm import acceptor

UNSEEN = "spn"  # of the planted language's <unk>


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PlantedCorpus:
    folder = tmp_path_factory.mktemp("unseen")
    corpus = PlantedCorpus(folder)
    train(["mono", *corpus.arguments(folder / "mono", MONO)])
    before = "mono"
    for stage, conf in (("tri", TRI), ("lda", LDA), ("sat", SAT), ("tree", TREE)):
        train([stage, "--before", str(folder / before), *corpus.arguments(folder / stage, conf)])
        before = stage
    return corpus


def unseen_pdfs(model: HmmModel) -> list[int]:
    edge = (0,) * (model.context_width // 2)
    return sorted({arc.pdf for arc in model.hmm((*edge, model.phones[UNSEEN], *edge))})


@pytest.mark.parametrize("stage", ["mono", "tri", "lda", "sat", "tree"])
def test_every_stage_has_pdfs_for_it(corpus: PlantedCorpus, stage: str) -> None:
    model = HmmModel.load(corpus.lang.parent / stage / "model.pt")
    assert model.occupancy[unseen_pdfs(model)].sum() == 0
    assert model.occupancy.sum() == sum(corpus.frames.values())
    for tensor in (model.transitions, *model.gmm.tensors):
        assert torch.isfinite(tensor).all()
    heard = json.loads((corpus.lang.parent / "mono" / "alignment.json").read_text())["durations"]
    assert UNSEEN not in heard


ARPA = """\\data\\
ngram 1=6

\\1-grams:
-0.5\t</s>
-99\t<s>
-0.9\t<unk>
-0.6\tab
-0.6\tabc
-0.6\tc

\\end\\
"""


@pytest.mark.parametrize("stage", ["tri", "tree"])
@pytest.mark.parametrize("heard", [False, True])
def test_it_is_in_the_graph_only_if_it_was_heard(
    corpus: PlantedCorpus, stage: str, heard: bool, root: Path, tmp_path: Path
) -> None:
    """A Gaussian as wide as all frames would win where a word fits badly: over one of the 149 planted words, with ``tri``."""
    model = HmmModel.load(corpus.lang.parent / stage / "model.pt")
    if heard:
        model.occupancy[unseen_pdfs(model)[0]] = 1
    model.save(tmp_path / "model.pt")
    (tmp_path / "arpa").write_text(ARPA)
    acceptor(tmp_path / "arpa", corpus.lang).write(str(tmp_path / "G.fst"))
    paths = {"lang": corpus.lang, "grammar": tmp_path / "G.fst", "model": tmp_path / "model.pt", "out": tmp_path / "HCLG.fst"}
    command = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
    command += ["--conf", '{"transition_scale": 1.0, "self_loop_scale": 0.1}']
    done = subprocess.run([sys.executable, "-m", "local.graph", *command], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("training had no frame of ['<unk>']: not in the graph" in done.stderr) == (not heard)
    words = Lang.read(corpus.lang).words
    spoken = {name for name, number in words.items() if number in set(FstArrays.read(tmp_path / "HCLG.fst").olabel.tolist())}
    assert spoken - {"<eps>"} == ({"ab", "abc", "c", "<unk>"} if heard else {"ab", "abc", "c"})


def test_a_network_gets_no_likelihood_from_its_rarity() -> None:
    """Scores are posteriors over priors; the network gives 1e-6 to a pdf that is never a target, as to any that is wrong."""
    targets = np.array([0] * 999_990 + [1] * 10, dtype=np.int32)
    empty = np.zeros((0, 1), np.float32)
    store = FrameStore(empty, 0, targets, np.array([0, len(targets)]), empty, np.zeros(1, int), 3, ["fbank"])
    priors = np.exp(store.log_priors())
    np.testing.assert_allclose(priors, [999_991 / 1_000_003, 11 / 1_000_003, 1], rtol=1e-5)
    posteriors = np.array([1 - 2e-6, 1e-6, 1e-6])
    assert np.argmax(posteriors / priors) == 0
    assert np.argmin(posteriors / priors) == 2
