"""Diagonal Gaussian mixtures, one a tied state: likelihoods, statistics that add up over jobs, re-estimation, growing.

Shapes: P tied states (pdf-ids), G Gaussians over all of them, D dimensions. A pdf's Gaussians lie next to each other.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_LOG_2PI = math.log(2 * math.pi)
_FRAMES_AT_ONCE = 512  # bounds the memory of the (Gaussians, frames) block
_BLOCK_RATIO = 1.5  # the largest over the smallest mixture of pdfs that are padded to one size
_NEGLIGIBLE = -40.0  # exp of less is lost in a float32 sum with 1; and where exp underflows it is twenty times slower
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
    def tensors(self) -> list[Tensor]:
        """What the model is made of, to be stored."""
        return [self.weights, self.means, self.variances, self.sizes]

    @property
    def num_pdfs(self) -> int:
        """P."""
        return len(self.sizes)

    @property
    def num_gaussians(self) -> int:
        """G."""
        return len(self.weights)

    @cached_property
    def _quadratic(self) -> Tensor:
        """Each Gaussian's log density times its weight as a row r: ``r @ [x, x^2, 1]``, ``(G + 1, 2D + 1)``.

        The last row is that of an absent Gaussian: minus infinity.
        """
        precisions = 1.0 / self.variances.double()
        means = self.means.double()
        constant = self.weights.double().log() - 0.5 * (
            self.variances.double().log().sum(1) + means.shape[1] * _LOG_2PI + (means**2 * precisions).sum(1)
        )
        rows = torch.cat([means * precisions, -0.5 * precisions, constant[:, None]], dim=1).float()
        absent = torch.zeros(1, rows.shape[1])
        absent[0, -1] = -math.inf
        return torch.cat([rows, absent])

    def _blocks(self, pdfs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Places in ``pdfs`` and the rows of these pdfs' Gaussians, ``(pdfs of the block, largest size)``.

        The pdfs are taken in order of size, so that a block's padding stays small.
        """
        sizes, order = self.sizes[pdfs].sort(stable=True)
        starts = (torch.cumsum(self.sizes, 0) - self.sizes)[pdfs[order]]
        blocks, first, every = [], 0, sizes.tolist()
        while first < len(every):
            last = bisect.bisect_right(every, every[first] * _BLOCK_RATIO)
            slots = torch.arange(every[last - 1])[:, None]
            rows = torch.where(slots < sizes[first:last], starts[first:last] + slots, self.num_gaussians)
            blocks.append((order[first:last], rows))
            first = last
        return blocks

    @cached_property
    def _all_blocks(self) -> list[tuple[Tensor, Tensor]]:
        return self._blocks(torch.arange(self.num_pdfs))

    def log_likelihoods(self, features: Tensor, pdfs: Tensor | None = None) -> Tensor:
        """Log density of every frame under every pdf, or those of ``pdfs`` alone.

        :param features: ``(frames, D)``.
        :param pdfs: pdf-ids ``(N,)``.
        :return: float32 ``(frames, P)``, or ``(frames, N)`` in the order of ``pdfs``.
        """
        blocks = self._all_blocks if pdfs is None else self._blocks(pdfs)
        result = torch.empty(self.num_pdfs if pdfs is None else len(pdfs), len(features))
        matrices = [(places, self._quadratic[rows.flatten()], len(rows)) for places, rows in blocks]
        for first in range(0, len(features), _FRAMES_AT_ONCE):
            augmented = _augment(features[first : first + _FRAMES_AT_ONCE]).T
            for places, matrix, width in matrices:
                scores = (matrix @ augmented).view(width, len(places), -1)
                best = scores.amax(0)
                total = scores.sub_(best).clamp_min_(_NEGLIGIBLE).exp_().sum(0)
                result[places, first : first + augmented.shape[1]] = total.log_().add_(best)
        return result.T

    def accumulate(self, features: Tensor, pdf_ids: Tensor, seen: Tensor | None = None) -> GmmStats:
        """E step: the statistics of frames ``(frames, D)`` whose pdfs ``(frames,)`` an alignment has given.

        :param seen: the frames as the mixtures see them when they share them out, where these are not ``features``.
        """
        dims = self.means.shape[1]
        stats = GmmStats(
            torch.zeros(self.num_gaussians, dtype=torch.float64),
            torch.zeros(self.num_gaussians, dims, dtype=torch.float64),
            torch.zeros(self.num_gaussians, dims, dtype=torch.float64),
            0.0,
            len(features),
        )
        for mine, places, augmented, posteriors, log_likelihood in self._share_out(features if seen is None else seen, pdf_ids):
            sums = (posteriors.T @ (augmented if seen is None else _augment(features[places]))).double()
            stats.occupancy[mine] = sums[:, 2 * dims]
            stats.first[mine] = sums[:, :dims]
            stats.second[mine] = sums[:, dims : 2 * dims]
            stats.log_likelihood += log_likelihood
        return stats

    def by_pdf(self, features: Tensor, pdf_ids: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Share frames ``(T, D)`` out to the Gaussians of their pdfs ``(T,)``, in order of pdf, then time.

        :return: of each pdf that has frames: its Gaussians, the places ``(frames,)`` of its frames, and posteriors
            ``(frames, Gaussians)``.
        """
        for mine, places, _, posteriors, _ in self._share_out(features, pdf_ids):
            yield mine, places, posteriors

    def _share_out(self, features: Tensor, pdf_ids: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, float]]:
        """As :meth:`by_pdf`, with augmented frames and their log-likelihood."""
        ends = torch.cumsum(self.sizes, 0).tolist()
        order = torch.argsort(pdf_ids, stable=True)
        counts = torch.bincount(pdf_ids, minlength=self.num_pdfs).tolist()
        parts = zip(ends, self.sizes.tolist(), order.split(counts), _augment(features[order]).split(counts), strict=True)
        for end, size, places, augmented in parts:
            if not len(augmented):
                continue
            mine = slice(end - size, end)
            scores = augmented @ self._quadratic[mine].T
            best = scores.amax(1, keepdim=True)
            posteriors = scores.sub_(best).clamp_min_(_NEGLIGIBLE).exp_()
            total = posteriors.sum(1, keepdim=True)
            posteriors /= total
            yield mine, places, augmented, posteriors, float((total.log() + best).sum(dtype=torch.float64))

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
        """Grow each pdf's mixture to ``targets`` (P,) Gaussians by splitting the heaviest one along its deviations.

        A Gaussian that is split again goes half as far, so that no two come to lie on each other.
        """
        weights: list[float] = []
        origin: list[int] = []  # of each new Gaussian
        offset: list[float] = []  # from its origin's mean, in standard deviations
        start, old, sizes = 0, self.weights.tolist(), []
        for size, target in zip(self.sizes.tolist(), targets.tolist(), strict=True):
            mixture = [(-old[i], i, 0.0, _SPLIT_STEP) for i in range(start, start + size)]
            heapq.heapify(mixture)
            while len(mixture) < target:
                weight, i, at, step = heapq.heappop(mixture)
                heapq.heappush(mixture, (weight / 2, i, at - step, step / 2))
                heapq.heappush(mixture, (weight / 2, i, at + step, step / 2))
            mixture.sort(key=lambda part: part[1:])
            weights += [-weight for weight, *_ in mixture]
            origin += [i for _, i, *_ in mixture]
            offset += [at for _, _, at, _ in mixture]
            sizes.append(len(mixture))
            start += size
        means = self.means[origin] + torch.tensor(offset)[:, None] * self.variances[origin].sqrt()
        return Gmm(torch.tensor(weights), means, self.variances[origin], torch.tensor(sizes))

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


def _augment(features: Tensor) -> Tensor:
    """``[x, x^2, 1]`` of each frame, ``(frames, 2D + 1)``."""
    return torch.cat([features, features * features, torch.ones(len(features), 1)], dim=1)


def split_targets(occupancy: Tensor, total: int, power: float, min_frames: float) -> Tensor:
    """How many Gaussians each pdf shall have, at least one: a share of ``total`` by occupancy to ``power``.

    Kaldi's power is 0.25 for monophones.

    :param occupancy: frames of each pdf, ``(P,)``.
    :param min_frames: frames a Gaussian must have on average.
    """
    share = occupancy.double().clamp_min(1e-10) ** power
    wanted = (total * share / share.sum()).floor()
    return torch.minimum(wanted, occupancy.double() / min_frames).clamp_min(1).long()
