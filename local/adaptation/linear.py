"""Linear transforms of features: LDA, MLLT (semi-tied covariances) and fMLLR, each from sums that add up over jobs.

Sources: LDA as in Haeb-Umbach and Ney 1992; MLLT, Gales 1999, "Semi-tied covariance matrices for hidden Markov models";
fMLLR, Gales 1998, "Maximum likelihood linear transformations for HMM-based speech recognition" (constrained MLLR).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from local.cli import RecipeError
from local.hmm.gmm import Gmm

_SWEEPS = 30  # over the rows of a transform, each row given the others
_FLAT = 1e-6  # of the largest eigenvalue of the frames' second moments: a direction without any spread, as of dead channels
_NO_GAIN = 1e-6  # of log-likelihood a frame
_FRAMES_AT_ONCE = 512  # so that their products fit into the cache
MIN_FRAMES = 500.0  # of speech: a speaker with fewer is not adapted, as in Kaldi


@dataclass
class LdaStats:
    """Sums over frames by class."""

    counts: Tensor  # (C,) float64
    sums: Tensor  # (C, D) float64
    second: Tensor  # (D, D) float64: sum of x x^T over all classes

    @staticmethod
    def of(frames: Tensor, classes: Tensor, num_classes: int) -> LdaStats:
        """The sums of frames ``(T, D)`` whose classes are ``(T,)``."""
        x = frames.double()
        counts = torch.bincount(classes, minlength=num_classes).double()
        sums = torch.zeros(num_classes, x.shape[1], dtype=torch.float64).index_add_(0, classes, x)
        return LdaStats(counts, sums, x.T @ x)

    def __add__(self, other: LdaStats) -> LdaStats:
        return LdaStats(self.counts + other.counts, self.sums + other.sums, self.second + other.second)


def lda(stats: LdaStats, dims: int) -> Tensor:
    """The directions that tell classes apart best: ``(dims, D)``, in which the mean covariance within classes is one.

    :raises RecipeError: where there are too few frames or classes.
    """
    if dims > stats.sums.shape[1]:
        raise RecipeError(f"gmm.tri3.dims: expected at most the {stats.sums.shape[1]} dimensions spliced, found {dims}")
    total, seen = stats.counts.sum(), stats.counts > 0
    if int(seen.sum()) <= 1 or total <= stats.sums.shape[1]:
        raise RecipeError(
            f"LDA of {stats.sums.shape[1]} dimensions from {int(total)} frames of {int(seen.sum())} classes: too few"
        )
    means = stats.sums[seen] / stats.counts[seen, None]
    mean = stats.sums.sum(0) / total
    weighted = means * (stats.counts[seen, None] / total)
    between = weighted.T @ means - torch.outer(mean, mean)
    within = stats.second / total - weighted.T @ means
    within.diagonal().add_(1e-9 * within.diagonal().mean())
    factor = torch.linalg.cholesky(within)
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    whitened = torch.linalg.solve_triangular(factor, half.T, upper=False)
    _, vectors = torch.linalg.eigh((whitened + whitened.T) / 2)
    rows = torch.linalg.solve_triangular(factor.T, vectors.flip(1)[:, :dims], upper=True).T
    return rows * rows.gather(1, rows.abs().argmax(1, keepdim=True)).sign()  # an eigenvector's sign is arbitrary


@dataclass
class MlltStats:
    """Sums for a transform of all features: G_i = sum over Gaussians of scatter / variance_i."""

    quadratic: Tensor  # (D, D, D) float64
    frames: float

    @staticmethod
    def of(gmm: Gmm, frames: Tensor, pdf_ids: Tensor) -> MlltStats:
        """The sums of frames ``(T, D)`` with their pdf-ids ``(T,)``."""
        dims = frames.shape[1]
        quadratic = torch.zeros(dims, dims * dims, dtype=torch.float64)
        for mine, places, posteriors in gmm.by_pdf(frames, pdf_ids):
            means, precisions = gmm.means[mine].double(), 1 / gmm.variances[mine].double()
            x, posteriors = frames[places].double(), posteriors.double()
            first = posteriors.T @ x
            scatter = torch.stack([(x * weight[:, None]).T @ x for weight in posteriors.T])
            cross = torch.einsum("md,me->mde", means, first)
            own = torch.einsum("m,md,me->mde", posteriors.sum(0), means, means)
            scatter += own - cross - cross.transpose(1, 2)
            quadratic += precisions.T @ scatter.flatten(1)
        return MlltStats(quadratic.view(dims, dims, dims), float(len(frames)))

    def __add__(self, other: MlltStats) -> MlltStats:
        return MlltStats(self.quadratic + other.quadratic, self.frames + other.frames)

    def objective(self, transform: Tensor) -> float:
        """Log-likelihood a frame, up to a constant, if features and means are multiplied by ``transform``."""
        a = transform.double()
        spread = torch.einsum("id,ide,ie->", a, self.quadratic, a)
        return float(torch.linalg.slogdet(a).logabsdet - spread / (2 * self.frames))


def mllt(stats: MlltStats) -> Tensor:
    """The square transform ``(D, D)`` of features and means that makes diagonal covariances fit best."""
    dims = len(stats.quadratic)
    a = torch.eye(dims, dtype=torch.float64)
    inverse = torch.linalg.inv(stats.quadratic)
    for _ in range(_SWEEPS):
        for i in range(dims):
            cofactor = torch.linalg.inv(a)[:, i]  # up to the determinant, which the scale below takes in
            direction = inverse[i] @ cofactor
            a[i] = direction * torch.sqrt(stats.frames / (cofactor @ direction))
    return a


@dataclass
class FmllrStats:
    """Sums of a speaker for the affine transform W of the features, x -> W [x, 1]."""

    linear: Tensor  # (D, D + 1) float64
    quadratic: Tensor  # (D, D + 1, D + 1) float64
    frames: float

    @staticmethod
    def of(
        gmm: Gmm, frames: Tensor, pdf_ids: Tensor, posteriors_of: Gmm | None = None, transformed: Tensor | None = None
    ) -> FmllrStats:
        """The sums of frames ``(T, D)`` with their pdf-ids ``(T,)``.

        :param posteriors_of: a model with the same Gaussians for other features, by which frames are shared out.
        :param transformed: the frames as the sharing model sees them, where they are not ``frames``.
        """
        dims = frames.shape[1]
        stats = FmllrStats(
            torch.zeros(dims, dims + 1, dtype=torch.float64),
            torch.zeros(dims, dims + 1, dims + 1, dtype=torch.float64),
            float(len(frames)),
        )
        weight = torch.zeros(len(frames), dims)
        target = torch.zeros(len(frames), dims)
        sharing = posteriors_of or gmm
        for mine, places, posteriors in sharing.by_pdf(frames if transformed is None else transformed, pdf_ids):
            precisions = 1 / gmm.variances[mine]
            weight[places] = posteriors @ precisions
            target[places] = posteriors @ (gmm.means[mine] * precisions)
        for x, a, b in zip(
            frames.split(_FRAMES_AT_ONCE), weight.split(_FRAMES_AT_ONCE), target.split(_FRAMES_AT_ONCE), strict=True
        ):
            extended = torch.cat([x, torch.ones(len(x), 1)], 1)
            stats.linear += (b.T @ extended).double()
            outer = (extended[:, :, None] * extended[:, None, :]).flatten(1)
            stats.quadratic += (a.T @ outer).double().view(dims, dims + 1, dims + 1)
        return stats

    def __add__(self, other: FmllrStats) -> FmllrStats:
        return FmllrStats(self.linear + other.linear, self.quadratic + other.quadratic, self.frames + other.frames)

    def objective(self, transform: Tensor) -> float:
        """Log-likelihood a frame, up to a constant, under ``transform`` ``(D, D + 1)``."""
        w = transform.double()
        fit = (w * self.linear).sum() - torch.einsum("id,ide,ie->", w, self.quadratic, w) / 2
        return float(torch.linalg.slogdet(w[:, :-1]).logabsdet + fit / self.frames)


def identity_transform(dims: int) -> Tensor:
    """The affine transform that changes nothing, ``(D, D + 1)`` float64."""
    return torch.cat([torch.eye(dims, dtype=torch.float64), torch.zeros(dims, 1, dtype=torch.float64)], 1)


def fmllr(stats: FmllrStats, min_frames: float, start: Tensor | None = None) -> Tensor:
    """The affine transform ``(D, D + 1)`` of a speaker's features that the model likes best; identity below ``min_frames``.

    Row by row: w_i = (c p_i + k_i) G_i^-1, p_i the cofactors of row i, c the root of a quadratic that gives more; until a
    sweep over the rows gains next to nothing.
    """
    dims = len(stats.linear)
    if stats.frames < min_frames:
        return identity_transform(dims)
    spread = torch.linalg.eigvalsh(stats.quadratic.sum(0))
    if not spread[0] > _FLAT * spread[-1]:
        print(f"warning: {stats.frames:.0f} frames of one speaker do not fill {dims} dimensions: not adapted", file=sys.stderr)
        return identity_transform(dims)
    w = identity_transform(dims) if start is None else start.double().clone()
    quadratic = stats.quadratic.clone()
    quadratic.diagonal(dim1=1, dim2=2).add_(1e-8 * quadratic.diagonal(dim1=1, dim2=2).mean(1, keepdim=True))
    inverse = torch.linalg.inv(quadratic)
    towards = torch.einsum("ide,ie->id", inverse, stats.linear).numpy()
    inverses, linear, rows = inverse.numpy(), stats.linear.numpy(), w.numpy()  # which share their memory
    before = stats.objective(w)
    for _ in range(_SWEEPS):
        turned = np.linalg.inv(rows[:, :-1])
        for i in range(dims):
            cofactors = turned[:, i].copy()  # up to the determinant, which c takes in
            pg = inverses[i, :, :-1] @ cofactors
            a, b = cofactors @ pg[:-1], linear[i] @ pg
            # c maximises frames * log |c a + b| - a c^2 / 2
            root = math.sqrt(b * b + 4 * a * stats.frames)
            c = max(
                ((sign * root - b) / (2 * a) for sign in (1, -1)),
                key=lambda c: stats.frames * math.log(abs(c * a + b)) - a * c * c / 2,
            )
            change = c * pg + towards[i] - rows[i]
            rows[i] += change
            turned -= np.outer(cofactors, change[:-1] @ turned) / (1 + change[:-1] @ cofactors)  # Sherman and Morrison
        now = stats.objective(w)
        if now - before < _NO_GAIN:
            break
        before = now
    return w


def apply(transform: Tensor, frames: Tensor) -> Tensor:
    """``(T, D)`` to ``(T, D')`` by a matrix ``(D', D)`` or an affine transform ``(D', D + 1)``."""
    matrix = transform.float()
    if matrix.shape[1] == frames.shape[1]:
        return frames @ matrix.T
    return frames @ matrix[:, :-1].T + matrix[:, -1]
