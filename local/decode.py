"""Decoding: the best word sequence of every utterance for a grid of acoustic scales and word insertion penalties.

    python -m local.decode search --graph graph/tri4/HCLG.fst --lang lang --model align/tri4/35/model.pt --conf '{...}' \\
        --data data/eval2000 --feats feats/eval2000 [--best best.json] --job 0 --jobs 4 --out OUT/0
    python -m local.decode search --graph graph/network/HCLG.fst --model align/network/model.pt --network train/S/final.pt \\
        --transforms decode/tri4/eval2000/all/fmllr.scp --ivectors ivectors/eval2000/ivectors.scp ...
    python -m local.decode join --data data/eval2000 --parts OUT/0 OUT/1 ... --out OUT/all
    python -m local.decode tune --scores grid.json --out best.json

A job computes the log-likelihoods of an utterance once and searches once for each point of the grid, with Viterbi beam
search (package kaldi-decoder). Word times come from aligning the words found: determinization moves the words of a
graph's path away from their frames. ``join`` gives one ``hyp.<scale>_<penalty>.ctm`` for each point.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import kaldi_decoder
import kaldifst
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
from local.graph import Fst, map_arcs
from local.hmm.align import Aligner, gmm_input
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.lexicon import Lang

_WIDER = 2  # an utterance that ends in no final state is searched again with beam and tokens times this

Features = Callable[[str], Tensor | None]  # utterance id to the GMM's features (frames, D); None: it has no frames
Scores = Callable[[str], np.ndarray | None]  # utterance id to log-likelihoods (frames, pdfs); None: it has no frames
TimedWord = tuple[str, int, int]  # word, first frame, frames


@dataclass(frozen=True)
class DecodeConf:
    """How widely the search looks, and the grid it is done for."""

    beam: float  # in scaled log-likelihood, below the best token of a frame
    max_active: int  # tokens a frame at most
    acoustic_scales: tuple[float, ...]  # factors on log-likelihoods
    insertion_penalties: tuple[float, ...]  # costs (negative log-probabilities) added to each word


class Point(NamedTuple):
    """A point of the grid."""

    acoustic_scale: float
    insertion_penalty: float

    @property
    def name(self) -> str:
        """As it stands in file names."""
        return f"{self.acoustic_scale:g}_{self.insertion_penalty:g}"

    @staticmethod
    def parse(name: str) -> Point:
        """From a :attr:`name`.

        :raises RecipeError: where it is none.
        """
        try:
            scale, penalty = name.split("_")
            return Point(float(scale), float(penalty))
        except ValueError:
            raise RecipeError(f"expected a name '<scale>_<penalty>', found {name!r}") from None


@dataclass
class Stats:
    """What a job's search came to."""

    utterances: int = 0
    frames: int = 0
    seconds_of_likelihoods: float = 0.0
    seconds_of_search: float = 0.0  # over all points
    seconds_of_adaptation: float = 0.0  # decoding for the speakers' transforms
    retried: int = 0  # searches that ended in no final state at first
    partial: int = 0  # and again with the wider beam: their best partial path was taken
    without_frames: list[str] = field(default_factory=list)


def grid(conf: DecodeConf) -> list[Point]:
    """All points.

    :raises RecipeError: for an empty grid, a scale that is not positive, a value given twice.
    """
    points = [Point(*values) for values in itertools.product(conf.acoustic_scales, conf.insertion_penalties)]
    if not points or min(conf.acoustic_scales) <= 0 or len({point.name for point in points}) < len(points):
        raise RecipeError(
            f"decode: expected different positive acoustic_scales and different insertion_penalties, found "
            f"{list(conf.acoustic_scales)}, {list(conf.insertion_penalties)}"
        )
    return points


def read_graph(path: Path, num_pdfs: int) -> Fst:
    """Read HCLG.

    :raises RecipeError: where it is missing or made for a model with more pdfs.
    """
    if not path.exists():
        raise RecipeError(f"{path}: no such graph; run the stage 'graph'")
    graph = Fst.read(str(path))
    highest = max(arc.ilabel for state in range(graph.num_states) for arc in kaldifst.ArcIterator(graph, state))
    if highest > num_pdfs:
        raise RecipeError(f"{path}: made for a model with {highest} pdfs or more, found one with {num_pdfs}")
    return graph


class Decoder:
    """Searches a graph at a fixed insertion penalty."""

    def __init__(self, graph: Fst, words: dict[int, str], penalty: float, beam: float, max_active: int) -> None:
        self.graph = kaldifst.StdConstFst(map_arcs(graph, lambda i, o, cost: (i, o, cost + penalty if o else cost)))
        self._words = words
        self._narrow = self._search(beam, max_active)
        self._wide = self._search(beam * _WIDER, max_active * _WIDER)

    def _search(self, beam: float, max_active: int) -> kaldi_decoder.FasterDecoder:
        options = kaldi_decoder.FasterDecoderOptions(beam=beam, max_active=max_active)
        return kaldi_decoder.FasterDecoder(self.graph, options)

    def decode(self, scores: np.ndarray, stats: Stats) -> tuple[str, ...]:
        """Find the best word sequence.

        :param scores: scaled log-likelihoods ``(frames, pdfs)`` float32.
        """
        decodable = kaldi_decoder.DecodableCtc(scores)
        search = self._narrow
        search.decode(decodable)
        if not search.reached_final():
            stats.retried += 1
            search = self._wide
            search.decode(decodable)
            stats.partial += not search.reached_final()
        found, path = search.get_best_path()
        if not found:
            return ()
        _, _, labels, _ = kaldifst.get_linear_symbol_sequence(path)
        return tuple(self._words[label] for label in labels)


def gmm_features(model: HmmModel, data: DataDir, feats: Path) -> Features:
    """The model's features of each utterance, before adaptation."""
    mfcc = FeatureSet(feats, "mfcc", data.utt2side)
    return lambda key: gmm_input(mfcc[key], model.projection) if key in mfcc else None


def gmm_scores(gmm: Gmm, features_of: Features) -> Scores:
    """Log-likelihoods of mixtures."""
    return lambda key: None if (x := features_of(key)) is None else gmm.log_likelihoods(x).numpy()


def transformed(features_of: Features, data: DataDir, transforms: Mapping[str, Tensor]) -> Features:
    """Features through their speakers' transforms."""

    def adapted(key: str) -> Tensor | None:
        x = features_of(key)
        return None if x is None else apply(transforms[data.utterances[key].speaker], x)

    return adapted


def adapt(
    model: HmmModel, data: DataDir, features_of: Features, decoder: Decoder, aligner: Aligner, scale: float
) -> dict[str, Tensor]:
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
                words = decoder.decode(scores * np.float32(scale), Stats())
                ((_, alignment),) = aligner.align([(key, scores, aligner.compile(words))])
                if alignment is not None:
                    features.append(x)
                    pdf_ids.append(torch.from_numpy(alignment.pdf_ids).long())
            transform = speaker_transform(model, features, pdf_ids, transform)
        transforms[speaker] = transform
    return transforms


def search(
    data: DataDir,
    scores_of: Scores,
    decoders: dict[float, Decoder],
    points: Sequence[Point],
    aligner: Aligner,
    stats: Stats,
) -> Iterator[tuple[Utterance, dict[Point, list[TimedWord]]]]:
    """Decode every utterance at every point; one without frames has no words.

    :param decoders: by insertion penalty.
    :param stats: what is counted on the way.
    """
    for key, utterance in tqdm(data.utterances.items(), desc="decode", mininterval=2):
        stats.utterances += 1
        began = time.perf_counter()
        scores = scores_of(key)
        if scores is None:
            stats.without_frames.append(key)
            yield utterance, {point: [] for point in points}
            continue
        _check_scores(scores, key, aligner.model.num_pdfs)
        searched = time.perf_counter()
        found = {
            point: decoders[point.insertion_penalty].decode(scores * np.float32(point.acoustic_scale), stats)
            for point in points
        }
        stats.frames += len(scores)
        stats.seconds_of_likelihoods += searched - began
        stats.seconds_of_search += time.perf_counter() - searched
        timed = {words: word_times(aligner, key, scores, words) for words in dict.fromkeys(found.values())}
        yield utterance, {point: timed[words] for point, words in found.items()}


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
    graph: Fst,
    lang: Lang,
    model: HmmModel,
    conf: DecodeConf,
    points: Sequence[Point],
    out: Path,
    features_of: Features | None = None,
) -> None:
    """Decode ``data`` and write a ctm for each point, ``utterances`` and ``stats.json`` to ``out``.

    :param scores_of: a network's scores; ``None`` for the model's own, on ``features_of``. A speaker-adapted model decodes
        two times more before, at the middle point of the grid, for the speakers' transforms, ``fmllr.scp``.
    """
    names = {number: word for word, number in lang.words.items()}
    decoders = {
        penalty: Decoder(graph, names, penalty, conf.beam, conf.max_active)
        for penalty in dict.fromkeys(point.insertion_penalty for point in points)
    }
    stats, aligner = Stats(), Aligner(model, lang)
    transforms: dict[str, Tensor] = {}
    if scores_of is None:
        assert features_of is not None
        if model.unadapted is not None:
            scale, penalty = (sorted(set(axis))[(len(set(axis)) - 1) // 2] for axis in zip(*points, strict=True))
            began = time.perf_counter()
            transforms = adapt(model, data, features_of, decoders[penalty], aligner, scale)
            stats.seconds_of_adaptation = time.perf_counter() - began
            features_of = transformed(features_of, data, transforms)
        scores_of = gmm_scores(model.gmm, features_of)
    results = search(data, scores_of, decoders, points, aligner, stats)
    with atomic_dir(out) as folder:
        files = {point: open(folder / f"hyp.{point.name}.ctm", "w", encoding="utf-8") for point in points}  # noqa: SIM115
        answered = []
        for utterance, hypotheses in results:
            recording = data.recordings[utterance.recording]
            for point, words in hypotheses.items():
                for word, start, frames in words:
                    files[point].write(
                        f"{recording.file} {recording.side} {utterance.start + start * FRAME_SHIFT:.2f} "
                        f"{frames * FRAME_SHIFT:.2f} {word} 1.00\n"
                    )
            answered.append(utterance.id)
        if transforms:
            arrays = ((speaker, transform.float().numpy()) for speaker, transform in transforms.items())
            write_archive(folder / "fmllr.scp", arrays, lies_in=out)
        for file in files.values():
            file.close()
        write_text(folder / "utterances", "".join(f"{key}\n" for key in answered))
        write_text(folder / "stats.json", json.dumps(asdict(stats)) + "\n")
    _report(stats, len(points))


def _report(stats: Stats, points: int) -> dict[str, float]:
    audio = max(stats.frames, 1) * FRAME_SHIFT
    summary = {
        "utterances": stats.utterances,
        "hours": stats.frames * FRAME_SHIFT / 3600,
        "points": points,
        "real_time_factor_of_likelihoods": stats.seconds_of_likelihoods / audio,
        "real_time_factor_of_search": stats.seconds_of_search / audio / points,
        "real_time_factor_of_adaptation": stats.seconds_of_adaptation / audio,
        "retried": stats.retried,
        "partial": stats.partial,
        "without_frames": stats.without_frames,
    }
    print(f"decode: {summary}", file=sys.stderr)
    return summary


def join(data: DataDir, parts: Sequence[Path], out: Path) -> None:
    """Join the jobs' ctm files, sorted by side and time, and their statistics in the folder ``out``.

    :raises RecipeError: where an utterance was not decoded, was decoded twice, or the jobs' grids differ.
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
    grids = [sorted(path.name for path in part.glob("hyp.*.ctm")) for part in parts]
    if any(names != grids[0] for names in grids):
        raise RecipeError(f"{out}: the jobs were decoded for different grids; decode all of them again")
    with atomic_dir(out) as folder:
        for name in grids[0]:
            rows = [line.split() for part in parts for line in (part / name).read_text(encoding="utf-8").splitlines()]
            rows.sort(key=lambda row: (row[0], row[1], float(row[2])))
            write_text(folder / name, "".join(" ".join(row) + "\n" for row in rows))
        join_archives([part / "fmllr.scp" for part in parts], folder / "fmllr.scp")
        write_text(folder / "stats.json", json.dumps(_report(total, len(grids[0])), indent=1) + "\n")


def choose(errors: dict[Point, int]) -> tuple[Point, bool]:
    """Return the point with the fewest errors, and whether it lies on the grid's edge.

    Of equal ones the nearest to the middle of the grid is taken: a tie is no reason to go to an edge.
    """
    axes = [sorted({point[axis] for point in errors}) for axis in range(2)]

    def off_centre(point: Point) -> float:
        return sum(
            abs(2 * values.index(value) - len(values) + 1) / len(values) for values, value in zip(axes, point, strict=True)
        )

    best = min(errors, key=lambda point: (errors[point], off_centre(point), point))
    edge = any(len(values) > 1 and value in (values[0], values[-1]) for values, value in zip(axes, best, strict=True))
    return best, edge


def tune(scores: Path, out: Path) -> None:
    """Write the best point of the grid, its word error rate in percent and whether it lies on the grid's edge.

    :param scores: JSON of the counts of each point: ``{"<scale>_<penalty>": {"N": ..., "sub": ..., "del": ..., "ins": ...}}``.
    """
    counts = {Point.parse(name): values for name, values in json.loads(scores.read_text(encoding="utf-8")).items()}
    errors = {point: values["sub"] + values["del"] + values["ins"] for point, values in counts.items()}
    best, edge = choose(errors)
    wer = 100 * errors[best] / counts[best]["N"]
    if edge:
        print(f"warning: {best} is best (WER {wer:.2f} %), on the edge of the grid: widen it", file=sys.stderr)
    write_text(out, json.dumps({**best._asdict(), "wer": wer, "edge": edge}) + "\n")


def _best(path: Path) -> list[Point]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Point(content["acoustic_scale"], content["insertion_penalty"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    job = commands.add_parser("search", help="decode one job's speakers")
    for name in ("--graph", "--lang", "--model", "--feats"):
        job.add_argument(name, type=Path, required=True)
    job.add_argument("--network", type=Path, help="scores the frames in place of the GMM's mixtures")
    Inputs.add_arguments(job)
    job.add_argument("--best", type=Path, help="the one point to decode for, as 'tune' wrote it; else the whole grid")
    job.add_argument("--job", type=int, required=True, help="from 0")
    job.add_argument("--jobs", type=int, required=True)
    job.add_argument("--conf", required=True, help="JSON of DecodeConf")
    whole = commands.add_parser("join", help="all jobs' hypotheses as one set")
    whole.add_argument("--parts", type=Path, nargs="+", required=True)
    for command in (job, whole):
        command.add_argument("--data", type=Path, required=True)
    tuning = commands.add_parser("tune", help="choose the best point by its score")
    tuning.add_argument("--scores", type=Path, required=True)
    for command in (job, whole, tuning):
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "tune":
        tune(arguments.scores, arguments.out)
        return
    data = DataDir.read(arguments.data)
    if arguments.command == "join":
        join(data, arguments.parts, arguments.out)
        return
    conf = parse_conf(DecodeConf, arguments.conf)
    torch.set_num_threads(1)  # jobs run side by side instead
    points = _best(arguments.best) if arguments.best else grid(conf)
    data = data.split(arguments.jobs)[arguments.job]
    model = HmmModel.load(arguments.model)
    scores_of = features_of = None
    if arguments.network:
        scores_of = network_scores(arguments.network, Inputs.of_arguments(arguments, data, model))
    else:
        features_of = gmm_features(model, data, arguments.feats)
    graph = read_graph(arguments.graph, model.num_pdfs)
    search_job(data, scores_of, graph, Lang.read(arguments.lang), model, conf, points, arguments.out, features_of)


if __name__ == "__main__":
    run(main)
