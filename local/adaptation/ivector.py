"""I-vectors: a conversation side's speaker and channel as the coordinates of its Gaussians' shift from those of all.

    torchrun --nproc-per-node 4 -m local.adaptation.ivector train --model align/lda/model.pt --data D --feats F \\
        --conf '{...}' --out ivector/extractor.pt
    python -m local.adaptation.ivector extract --extractor ivector/extractor.pt --model align/lda/model.pt --data D --feats F \\
        --job 0 --jobs 4 --out ivectors/0
    python -m local.adaptation.ivector join --data D --parts ivectors/0 ivectors/1 ... --out ivectors

A frame x of Gaussian c is N(m_c + T_c w, Sigma_c) with w ~ N(0, I); the i-vector is the posterior mean of w (Dehak et al.
2011, "Front-end factor analysis for speaker verification"; EM as in Kenny et al. 2005, "Eigenvoice modeling with sparse
training data", with minimum divergence as in Kenny 2008, "A study of interspeaker variability"). As in Kaldi's nnet3
recipes a mixture of mean-normalised frames, the UBM, shares frames out, and the frames themselves are not normalised: the
side's mean tells of its speaker and channel.

Shapes: C Gaussians, D dimensions of a frame, R of an i-vector, B pieces of speech.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir
from local.features import FRAME_SHIFT, FeatureSet
from local.files import join_archives, read_archive, write_archive, write_text
from local.hmm.align import gmm_input
from local.hmm.gmm import Gmm, GmmStats
from local.hmm.model import HmmModel
from local.saved import save, saved
from local.team import Team, added

_VARIANCE_FLOOR = 0.01  # of the frames' overall variance
_MIN_OCCUPANCY = 5.0  # frames below which a Gaussian of the UBM is given up
_UBM_FRAMES = 2_000_000  # of all processes together: the UBM learns from about so many, evenly spread
_FRAMES_AT_ONCE = 4096  # bounds the memory of the (frames, Gaussians) block
_PIECES_AT_ONCE = 128  # bounds that of the (pieces, Gaussians, dimensions) block
_START = 0.1  # standard deviations by which a coordinate of w moves a mean at first


@dataclass(frozen=True)
class IvectorConf:
    """How the extractor is trained."""

    gaussians: int  # of the UBM
    dims: int  # of an i-vector
    ubm_iterations: int  # EM of the UBM; in the first half it grows
    iterations: int  # EM of the total-variability matrix
    posterior_scale: float  # of a frame's counts: neighbouring frames are not independent; Kaldi's is 0.1
    piece_seconds: float  # a side is trained on in pieces of at least so much speech: a small corpus has few sides
    seed: int


class Posterior(NamedTuple):
    """What pieces of speech say of w."""

    mean: Tensor  # (B, R) float64
    covariance: Tensor  # (B, R, R) float64
    log_likelihood: Tensor  # (B,) float64: marginal, of the frames given their Gaussians, less that under N(0, Sigma_c)


@dataclass
class IvectorStats:
    """Sums over pieces of speech, for a new matrix: they add up over processes."""

    quadratic: Tensor  # (C, R, R) float64: N_c E[w w^T]
    cross: Tensor  # (C, D, R) float64: (F_c - N_c m_c) E[w]^T
    mean: Tensor  # (R,) float64: E[w]
    second: Tensor  # (R, R) float64: E[w w^T]
    log_likelihood: float
    frames: float  # scaled
    pieces: int


@dataclass
class IvectorExtractor:
    """UBM and total-variability model."""

    ubm: Gmm  # one pdf, of normalised frames
    means: Tensor  # (C, D) float64: m_c, of frames that are not normalised
    variances: Tensor  # (C, D) float64: the diagonals of Sigma_c
    matrix: Tensor  # (C, D, R) float64: T_c
    posterior_scale: float

    @property
    def dims(self) -> int:
        """R."""
        return self.matrix.shape[2]

    @cached_property
    def _weighted(self) -> Tensor:
        """Sigma_c^-1 T_c, ``(C, D, R)``."""
        return self.matrix / self.variances[:, :, None]

    @cached_property
    def _information(self) -> Tensor:
        """T_c^T Sigma_c^-1 T_c, ``(C, R * R)``."""
        return (self.matrix.transpose(1, 2) @ self._weighted).flatten(1)

    def posterior(self, occupancy: Tensor, first: Tensor) -> Posterior:
        """Condition w on pieces of speech; without frames it keeps its prior N(0, I).

        :param occupancy: N_c, frames of each Gaussian, ``(B, C)``.
        :param first: F_c, their sums, not normalised, ``(B, C, D)``.
        """
        occupancy, first = (self.posterior_scale * sums.double() for sums in (occupancy, first))
        residual = first - occupancy[:, :, None] * self.means
        precision = (occupancy @ self._information).view(-1, self.dims, self.dims)
        precision.diagonal(dim1=1, dim2=2).add_(1)
        linear = residual.flatten(1) @ self._weighted.flatten(0, 1)
        factor = torch.linalg.cholesky(precision)
        covariance = torch.cholesky_inverse(factor)
        mean = (covariance @ linear[:, :, None]).squeeze(2)
        # under the means alone, then what w adds: the logarithm of the ratio of its prior and posterior at w = 0
        log_likelihood = ((first + residual) * (self.means / self.variances)).sum((1, 2)) / 2
        log_likelihood += (linear * mean).sum(1) / 2 - factor.diagonal(dim1=1, dim2=2).log().sum(1)
        return Posterior(mean, covariance, log_likelihood)

    def accumulate(self, occupancy: Tensor, first: Tensor) -> IvectorStats:
        """E step over pieces, given as to :meth:`posterior`."""
        gaussians, dims, rank = self.matrix.shape
        stats = IvectorStats(
            torch.zeros(gaussians, rank, rank, dtype=torch.float64),
            torch.zeros(gaussians, dims, rank, dtype=torch.float64),
            torch.zeros(rank, dtype=torch.float64),
            torch.zeros(rank, rank, dtype=torch.float64),
            0.0,
            self.posterior_scale * float(occupancy.sum(dtype=torch.float64)),
            len(occupancy),
        )
        for some, sums in zip(occupancy.split(_PIECES_AT_ONCE), first.split(_PIECES_AT_ONCE), strict=True):
            some, sums = some.double(), sums.double()
            mean, covariance, log_likelihood = self.posterior(some, sums)
            second = covariance + mean[:, :, None] * mean[:, None, :]
            residual = sums - some[:, :, None] * self.means
            stats.quadratic += (some.T @ second.flatten(1)).view_as(stats.quadratic)
            stats.cross += (residual.flatten(1).T @ mean).view_as(stats.cross)
            stats.mean += mean.sum(0)
            stats.second += second.sum(0)
            stats.log_likelihood += float(log_likelihood.sum())
        return stats

    def updated(self, stats: IvectorStats) -> IvectorExtractor:
        """M step: the matrix, then minimum divergence, by which w has mean zero and covariance one over the pieces."""
        matrix = torch.linalg.solve(stats.quadratic, stats.cross.transpose(1, 2)).transpose(1, 2)
        mean = stats.mean / stats.pieces
        factor = torch.linalg.cholesky(stats.second / stats.pieces - torch.outer(mean, mean))
        return replace(self, means=self.means + matrix @ mean, matrix=matrix @ factor)

    def save(self, path: str | Path) -> None:
        """Write the extractor, whole or not at all."""
        content = {
            "ubm": self.ubm.tensors,
            "means": self.means,
            "variances": self.variances,
            "matrix": self.matrix,
            "posterior_scale": self.posterior_scale,
        }
        save(path, content)

    @staticmethod
    def load(path: str | Path) -> IvectorExtractor:
        """Read what :meth:`save` has written.

        :raises RecipeError: where the file is no such extractor.
        """
        with saved(path, "i-vector extractor", "ivectors") as content:
            parts = (content[name] for name in ("means", "variances", "matrix", "posterior_scale"))
            return IvectorExtractor(Gmm(*content["ubm"]), *parts)


def gmm_stats(ubm: Gmm, features: Tensor, seen: Tensor | None = None) -> GmmStats:
    """The sums of frames ``(T, D)``, T at least 1, that the UBM shares out by ``seen`` ``(T, D)`` where that is given."""
    blocks = zip(features.split(_FRAMES_AT_ONCE), (features if seen is None else seen).split(_FRAMES_AT_ONCE), strict=True)
    pdfs = torch.zeros(min(len(features), _FRAMES_AT_ONCE), dtype=torch.int64)
    return added(ubm.accumulate(x, pdfs[: len(x)], None if seen is None else y) for x, y in blocks)


def train_ubm(team: Team, frames: Tensor, conf: IvectorConf, log: list[dict[str, Any]]) -> Gmm:
    """A mixture of this process's normalised frames ``(T, D)`` and the others'; ``log`` gets a line an iteration."""
    dims = frames.shape[1]
    whole = team.total(gmm_stats(Gmm(torch.ones(1), torch.zeros(1, dims), torch.ones(1, dims), torch.tensor([1])), frames))
    ubm = Gmm.single(torch.cat([whole.occupancy[:, None], whole.first, whole.second], 1), torch.zeros(dims))
    floor = _VARIANCE_FLOOR * ubm.variances[0]
    growing = max(conf.ubm_iterations // 2, 1)
    for iteration in tqdm(range(1, conf.ubm_iterations + 1), desc="UBM", disable=not team.leads):
        stats = team.total(gmm_stats(ubm, frames))
        log.append(
            {
                "part": "ubm",
                "iteration": iteration,
                "log_likelihood_per_frame": stats.log_likelihood / stats.frames,
                "frames": stats.frames,
                "gaussians": ubm.num_gaussians,
            }
        )
        ubm = team.decide(None, lambda _, now=ubm, sums=stats: now.updated(sums, floor, _MIN_OCCUPANCY))
        if iteration <= growing:
            ubm = ubm.split(torch.tensor([round(conf.gaussians ** (iteration / growing))]))
    return ubm


def train_matrix(
    team: Team, extractor: IvectorExtractor, occupancy: Tensor, first: Tensor, conf: IvectorConf, log: list[dict[str, Any]]
) -> IvectorExtractor:
    """EM from ``extractor`` on this process's pieces and the others', given as to :meth:`IvectorExtractor.posterior`.

    :raises RecipeError: where the pieces are no more than the i-vector's dimensions.
    """
    for iteration in tqdm(range(1, conf.iterations + 1), desc="matrix", disable=not team.leads):
        stats = team.total(extractor.accumulate(occupancy, first))
        if stats.pieces <= conf.dims:
            raise RecipeError(
                f"{stats.pieces} pieces of speech for i-vectors of {conf.dims} dimensions: take fewer dims, or "
                f"piece_seconds below {conf.piece_seconds:g}"
            )
        log.append(
            {
                "part": "matrix",
                "iteration": iteration,
                "log_likelihood_per_frame": stats.log_likelihood / stats.frames,
                "pieces": stats.pieces,
            }
        )
        extractor = team.decide(None, lambda _, now=extractor, sums=stats: now.updated(sums))
    return extractor


def pieces(data: DataDir, features: Mapping[str, Any], seconds: float) -> Iterator[list[str]]:
    """The utterances, of those that have features, of each side in pieces of at least ``seconds``, or the side as a whole."""
    for ids in data.sides.values():
        found: list[list[str]] = [[]]
        length = 0.0
        for key in filter(features.__contains__, ids):
            if length >= seconds:
                found.append([])
                length = 0.0
            found[-1].append(key)
            length += data.utterances[key].duration
        if length < seconds and len(found) > 1:
            rest = found.pop()
            found[-1] += rest
        yield from filter(None, found)


def read_frames(features: FeatureSet, keys: Sequence[str], projection: Tensor | None) -> tuple[Tensor, Tensor]:
    """The frames of utterances, as they are and mean-normalised, both ``(T, D)``."""
    plain = torch.cat([gmm_input(features.raw(key), projection) for key in keys])
    return plain, torch.cat([gmm_input(features[key], projection) for key in keys])


def train(team: Team, model: HmmModel, data: Path, feats: Path, conf: IvectorConf) -> tuple[IvectorExtractor, list[dict]]:
    """Train UBM and extractor on the set ``data``, each process with its own speakers.

    :return: the extractor and the log: a line an iteration, with the log-likelihood before it; the matrix's is that less
        what the matrix does not change.
    :raises RecipeError: where there is too little speech.
    """
    share = team.share(lambda: DataDir.read(data))
    features = FeatureSet(feats, "mfcc", share.utt2side)
    seconds = team.total(torch.tensor(sum(utterance.duration for utterance in share.utterances.values())))
    step = max(round(float(seconds) / FRAME_SHIFT / _UBM_FRAMES), 1)
    if not len(features):
        raise RecipeError(f"{feats}: no features of {', '.join(list(share.speakers)[:5])}, one process's speakers; take fewer")
    log: list[dict[str, Any]] = []
    frames = torch.cat([gmm_input(features[key], model.projection) for key in list(features)[::step]])
    ubm = train_ubm(team, frames, conf, log)

    mine = list(pieces(share, features, conf.piece_seconds))
    occupancy = torch.empty(len(mine), ubm.num_gaussians)
    first = torch.empty(len(mine), *ubm.means.shape)
    whole: GmmStats | None = None
    for place, keys in enumerate(tqdm(mine, desc="statistics", disable=not team.leads)):
        stats = gmm_stats(ubm, *read_frames(features, keys, model.projection))
        occupancy[place], first[place] = stats.occupancy, stats.first
        whole = stats if whole is None else whole + stats
    whole = team.total(whole)
    extractor = team.decide(None, lambda _: first_extractor(ubm, whole, conf))
    return train_matrix(team, extractor, occupancy, first, conf, log), log


def first_extractor(ubm: Gmm, whole: GmmStats, conf: IvectorConf) -> IvectorExtractor:
    """Means and variances from all frames' sums, not normalised, and a random matrix."""
    frames = whole.occupancy.sum()
    spread = whole.second.sum(0) / frames - (whole.first.sum(0) / frames) ** 2
    plain = ubm.updated(whole, _VARIANCE_FLOOR * spread, 0.0)
    means, variances = plain.means.double(), plain.variances.double()
    noise = torch.randn(*means.shape, conf.dims, dtype=torch.float64, generator=torch.Generator().manual_seed(conf.seed))
    return IvectorExtractor(ubm, means, variances, _START * variances.sqrt()[:, :, None] * noise, conf.posterior_scale)


def extract(extractor: IvectorExtractor, model: HmmModel, data: DataDir, feats: Path, out: Path) -> None:
    """Write the i-vector of each side of ``data`` to ``out/ivectors.scp``: float32 ``(R,)``; zero for one without frames.

    :raises RecipeError: where the extractor was made for other frames than the model's.
    """
    dims, expected = model.gmm.means.shape[1], extractor.means.shape[1]
    if dims != expected:
        raise RecipeError(f"the extractor is for frames of {expected} dimensions, the model's have {dims}: train one with it")
    features = FeatureSet(feats, "mfcc", data.utt2side)
    vectors = {}
    for side, ids in tqdm(data.sides.items(), desc="i-vectors", mininterval=2):
        occupancy, first = torch.zeros(extractor.means.shape[:1]), torch.zeros(extractor.means.shape)
        if keys := [key for key in ids if key in features]:
            stats = gmm_stats(extractor.ubm, *read_frames(features, keys, model.projection))
            occupancy, first = stats.occupancy, stats.first
        else:
            print(f"warning: side {side} has no frames: its i-vector is zero", file=sys.stderr)
        vectors[side] = extractor.posterior(occupancy[None], first[None]).mean[0].float().numpy()
    write_archive(out / "ivectors.scp", vectors.items())


def join(data: DataDir, parts: Sequence[Path], out: Path) -> None:
    """Join the jobs' indices into ``out``.

    :raises RecipeError: where a side of ``data`` has no i-vector, or more than one.
    """
    join_archives([part / "ivectors.scp" for part in parts], out / "ivectors.scp")
    read_archive(out / "ivectors.scp", expected=data.sides)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="UBM and total-variability matrix")
    training.add_argument("--conf", required=True, help="JSON of IvectorConf")
    job = commands.add_parser("extract", help="the i-vectors of one job's sides")
    job.add_argument("--extractor", type=Path, required=True)
    job.add_argument("--job", type=int, required=True, help="from 0")
    job.add_argument("--jobs", type=int, required=True)
    whole = commands.add_parser("join", help="all jobs' i-vectors as one set")
    whole.add_argument("--parts", type=Path, nargs="+", required=True)
    for command in (training, job):
        command.add_argument("--model", type=Path, required=True, help="whose features are taken")
        command.add_argument("--feats", type=Path, required=True)
    for command in (training, job, whole):
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # processes run side by side instead
    if options.command == "join":
        join(DataDir.read(options.data), options.parts, options.out)
    elif options.command == "extract":
        share = DataDir.read(options.data).split_sides(options.jobs)[options.job]
        extractor, model = IvectorExtractor.load(options.extractor), HmmModel.load(options.model)
        extract(extractor, model, share, options.feats, options.out)
    else:
        conf = parse_conf(IvectorConf, options.conf)
        with Team.join() as team:
            extractor, log = train(team, HmmModel.load(options.model), options.data, options.feats, conf)
            if team.leads:
                write_text(options.out.with_name("log.jsonl"), "".join(json.dumps(line) + "\n" for line in log))
                extractor.save(options.out)


if __name__ == "__main__":
    run(main)
