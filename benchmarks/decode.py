"""Word error rate and speed of decoding on one core: beams, one pass against two, other decoders on the same audio.

    python -m benchmarks.decode --exp exp/swbd/read --system allreduce [--every 4]

Needs a run whose first pass has a pruned language model. The scales are those that the run has chosen; ``--every 4`` takes
every fourth utterance of the test set. kaldi-decoder's search, without lattices, runs on the same scores and graph. Where the
package pocketsphinx is installed (it is none of this project's), its own models decode the same audio: of that the time
alone can be compared. Prints a Markdown table; times are processor seconds by seconds of audio, of search and lattices,
features and scores apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import torch
import yaml
from tqdm import tqdm

from benchmarks.stages import ROOT, part_of
from local.am.inputs import Inputs
from local.am.scorer import network_scores
from local.cli import RecipeError, run
from local.datadir import DataDir
from local.decode import DecodeConf, Recognizer, Stats
from local.features import FRAME_SHIFT, read_samples
from local.fst import FstArrays
from local.graph import GraphConf, build
from local.hmm.model import HmmModel
from local.lattice import Lattice, Point
from local.lexicon import Lang
from local.lm import Arpa
from local.lm.grammar import to_acceptor
from local.score.wer import Reference
from local.search import BeamSearch
from local.tune import Grid

BEAMS = [(8.0, 1500), (11.0, 3000), (13.0, 7000), (15.0, 7000), (18.0, 20000)]  # the last: very wide


class Test:
    """A part of a run's test set with a network's scores, and what decoding it takes."""

    def __init__(self, exp: Path, system: str, every: int, folder: Path) -> None:
        self.exp = exp
        self.data: DataDir = part_of(exp / "data" / "eval2000", every, folder)
        self.reference = Reference(folder / "stm", folder / "glm")
        self.lang = Lang.read(exp / "lang")
        self.names = self.lang.names()
        self.model = HmmModel.load(exp / "align" / "network" / "model.pt")
        self.point = Point.read(exp / "decode" / system / "best.json")
        given = argparse.Namespace(
            feats=exp / "feats" / "eval2000",
            transforms=exp / "decode" / "tri4" / "eval2000" / "all" / "fmllr.scp",
            fmllr=None,
            ivectors=exp / "ivectors" / "eval2000" / "ivectors.scp",
            model=True,
        )
        inputs = Inputs.of_arguments(given, self.data, self.model)
        began = time.process_time()
        scored = network_scores(exp / "train" / system / "final.pt", inputs)(list(self.data.utterances))
        self.scores = {key: scores for key, scores in tqdm(scored, desc="scores") if scores is not None}
        self.seconds = sum(map(len, self.scores.values())) * FRAME_SHIFT
        self.of_scores = (time.process_time() - began) / self.seconds

    def decode(self, search: BeamSearch, conf: DecodeConf) -> tuple[dict[str, Lattice], float, Stats]:
        """Return lattices, processor seconds a second, and statistics."""
        stats = Stats()
        recognizer = Recognizer(search, conf, self.lang, stats)
        began = time.process_time()
        lattices = {key: recognizer.lattice(key, scores) for key, scores in tqdm(self.scores.items(), desc=f"{conf.beam}")}
        return lattices, (time.process_time() - began) / self.seconds, stats

    def rescored(self, lattices: dict[str, Lattice], old: Arpa, new: Arpa) -> tuple[dict[str, Lattice], float]:
        """Return lattices with the other language model, and processor seconds a second."""
        began = time.process_time()
        found = {key: lattice.rescored(old, new, self.names) for key, lattice in lattices.items()}
        return found, (time.process_time() - began) / self.seconds

    def rate(self, lattices: dict[str, Lattice]) -> float:
        """The error rate at the run's scales."""
        grid = Grid(self.data, lattices, self.names, self.reference)
        grid.score([self.point.acoustic_scale], [self.point.insertion_penalty])
        return 100 * grid.errors()[self.point] / grid.counts[self.point]["N"]

    def kaldis(self, graph: FstArrays, beam: float, max_active: int) -> float:
        """Processor seconds a second of kaldi-decoder's search for the best path."""
        fst = kaldifst.StdConstFst(graph.to_fst())
        options = kaldi_decoder.FasterDecoderOptions(beam=beam, max_active=max_active)
        decoder = kaldi_decoder.FasterDecoder(fst, options)
        began = time.process_time()
        for scores in self.scores.values():
            scaled = scores * np.float32(self.point.acoustic_scale)
            decoder.decode(kaldi_decoder.DecodableCtc(scaled))
            decoder.get_best_path()
        return (time.process_time() - began) / self.seconds

    def pocketsphinx(self) -> float | None:
        """Processor seconds a second of pocketsphinx with the models that it comes with; ``None`` where it is not installed."""
        try:
            from pocketsphinx import Decoder
        except ImportError:
            return None
        decoder = Decoder(samprate=16000, loglevel="FATAL")
        spent, heard = 0.0, 0.0
        for utterance in tqdm(self.data.utterances.values(), desc="pocketsphinx"):
            twice = np.repeat(read_samples(self.data, utterance), 2)  # its models are of 16 kHz
            samples = twice.astype(np.int16).tobytes()
            began = time.process_time()
            decoder.start_utt()
            decoder.process_raw(samples, full_utt=True)
            decoder.end_utt()
            spent, heard = spent + time.process_time() - began, heard + len(twice) / 16000
        return spent / heard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exp", type=Path, required=True)
    parser.add_argument("--system", default="allreduce", help="strategy that the network was trained with")
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    exp = arguments.exp
    if not (exp / "lm" / "pruned.arpa.gz").exists():
        raise RecipeError(f"{exp}: its first pass has the full model; set lm.prune")
    torch.set_num_threads(1)
    preset = yaml.safe_load((ROOT / "conf" / "decode" / "mini.yaml").read_text(encoding="utf-8"))["network"]
    old, new = (Arpa.read(exp / "lm" / name) for name in ("pruned.arpa.gz", "arpa.gz"))
    with tempfile.TemporaryDirectory() as name:
        test = Test(exp, arguments.system, arguments.every, Path(name))
        conf = replace(DecodeConf(**preset), acoustic_scale=test.point.acoustic_scale, time_limit=1e6)
        lexicon = FstArrays.read(exp / "lang" / "L_disambig.fst")
        full, _ = build(test.lang, lexicon, to_acceptor(new, test.lang.words), test.model, GraphConf(1.0, 0.1))
        pruned = FstArrays.read(exp / "graph" / "network" / "HCLG.fst")
        print(f"scores: {test.of_scores:.4f} of real time; {test.seconds:.0f} s of speech, {len(test.scores)} utterances")
        print(f"arcs: pruned {pruned.num_arcs}, full {full.num_arcs}\n")
        print("| language model | beam | tokens | WER % | x real time | of it lattices | kaldi-decoder, best path alone |")
        print("|---|---|---|---|---|---|---|")
        for label, graph in (("pruned", pruned), ("full", full)):
            search = BeamSearch(graph)
            for beam, tokens in BEAMS:
                lattices, speed, stats = test.decode(search, replace(conf, beam=beam, max_active=tokens))
                of_lattices = stats.seconds_of_lattices / test.seconds
                rows = [(label, lattices, 0.0, f"{test.kaldis(graph, beam, tokens):.3f}")]
                if graph is pruned:
                    rows.append(("pruned, then full", *test.rescored(lattices, old, new), ""))
                for way, found, more, kaldi in rows:
                    times = f"{speed + more:.3f} | {of_lattices + more:.3f} | {kaldi}"
                    print(f"| {way} | {beam} | {tokens} | {test.rate(found):.2f} | {times} |", flush=True)
        sphinx = test.pocketsphinx()
        print(f"\npocketsphinx: {'not installed' if sphinx is None else f'{sphinx:.3f} of real time'}")


if __name__ == "__main__":
    run(main)
