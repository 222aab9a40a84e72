"""Speed of features, alignment, adaptation and the frame store on one core, and of beam search (kaldi-decoder) beside.

    python -m benchmarks.align --exp exp/swbd/mini [--set train] [--utterances 500]

Needs a run up to the stage 'egs'; the model is the speaker-adapted one. Prints a Markdown table of frames a second of
processor time. The beam search gets the same graphs and the same likelihoods; the row 'searches agree' says on how many
utterances it found as good a path.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import kaldi_decoder
import kaldifst
import numpy as np
import torch
import yaml
from torch import Tensor

from benchmarks.stages import last_iteration
from local.adaptation.ivector import IvectorExtractor, extract
from local.adaptation.linear import FmllrStats, apply, fmllr
from local.am.egs import FrameStore
from local.cli import run
from local.datadir import DataDir
from local.features import FRAME_SHIFT, FeatureConf, compute, read_samples
from local.files import read_archive
from local.hmm.align import Aligner, Graph, gmm_input, read_inputs
from local.hmm.model import HmmModel
from local.lexicon import Lang

BEAM = 200.0  # of the unscaled log-likelihood; Kaldi's 10 for likelihoods scaled by 0.1 is 100
CORPUS_HOURS = 2000

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Result and processor seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def to_fst(graph: Graph, transitions: np.ndarray) -> kaldifst.StdConstFst:
    """An utterance's graph for a decoder: input labels are states + 1."""
    fst = kaldifst.StdVectorFst()
    for _ in range(len(graph.pdf) + 1):
        fst.add_state()
    fst.start = len(graph.pdf)

    def arc(source: int, target: int, log_prob: float) -> None:
        if log_prob > -math.inf:
            fst.add_arc(source, kaldifst.StdArc(target + 1, target + 1, -log_prob, target))

    for state, log_prob in enumerate(graph.initial.tolist()):
        arc(fst.start, state, log_prob)
    weights = transitions[graph.transition] + graph.bonus
    for source, target, log_prob in zip(graph.source.tolist(), graph.target.tolist(), weights.tolist(), strict=True):
        arc(source, target, log_prob)
    for state, log_prob in enumerate((graph.final + transitions[graph.final_transition]).tolist()):
        if log_prob > -math.inf:
            fst.set_final(state, -log_prob)
    return kaldifst.StdConstFst(fst)


def beam_search(fst: kaldifst.StdConstFst, emissions: np.ndarray) -> float:
    """Log-likelihood of the path found; minus infinity where none reached the end."""
    decoder = kaldi_decoder.FasterDecoder(fst, kaldi_decoder.FasterDecoderOptions(beam=BEAM))
    decoder.decode(kaldi_decoder.DecodableCtc(emissions))
    if not decoder.reached_final():
        return -math.inf
    _, path = decoder.get_best_path()
    _, _, _, cost = kaldifst.get_linear_symbol_sequence(path)
    return -(cost.value1 + cost.value2)


def of_audio(data: DataDir, keys: Sequence[str]) -> list[tuple[str, float]]:
    """Seconds to read the utterances' audio and to make their features."""
    conf = FeatureConf(**yaml.safe_load((Path(__file__).parents[1] / "conf/features/8k.yaml").read_text(encoding="utf-8")))

    samples, reading = timed(lambda: [read_samples(data, data.utterances[key]) for key in sorted(keys)])
    mfcc, fbank = (timed(lambda kind=kind: [compute(x, kind, conf) for x in samples])[1] for kind in ("mfcc", "fbank"))
    return [("audio read", reading), ("MFCC", mfcc), ("log-mel", fbank)]


def of_adaptation(exp: Path, model: HmmModel, data: DataDir, feats: Path, keys: Sequence[str], pdf_ids: Tensor) -> list:
    """Seconds for features, statistics and transforms of the utterances' speakers, i-vectors, and the frame store's batches.

    :param pdf_ids: of all frames of ``keys``, one utterance after another.
    """
    features = read_inputs(data, feats)
    unadapted, projecting = timed(lambda: torch.cat([gmm_input(features[key], model.projection) for key in keys]))
    speakers = len({data.utterances[key].speaker for key in keys})
    stats, counting = timed(lambda: FmllrStats.of(model.gmm, unadapted, pdf_ids))
    _, solving = timed(lambda: [fmllr(stats, 0.0) for _ in range(speakers)])
    extractor = IvectorExtractor.load(exp / "ivectors" / "extractor.pt")
    tri3 = HmmModel.load(last_iteration(exp, "tri3") / "model.pt")
    with tempfile.TemporaryDirectory() as out:
        _, extracting = timed(lambda: extract(extractor, tri3, data.subset(keys), feats, Path(out)))
    store = FrameStore.read(exp / "egs" / "train")
    order = np.random.default_rng(1).permutation(len(store))
    batches = [order[first : first + 160] for first in range(0, len(order), 160)]
    _, reading = timed(lambda: [store.batch(batch) for batch in batches])
    reading *= len(unadapted) / len(store.targets)
    return [
        ("features spliced and projected", projecting),
        ("fMLLR statistics", counting),
        (f"fMLLR transforms of {speakers} speakers", solving),
        ("i-vectors, reading and statistics included", extracting),
        (f"frame store, random batches of {store.inputs} inputs", reading),
    ]


def measure(exp: Path, model: HmmModel, lang: Lang, data: DataDir, feats: Path, transforms: Path, limit: int) -> None:
    """Time every step over ``limit`` utterances, spread over all lengths, and print the table."""
    features, archive = read_inputs(data, feats), read_archive(transforms)
    keys = sorted(features, key=lambda key: data.utterances[key].duration)
    keys = keys[:: max(1, len(keys) // limit)]
    adapted = (torch.tensor(archive[data.utterances[key].speaker]) for key in keys)
    inputs = [apply(w, gmm_input(features[key], model.projection)) for key, w in zip(keys, adapted, strict=True)]
    frames = sum(len(x) for x in inputs)
    aligner = Aligner(model, lang)
    graphs, compiling = timed(lambda: [aligner.compile(data.utterances[key].words) for key in keys])
    states = sum(len(x) * len(graph.pdf) for x, graph in zip(inputs, graphs, strict=True)) / frames

    def emissions() -> list[np.ndarray]:
        needed = [np.unique(graph.pdf, return_inverse=True) for graph in graphs]
        return [
            model.gmm.log_likelihoods(x, torch.from_numpy(pdfs)).numpy()[:, column]
            for x, (pdfs, column) in zip(inputs, needed, strict=True)
        ]

    scores, scoring = timed(emissions)
    _, scoring_all = timed(lambda: [model.log_likelihoods(x) for x in inputs])
    aligned, whole = timed(lambda: dict(aligner.align_features(zip(keys, inputs, graphs, strict=True))))
    fsts, converting = timed(lambda: [to_fst(graph, model.transitions.numpy()) for graph in graphs])
    found, searching = timed(
        lambda: [beam_search(fst, np.ascontiguousarray(score)) for fst, score in zip(fsts, scores, strict=True)]
    )
    pdf_ids = {key: torch.from_numpy(a.pdf_ids).long() for key, a in aligned.items() if a is not None}
    together = torch.cat([x for key, x in zip(keys, inputs, strict=True) if key in pdf_ids])
    pdfs = torch.cat(list(pdf_ids.values()))
    _, accumulating = timed(lambda: model.gmm.accumulate(together, pdfs))
    exact = [-math.inf if aligned[key] is None else aligned[key].log_likelihood for key in keys]
    report(
        frames,
        [
            *of_audio(data, keys),
            ("graphs compiled", compiling),
            ("likelihoods of the graph's pdfs", scoring),
            ("likelihoods of all pdfs", scoring_all),
            ("alignment, batched Viterbi (graphs and likelihoods included)", compiling + whole),
            ("of it the exact search", whole - scoring),
            ("beam search, kaldi-decoder", searching),
            ("and making its transducers", converting),
            ("alignment by beam search (graphs and likelihoods included)", compiling + scoring + converting + searching),
            ("statistics (E step)", accumulating),
            *of_adaptation(exp, model, data, feats, list(pdf_ids), pdfs),
        ],
    )
    agree = sum(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(exact, found, strict=True) if a > -math.inf)
    print(f"\nsearches agree on {agree} of {len(keys)} utterances, {sum(a == -math.inf for a in exact)} cannot be aligned")
    print(
        f"{frames} frames, {states:.0f} states in a frame's graph, {model.num_pdfs} pdfs, {model.gmm.num_gaussians} Gaussians"
    )


def report(frames: int, rows: Sequence[tuple[str, float]]) -> None:
    """Print frames a second, times real time and core-hours for the whole corpus."""
    print(f"| step | frames/s | x real time | core-hours for {CORPUS_HOURS} h |\n|---|---|---|---|")
    for name, seconds in rows:
        speed = frames / max(seconds, 1e-9)
        real_time = speed * FRAME_SHIFT
        print(f"| {name} | {speed:,.0f} | {real_time:,.0f} | {CORPUS_HOURS / real_time:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exp", type=Path, required=True)
    parser.add_argument("--set", default="train")
    parser.add_argument("--utterances", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    exp = arguments.exp
    measure(
        exp,
        HmmModel.load(last_iteration(exp, "tri4") / "model.pt"),
        Lang.read(exp / "lang"),
        DataDir.read(exp / "data" / arguments.set),
        exp / "feats" / arguments.set,
        exp / "align" / "network" / arguments.set / "fmllr.scp",
        arguments.utterances,
    )


if __name__ == "__main__":
    run(main)
