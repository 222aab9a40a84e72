"""Decoding: words, times and confidences of every utterance, by beam search and a lattice of what was heard nearly as well.

    python -m local.decode search --graph graph/tri4/HCLG.fst --lang lang --model align/tri4/35/model.pt --conf '{...}' \\
        --data data/eval2000 --feats feats/eval2000 [--best best.json] --job 0 --jobs 4 --out OUT/0
    python -m local.decode search --graph graph/network/HCLG.fst --model align/network/model.pt --network train/S/final.pt \\
        --transforms decode/tri4/eval2000/all/fmllr.scp --ivectors ivectors/eval2000/ivectors.scp \\
        --rescore lm/pruned.arpa.gz lm/arpa.gz ...
    python -m local.decode join --data data/eval2000 --parts OUT/0 OUT/1 ... --out OUT/all

A job searches once and writes ``lattices.scp``; with ``--best``, the scales that :mod:`local.tune` chose, ``hyp.ctm`` too.
Word times come from aligning the words found: determinization moves the words of a graph's path away from their frames.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.adaptation.linear import apply
from local.adaptation.speakers import speaker_transform
from local.am.inputs import Inputs
from local.am.scorer import network_scores
from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir, Utterance
from local.features import FRAME_SHIFT, FeatureSet
from local.files import atomic_dir, join_archives, write_archive, write_text
from local.fst import FstArrays
from local.hmm.align import Aligner, gmm_input
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.lattice import Lattice, Point, word_lattice
from local.lexicon import Lang
from local.lm import Arpa
from local.search import BeamSearch, OutOfTimeError, SearchConf, StateLattice

_WIDER = 2  # an utterance that ends in no final state is searched again with beam and tokens times this
_NARROWER = (0.5, 0.25)  # and one that takes too long with them times these, the last without a limit
_CONFIDENCE_PATHS = 200  # of a lattice, the best, that confidences are summed over

Features = Callable[[str], Tensor | None]  # utterance id to the GMM's features (frames, D); None: it has no frames
# utterance ids to log-likelihoods (frames, pdfs) of each, in order; None: it has no frames
Scores = Callable[[Sequence[str]], Iterator[tuple[str, np.ndarray | None]]]
TimedWord = tuple[str, int, int]  # word, first frame, frames


@dataclass(frozen=True)
class DecodeConf:
    """How widely the search looks, and the grid of scales that is tried on its lattices."""

    beam: float  # in scaled log-likelihood, below the best token of a frame
    max_active: int  # tokens a frame at most
    lattice_beam: float  # in scaled log-likelihood, below the best path
    acoustic_scale: float  # factor on log-likelihoods in the search
    time_limit: float  # times an utterance's length; a search that takes longer is done again with a narrower beam
    acoustic_scales: tuple[float, ...]  # factors on log-likelihoods
    insertion_penalties: tuple[float, ...]  # costs (negative log-probabilities) added to each word
    device: str  # cpu; cuda: network and search run on a GPU

    def __post_init__(self) -> None:
        """:raises RecipeError: for an empty grid, a scale that is not positive, a value given twice."""
        for name, values in (("acoustic_scales", self.acoustic_scales), ("insertion_penalties", self.insertion_penalties)):
            if not values or list(values) != sorted(set(values)):
                raise RecipeError(f"decode: {name}: expected ascending values, found {list(values)}")
        if min(self.acoustic_scale, *self.acoustic_scales) <= 0:
            raise RecipeError("decode: expected an acoustic_scale and acoustic_scales above 0")

    def search(self, width: float = 1.0) -> SearchConf:
        """The search, with beam and tokens times ``width``."""
        return SearchConf(width * self.beam, math.ceil(width * self.max_active), self.lattice_beam)


@dataclass
class Stats:
    """What a job's search came to."""

    utterances: int = 0
    frames: int = 0
    seconds_of_likelihoods: float = 0.0
    seconds_of_search: float = 0.0
    seconds_of_lattices: float = 0.0  # making words of states, and rescoring
    seconds_of_adaptation: float = 0.0  # decoding for the speakers' transforms
    arcs: int = 0  # of the lattices
    retried: int = 0  # searches that ended in no final state at first
    partial: int = 0  # and again with the wider beam: their best partial path was taken
    out_of_time: list[str] = field(default_factory=list)  # searched again with a narrower beam
    without_frames: list[str] = field(default_factory=list)


class Recognizer:
    """Searches a graph for lattices of words."""

    def __init__(
        self, search: BeamSearch, conf: DecodeConf, lang: Lang, stats: Stats, rescore: tuple[Arpa, Arpa] | None = None
    ) -> None:
        """:param rescore: the language model of the graph, and the one that takes its place in the lattices."""
        self.search = search
        self.conf = conf
        self.stats = stats
        self.rescore = rescore
        self.names = lang.names()

    def _states(self, key: str, scores: np.ndarray) -> StateLattice:
        conf, seconds = self.conf, self.conf.time_limit * FRAME_SHIFT * len(scores)
        try:
            found = self.search(scores, conf.acoustic_scale, conf.search(), seconds)
        except OutOfTimeError:
            self.stats.out_of_time.append(key)
            for width in _NARROWER:
                with contextlib.suppress(OutOfTimeError):
                    last = width == _NARROWER[-1]
                    return self.search(scores, conf.acoustic_scale, conf.search(width), math.inf if last else seconds)
        if not found.complete:
            self.stats.retried += 1
            with contextlib.suppress(OutOfTimeError):
                found = self.search(scores, conf.acoustic_scale, conf.search(_WIDER), seconds)
            self.stats.partial += not found.complete
        return found

    def lattice(self, key: str, scores: np.ndarray) -> Lattice:
        """All word sequences within the lattice beam.

        :param scores: log-likelihoods ``(frames, pdfs)``, not scaled.
        """
        began = time.perf_counter()
        states = self._states(key, scores)
        searched = time.perf_counter()
        lattice = word_lattice(states, self.conf.acoustic_scale, self.conf.lattice_beam)
        if self.rescore:
            lattice = lattice.rescored(*self.rescore, self.names)
        self.stats.seconds_of_search += searched - began
        self.stats.seconds_of_lattices += time.perf_counter() - searched
        self.stats.arcs += len(lattice.source)
        return lattice

    def best(self, key: str, scores: np.ndarray) -> tuple[str, ...]:
        """The best words at the search's own scale."""
        return self.words(self.lattice(key, scores).best(Point(self.conf.acoustic_scale, 0.0)))

    def words(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Words of their ids."""
        return tuple(self.names[number] for number in numbers)


def read_graph(path: Path, num_pdfs: int, device: str = "cpu") -> BeamSearch:
    """Read HCLG for searching.

    :raises RecipeError: where it is missing, damaged, or made for a model with more pdfs.
    """
    if not path.exists():
        raise RecipeError(f"{path}: no such graph; run the stage 'graph'")
    search = BeamSearch(FstArrays.read(path), device)
    if search.highest_pdf >= num_pdfs:
        raise RecipeError(f"{path}: made for a model with {search.highest_pdf + 1} pdfs or more, found one with {num_pdfs}")
    return search


def gmm_features(model: HmmModel, data: DataDir, feats: Path) -> Features:
    """The model's features of each utterance, before adaptation."""
    mfcc = FeatureSet(feats, "mfcc", data.utt2side)
    return lambda key: gmm_input(mfcc[key], model.projection) if key in mfcc else None


def gmm_scores(gmm: Gmm, features_of: Features) -> Scores:
    """Log-likelihoods of mixtures."""
    return lambda keys: ((key, None if (x := features_of(key)) is None else gmm.log_likelihoods(x).numpy()) for key in keys)


def transformed(features_of: Features, data: DataDir, transforms: Mapping[str, Tensor]) -> Features:
    """Features through their speakers' transforms."""

    def adapted(key: str) -> Tensor | None:
        x = features_of(key)
        return None if x is None else apply(transforms[data.utterances[key].speaker], x)

    return adapted


def adapt(model: HmmModel, data: DataDir, features_of: Features, recognizer: Recognizer, aligner: Aligner) -> dict[str, Tensor]:
    """Each speaker's transform, by the words found without it; and once more by those found with it, as Kaldi's recipe does."""
    assert model.unadapted is not None
    transforms: dict[str, Tensor] = {}
    for speaker, keys in tqdm(data.speakers.items(), desc="adapt", mininterval=2):
        inputs = {key: x for key in keys if (x := features_of(key)) is not None}
        transform = None
        for gmm in (model.unadapted, model.gmm):
            features, pdf_ids = [], []
            for key, x in inputs.items():
                scores = gmm.log_likelihoods(x if transform is None else apply(transform, x)).numpy()
                words = recognizer.best(key, scores)
                ((_, alignment),) = aligner.align([(key, scores, aligner.compile(words))])
                if alignment is not None:
                    features.append(x)
                    pdf_ids.append(torch.from_numpy(alignment.pdf_ids).long())
            transform = speaker_transform(model, features, pdf_ids, transform)
        transforms[speaker] = transform
    return transforms


def search(
    data: DataDir, scores_of: Scores, recognizer: Recognizer, num_pdfs: int
) -> Iterator[tuple[Utterance, np.ndarray | None, Lattice | None]]:
    """Give the scores and the lattice of every utterance; of one without frames there are none."""
    stats, began = recognizer.stats, time.perf_counter()
    for key, scores in tqdm(scores_of(list(data.utterances)), total=len(data.utterances), desc="decode", mininterval=2):
        stats.seconds_of_likelihoods += time.perf_counter() - began
        stats.utterances += 1
        lattice = None
        if scores is None:
            stats.without_frames.append(key)
        else:
            _check_scores(scores, key, num_pdfs)
            stats.frames += len(scores)
            lattice = recognizer.lattice(key, scores)
        yield data.utterances[key], scores, lattice
        began = time.perf_counter()


def _check_scores(scores: np.ndarray, key: str, num_pdfs: int) -> None:
    if scores.shape[1] != num_pdfs:
        raise RecipeError(
            f"utterance {key}: log-likelihoods of {scores.shape[1]} pdfs, the GMM has {num_pdfs}; network, GMM and "
            f"graph must come from the same run"
        )
    if not np.isfinite(scores).all():
        raise RecipeError(f"utterance {key}: its log-likelihoods are not finite")


def word_times(aligner: Aligner, key: str, scores: np.ndarray, words: tuple[str, ...]) -> list[TimedWord]:
    """Align words to the frames; of a partial path's words those at the end go that the frames have no room for."""
    for count in range(len(words), 0, -1):
        ((_, alignment),) = aligner.align([(key, scores, aligner.compile(words[:count]))])
        if alignment is not None:
            return [(words[place], start, frames) for place, start, frames in alignment.words]
    return []


def search_job(
    data: DataDir,
    scores_of: Scores | None,
    graph: BeamSearch,
    lang: Lang,
    model: HmmModel,
    conf: DecodeConf,
    best: Point | None,
    out: Path,
    features_of: Features | None = None,
    rescore: tuple[Arpa, Arpa] | None = None,
) -> None:
    """Decode ``data`` and write ``lattices.scp``, ``utterances`` and ``stats.json`` to ``out``.

    :param scores_of: a network's scores; ``None`` for the model's own, on ``features_of``. A speaker-adapted model decodes
        two times more before, for the speakers' transforms, ``fmllr.scp``.
    :param best: write ``hyp.ctm`` at this point.
    :param rescore: see :class:`Recognizer`.
    """
    stats, aligner = Stats(), Aligner(model, lang)
    transforms: dict[str, Tensor] = {}
    if scores_of is None:
        assert features_of is not None
        if model.unadapted is not None:
            began = time.perf_counter()
            best_alone = Recognizer(graph, replace(conf, lattice_beam=0.0), lang, Stats())
            transforms = adapt(model, data, features_of, best_alone, aligner)
            stats.seconds_of_adaptation = time.perf_counter() - began
            features_of = transformed(features_of, data, transforms)
        scores_of = gmm_scores(model.gmm, features_of)
    recognizer = Recognizer(graph, conf, lang, stats, rescore)
    answered: list[str] = []
    ctm: list[str] = []

    def lattices() -> Iterator[tuple[str, np.ndarray]]:
        for utterance, scores, lattice in search(data, scores_of, recognizer, model.num_pdfs):
            answered.append(utterance.id)
            if scores is not None and lattice is not None:
                yield utterance.id, lattice.matrix()
                if best is not None:
                    ctm.extend(ctm_lines(data, utterance, scores, lattice, best, recognizer, aligner))

    with atomic_dir(out) as folder:
        write_archive(folder / "lattices.scp", lattices(), lies_in=out)
        if best is not None:
            write_text(folder / "hyp.ctm", "".join(ctm))
        if transforms:
            arrays = ((speaker, transform.float().numpy()) for speaker, transform in transforms.items())
            write_archive(folder / "fmllr.scp", arrays, lies_in=out)
        write_text(folder / "utterances", "".join(f"{key}\n" for key in answered))
        write_text(folder / "stats.json", json.dumps(asdict(stats)) + "\n")
    _report(stats)


def ctm_lines(
    data: DataDir,
    utterance: Utterance,
    scores: np.ndarray,
    lattice: Lattice,
    point: Point,
    recognizer: Recognizer,
    aligner: Aligner,
) -> Iterator[str]:
    """The lines of an utterance's words, with times and confidences."""
    recording = data.recordings[utterance.recording]
    numbers, confidences = lattice.confidences(point, _CONFIDENCE_PATHS)
    timed = word_times(aligner, utterance.id, scores, recognizer.words(numbers))
    for (word, start, frames), confidence in zip(timed, confidences, strict=False):  # a partial path may lose its last words
        yield (
            f"{recording.file} {recording.side} {utterance.start + start * FRAME_SHIFT:.2f} "
            f"{frames * FRAME_SHIFT:.2f} {word} {confidence:.4f}\n"
        )


def _report(stats: Stats) -> dict[str, object]:
    audio = max(stats.frames, 1) * FRAME_SHIFT
    summary = {
        "utterances": stats.utterances,
        "hours": stats.frames * FRAME_SHIFT / 3600,
        "real_time_factor_of_likelihoods": stats.seconds_of_likelihoods / audio,
        "real_time_factor_of_search": stats.seconds_of_search / audio,
        "real_time_factor_of_lattices": stats.seconds_of_lattices / audio,
        "real_time_factor_of_adaptation": stats.seconds_of_adaptation / audio,
        "lattice_arcs_a_second": stats.arcs / audio,
        "retried": stats.retried,
        "partial": stats.partial,
        "out_of_time": stats.out_of_time,
        "without_frames": stats.without_frames,
    }
    print(f"decode: {summary}", file=sys.stderr)
    return summary


def join(data: DataDir, parts: Sequence[Path], out: Path) -> None:
    """Join the jobs' lattices, their hypotheses, sorted by side and time, and their statistics in the folder ``out``.

    :raises RecipeError: where an utterance was not decoded or was decoded twice.
    """
    answered: list[str] = []
    total = Stats()
    for part in parts:
        if not (part / "stats.json").exists():
            raise RecipeError(f"{part}: no decoded job; run the stage 'decode' again")
        answered += (part / "utterances").read_text(encoding="utf-8").splitlines()
        for name, value in json.loads((part / "stats.json").read_text(encoding="utf-8")).items():
            setattr(total, name, getattr(total, name) + value)
    if wrong := sorted(set(answered) ^ set(data.utterances)):
        raise RecipeError(f"{out}: {len(wrong)} utterances are not both in the set and decoded, the first is {wrong[0]}")
    if len(answered) != len(data.utterances):
        raise RecipeError(f"{out}: {len(answered) - len(data.utterances)} utterances were decoded twice")
    tuned = {(part / "hyp.ctm").exists() for part in parts}
    if len(tuned) > 1:
        raise RecipeError(f"{out}: some jobs have hypotheses and some have lattices alone; decode all of them again")
    with atomic_dir(out) as folder:
        if tuned == {True}:
            rows = [line.split() for part in parts for line in (part / "hyp.ctm").read_text(encoding="utf-8").splitlines()]
            rows.sort(key=lambda row: (row[0], row[1], float(row[2])))
            write_text(folder / "hyp.ctm", "".join(" ".join(row) + "\n" for row in rows))
        for name in ("lattices.scp", "fmllr.scp"):
            join_archives([part / name for part in parts], folder / name)
        write_text(folder / "stats.json", json.dumps(_report(total), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    job = commands.add_parser("search", help="decode one job's speakers")
    for name in ("--graph", "--lang", "--model", "--feats"):
        job.add_argument(name, type=Path, required=True)
    job.add_argument("--network", type=Path, help="scores the frames in place of the GMM's mixtures")
    Inputs.add_arguments(job)
    job.add_argument("--rescore", type=Path, nargs=2, metavar="ARPA", help="the graph's language model, and a larger one")
    job.add_argument("--best", type=Path, help="the scales that local.tune chose: hypotheses are written too")
    job.add_argument("--job", type=int, required=True, help="from 0")
    job.add_argument("--jobs", type=int, required=True)
    job.add_argument("--conf", required=True, help="JSON of DecodeConf")
    whole = commands.add_parser("join", help="all jobs' lattices and hypotheses as one set")
    whole.add_argument("--parts", type=Path, nargs="+", required=True)
    for command in (job, whole):
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # jobs run side by side instead
    data = DataDir.read(arguments.data)
    if arguments.command == "join":
        join(data, arguments.parts, arguments.out)
        return
    conf, lang = parse_conf(DecodeConf, arguments.conf), Lang.read(arguments.lang)
    data = data.split(arguments.jobs)[arguments.job]
    model = HmmModel.load(arguments.model)
    scores_of = features_of = None
    if arguments.network:
        inputs = Inputs.of_arguments(arguments, data, model)
        scores_of = network_scores(arguments.network, inputs, conf.device)
    else:
        features_of = gmm_features(model, data, arguments.feats)
    graph = read_graph(arguments.graph, model.num_pdfs, conf.device)
    best = Point.read(arguments.best) if arguments.best else None
    rescore = tuple(Arpa.read(path) for path in arguments.rescore) if arguments.rescore else None
    search_job(data, scores_of, graph, lang, model, conf, best, arguments.out, features_of, rescore)


if __name__ == "__main__":
    run(main)
