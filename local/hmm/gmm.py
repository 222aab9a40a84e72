"""Diagonal Gaussian mixtures, one a tied state: likelihoods, statistics that add up over jobs, re-estimation, growing.

Shapes: P tied states (pdf-ids), G Gaussians over all of them, D dimensions. A pdf's Gaussians lie next to each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_LOG_2PI = math.log(2 * math.pi)
_FRAMES_AT_ONCE = 512  # bounds the memory of the (frames, pdfs, Gaussians) block
_SPLIT_STEP = 0.2  # standard deviations either way, as in HTK


@dataclass
class GmmStats:
    """Sums over frames: they add up, so that jobs can share the frames."""

    occupancy: Tensor  # (G,) float64
    first: Tensor  # (G, D) float64: sum of x
    second: Tensor  # (G, D) float64: sum of x squared
    log_likelihood: float  # of the frames, given their pdfs
    frames: int

    def __add__(self, other: GmmStats) -> GmmStats:
        return GmmStats(
            self.occupancy + other.occupancy,
            self.first + other.first,
            self.second + other.second,
            self.log_likelihood + other.log_likelihood,
            self.frames + other.frames,
        )


@dataclass
class Gmm:
    """The mixtures of all pdfs."""

    weights: Tensor  # (G,) float32; each pdf's sum to one
    means: Tensor  # (G, D) float32
    variances: Tensor  # (G, D) float32
    sizes: Tensor  # (P,) int64: Gaussians of each pdf

    @property
    def num_pdfs(self) -> int:
        """P."""
        return len(self.sizes)

    @property
    def num_gaussians(self) -> int:
        """G."""
        return len(self.weights)

    @cached_property
    def _quadratic(self) -> tuple[Tensor, Tensor]:
        """Each Gaussian's log density times its weight as ``[x, x^2] @ A + b``: A (2D, G), b (G,)."""
        precisions = 1.0 / self.variances.double()
        means = self.means.double()
        linear = torch.cat([means * precisions, -0.5 * precisions], dim=1).T
        constant = self.weights.double().log() - 0.5 * (
            self.variances.double().log().sum(1) + means.shape[1] * _LOG_2PI + (means**2 * precisions).sum(1)
        )
        return linear.float(), constant.float()

    @cached_property
    def _blocks(self) -> list[tuple[Tensor, Tensor, Tensor, int]]:
        """Pdfs, their Gaussians' A and b, and how many a pdf: padded to the largest of a block.

        The pdfs are taken in order of size, so that a block's padding stays small.
        """
        linear, constant = self._quadratic
        starts = torch.cumsum(self.sizes, 0) - self.sizes
        order = torch.argsort(self.sizes, stable=True)
        blocks = []
        for pdfs in torch.split(order, 64):
            width = int(self.sizes[pdfs].max())
            slots = torch.arange(width)
            index = starts[pdfs, None] + slots
            absent = slots >= self.sizes[pdfs, None]
            index[absent] = 0
            bias = constant[index].masked_fill(absent, -math.inf)
            blocks.append((pdfs, linear[:, index.flatten()].contiguous(), bias.flatten(), width))
        return blocks

    def log_likelihoods(self, features: Tensor) -> Tensor:
        """Log density of every frame under every pdf: ``(frames, D)`` to ``(frames, P)``, float32."""
        result = torch.empty(len(features), self.num_pdfs)
        for first in range(0, len(features), _FRAMES_AT_ONCE):
            x = features[first : first + _FRAMES_AT_ONCE]
            augmented = torch.cat([x, x * x], dim=1)
            for pdfs, matrix, bias, width in self._blocks:
                scores = torch.addmm(bias, augmented, matrix).view(len(x), len(pdfs), width)
                result[first : first + len(x), pdfs] = scores.logsumexp(2)
        return result

    def accumulate(self, features: Tensor, pdf_ids: Tensor) -> GmmStats:
        """E step: the statistics of frames ``(frames, D)`` whose pdfs ``(frames,)`` an alignment has given."""
        linear, constant = self._quadratic
        dims = self.means.shape[1]
        stats = GmmStats(
            torch.zeros(self.num_gaussians, dtype=torch.float64),
            torch.zeros(self.num_gaussians, dims, dtype=torch.float64),
            torch.zeros(self.num_gaussians, dims, dtype=torch.float64),
            0.0,
            len(features),
        )
        ends = torch.cumsum(self.sizes, 0)
        order = torch.argsort(pdf_ids, stable=True)
        counts = torch.bincount(pdf_ids, minlength=self.num_pdfs)
        for pdf, frames in zip(range(self.num_pdfs), torch.split(order, counts.tolist()), strict=True):
            if not len(frames):
                continue
            mine = slice(int(ends[pdf] - self.sizes[pdf]), int(ends[pdf]))
            x = features[frames]
            augmented = torch.cat([x, x * x], dim=1)
            scores = torch.addmm(constant[mine], augmented, linear[:, mine])
            total = scores.logsumexp(1, keepdim=True)
            sums = (scores - total).exp().T @ augmented
            stats.occupancy[mine] += (scores - total).exp().sum(0, dtype=torch.float64)
            stats.first[mine] += sums[:, :dims]
            stats.second[mine] += sums[:, dims:]
            stats.log_likelihood += float(total.sum(dtype=torch.float64))
        return stats

    def updated(self, stats: GmmStats, variance_floor: Tensor, min_occupancy: float) -> Gmm:
        """M step. A Gaussian that saw fewer than ``min_occupancy`` frames goes, unless it is its pdf's heaviest.

        :param variance_floor: ``(D,)``.
        """
        ends = torch.cumsum(self.sizes, 0)
        pdf_of = torch.repeat_interleave(torch.arange(self.num_pdfs), self.sizes)
        heaviest = torch.stack(
            [end - size + stats.occupancy[end - size : end].argmax() for end, size in zip(ends, self.sizes, strict=True)]
        )
        keep = stats.occupancy >= min_occupancy
        keep[heaviest] = True
        seen = stats.occupancy > 0
        occupancy = stats.occupancy.clamp_min(1e-10)
        means = torch.where(seen[:, None], stats.first / occupancy[:, None], self.means.double())
        variances = torch.where(
            (stats.occupancy >= min_occupancy)[:, None],
            stats.second / occupancy[:, None] - means**2,
            self.variances.double(),
        )
        variances = torch.maximum(variances, variance_floor.double())
        weights = torch.where(keep, occupancy, 0.0)
        totals = torch.zeros(self.num_pdfs, dtype=torch.float64).index_add_(0, pdf_of, weights)
        weights = weights / totals[pdf_of]
        return Gmm(
            weights[keep].float(),
            means[keep].float(),
            variances[keep].float(),
            torch.bincount(pdf_of[keep], minlength=self.num_pdfs),
        )

    def split(self, targets: Tensor) -> Gmm:
        """Grow each pdf's mixture to ``targets`` (P,) Gaussians by splitting the heaviest one along its deviations."""
        weights, means, variances, sizes = [], [], [], []
        ends = torch.cumsum(self.sizes, 0)
        for pdf in range(self.num_pdfs):
            mine = slice(int(ends[pdf] - self.sizes[pdf]), int(ends[pdf]))
            w, m, v = list(self.weights[mine]), list(self.means[mine]), list(self.variances[mine])
            while len(w) < int(targets[pdf]):
                heaviest = max(range(len(w)), key=lambda i: float(w[i]))
                step = _SPLIT_STEP * v[heaviest].sqrt()
                w[heaviest] = w[heaviest] / 2
                w.append(w[heaviest])
                m.append(m[heaviest] + step)
                m[heaviest] = m[heaviest] - step
                v.append(v[heaviest])
            weights += w
            means += m
            variances += v
            sizes.append(len(w))
        return Gmm(torch.stack(weights), torch.stack(means), torch.stack(variances), torch.tensor(sizes))

    @staticmethod
    def single(stats: Tensor, variance_floor: Tensor) -> Gmm:
        """One Gaussian a pdf.

        :param stats: ``(P, 1 + 2 D)``: count, sums, sums of squares; a pdf without frames takes the sum of all.
        """
        stats = torch.where(stats[:, :1] > 1, stats.double(), stats.double().sum(0))
        dims = (stats.shape[1] - 1) // 2
        means = stats[:, 1 : 1 + dims] / stats[:, :1]
        variances = torch.maximum(stats[:, 1 + dims :] / stats[:, :1] - means**2, variance_floor.double())
        ones = torch.ones(len(stats))
        return Gmm(ones, means.float(), variances.float(), ones.long())


def split_targets(occupancy: Tensor, total: int, power: float, min_frames: float) -> Tensor:
    """How many Gaussians each pdf shall have, at least one: a share of ``total`` by occupancy to ``power``.

    Kaldi's power is 0.25 for monophones.

    :param occupancy: frames of each pdf, ``(P,)``.
    :param min_frames: frames a Gaussian must have on average.
    """
    share = occupancy.double().clamp_min(1e-10) ** power
    wanted = (total * share / share.sum()).floor()
    return torch.minimum(wanted, occupancy.double() / min_frames).clamp_min(1).long()
