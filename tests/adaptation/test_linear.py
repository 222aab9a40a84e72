"""LDA, MLLT and fMLLR against direct solutions, numerical optimisation, and transforms that are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from local.adaptation import linear
from local.adaptation.linear import FmllrStats, LdaStats, MlltStats, apply, fmllr, identity_transform, lda, mllt
from local.cli import RecipeError
from local.hmm.gmm import Gmm
from tests.hmm.planted import random_gmm


def mixture(pdfs: int = 4, gaussians: int = 2, dims: int = 3) -> Gmm:
    """Well separated Gaussians."""
    rng = torch.Generator().manual_seed(1)
    count = pdfs * gaussians
    means = 4 * torch.randn(count, dims, generator=rng)
    return Gmm(
        torch.full((count,), 1 / gaussians), means, 0.2 + torch.rand(count, dims, generator=rng), torch.full((pdfs,), gaussians)
    )


def sample(gmm: Gmm, frames: int, mixing: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Frames and pdf-ids drawn from the model; ``mixing`` correlates the noise."""
    rng = torch.Generator().manual_seed(2)
    which = torch.randint(gmm.num_gaussians, (frames,), generator=rng)
    noise = torch.randn(frames, gmm.means.shape[1], generator=rng) * gmm.variances[which].sqrt()
    pdf_of = torch.repeat_interleave(torch.arange(gmm.num_pdfs), gmm.sizes)
    return gmm.means[which] + (noise if mixing is None else noise @ mixing.T), pdf_of[which]


def test_lda_is_the_generalised_eigenproblem() -> None:
    rng = np.random.default_rng(1)
    classes = rng.integers(5, size=4000)
    means = rng.normal(size=(5, 6))
    x = means[classes] + rng.normal(size=(4000, 6)) @ rng.normal(size=(6, 6))
    parts = [LdaStats.of(torch.tensor(x[part]), torch.tensor(classes[part]), 5) for part in (slice(0, 1500), slice(1500, None))]
    rows = lda(parts[0] + parts[1], 3).numpy()
    own = np.stack([x[classes == c].mean(0) for c in range(5)])
    within = np.mean([np.outer(d, d) for d in x - own[classes]], axis=0)
    between = np.cov((own[classes]).T, bias=True)
    values, vectors = np.linalg.eig(np.linalg.solve(within, between))
    best = vectors[:, np.argsort(-values.real)[:3]].real
    np.testing.assert_allclose(rows @ within @ rows.T, np.eye(3), atol=1e-6)
    for row, vector in zip(rows, best.T, strict=True):
        cosine = abs(row @ vector) / np.linalg.norm(row) / np.linalg.norm(vector)
        assert cosine == pytest.approx(1, abs=1e-6)
    with pytest.raises(RecipeError, match="too few"):
        lda(LdaStats.of(torch.randn(4, 6), torch.tensor([0, 1, 1, 0]), 2), 2)


def test_mllt_is_the_optimum_and_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    gmm = mixture()
    mixing = torch.tensor([[1.0, 0.6, -0.3], [0.0, 1.0, 0.5], [0.2, 0.0, 1.0]])
    frames, pdfs = sample(gmm, 3000, mixing)
    stats = MlltStats.of(gmm, frames[:1000], pdfs[:1000]) + MlltStats.of(gmm, frames[1000:], pdfs[1000:])
    found = mllt(stats)
    best = _maximise(stats.quadratic, torch.eye(3, dtype=torch.float64), stats.frames)
    assert stats.objective(found) == pytest.approx(best, abs=1e-6)
    assert stats.objective(found) > stats.objective(torch.eye(3)) + 0.05
    reached = [stats.objective(torch.eye(3))]
    for sweeps in range(1, 6):
        monkeypatch.setattr(linear, "_SWEEPS", sweeps)
        reached.append(stats.objective(mllt(stats)))
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(reached))


def test_mllt_statistics_are_the_sum_over_frames_and_gaussians() -> None:
    gmm = mixture()
    frames, pdfs = sample(gmm, 50)
    expected = torch.zeros(3, 3, 3, dtype=torch.float64)
    for x, pdf in zip(frames.double(), pdfs, strict=True):
        mine = slice(2 * int(pdf), 2 * int(pdf) + 2)
        means, variances = gmm.means[mine].double(), gmm.variances[mine].double()
        log_density = -0.5 * (((x - means) ** 2 / variances) + variances.log()).sum(1)
        for m, posterior in enumerate(torch.softmax(log_density, 0)):
            scatter = torch.outer(x - means[m], x - means[m])
            expected += posterior * scatter[None] / variances[m][:, None, None]
    torch.testing.assert_close(MlltStats.of(gmm, frames, pdfs).quadratic, expected, rtol=1e-4, atol=1e-3)


def _maximise(quadratic: Tensor, start: Tensor, frames: float, linear: Tensor | None = None) -> float:
    w = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [w], max_iter=500, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.einsum("id,ide,ie->", w, quadratic, w) / 2
        if linear is not None:
            value = value - (w * linear).sum()
        value = value / frames - torch.linalg.slogdet(w[:, : len(w)]).logabsdet
        value.backward()
        return value

    optimizer.step(loss)
    return -float(loss().detach())


def test_fmllr_is_the_optimum_and_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    gmm = mixture()
    frames, pdfs = sample(gmm, 2000)
    frames = frames @ torch.tensor([[1.1, 0.2, 0.0], [-0.1, 0.9, 0.3], [0.0, 0.1, 1.2]]).T + torch.tensor([0.5, -1.0, 0.2])
    stats = FmllrStats.of(gmm, frames[:700], pdfs[:700]) + FmllrStats.of(gmm, frames[700:], pdfs[700:])
    found = fmllr(stats, 100)
    best = _maximise(stats.quadratic, identity_transform(3), stats.frames, stats.linear)
    assert stats.objective(found) == pytest.approx(best, abs=1e-5)
    reached = [stats.objective(identity_transform(3))]
    for sweeps in range(1, 6):
        monkeypatch.setattr(linear, "_SWEEPS", sweeps)
        reached.append(stats.objective(fmllr(stats, 100)))
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(reached))
    assert reached[-1] > reached[0] + 0.05
    assert torch.equal(fmllr(stats, 5000), identity_transform(3))  # too few frames


def test_fmllr_undoes_a_known_affine_map() -> None:
    gmm = mixture(pdfs=8)
    frames, pdfs = sample(gmm, 20_000)
    matrix = torch.tensor([[1.2, 0.2, 0.0], [-0.1, 0.9, 0.3], [0.0, 0.1, 1.1]])
    offset = torch.tensor([0.5, -0.4, 0.2])
    moved = frames @ matrix.T + offset
    total = identity_transform(3)
    for _ in range(6):  # posteriors get better with the transform
        stats = FmllrStats.of(gmm, moved, pdfs, transformed=apply(total, moved))
        total = fmllr(stats, 100, total)
    inverse = torch.linalg.inv(matrix)
    expected = torch.cat([inverse, (-inverse @ offset)[:, None]], 1).double()
    torch.testing.assert_close(total, expected, atol=0.03, rtol=0)


def test_a_speaker_whose_frames_fill_no_space_is_not_adapted(capsys: pytest.CaptureFixture[str]) -> None:
    """A dead channel: all frames the same, or a dimension that never changes."""
    generator = torch.Generator().manual_seed(3)
    gmm = random_gmm(torch.tensor([2, 3]), 4, generator)
    pdf_ids = torch.randint(0, 2, (600,), generator=generator)
    alive = torch.randn(600, 4, generator=generator)
    flat = torch.cat([alive[:, :3], torch.zeros(600, 1)], 1)
    for frames in (alive[:1].expand(600, -1), flat):
        torch.testing.assert_close(fmllr(FmllrStats.of(gmm, frames, pdf_ids), 500.0), identity_transform(4))
        assert "600 frames of one speaker do not fill 4 dimensions" in capsys.readouterr().err
    assert not torch.equal(fmllr(FmllrStats.of(gmm, alive, pdf_ids), 500.0), identity_transform(4))


def test_more_lda_directions_than_dimensions_are_refused() -> None:
    frames, classes = torch.randn(50, 4), torch.arange(50) % 5
    with pytest.raises(RecipeError, match=r"gmm\.tri3\.dims: expected at most the 4 dimensions spliced, found 5"):
        lda(LdaStats.of(frames, classes, 5), 5)
