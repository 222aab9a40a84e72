"""I-vectors against dense Gaussians, planted matrices and coordinates, and a made-up set from the command line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
import pytest
import torch
from planted import make_language, random_model, small_topology
from processes import run
from torch import Tensor
from torch.distributions import MultivariateNormal

from local.adaptation import ivector
from local.adaptation.ivector import IvectorConf, IvectorExtractor, gmm_stats, pieces, train_matrix
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.features import FeatureSet
from local.files import read_archive, write_archive
from local.hmm.gmm import Gmm
from local.team import Team

CONF = {
    "gaussians": 4,
    "dims": 2,
    "ubm_iterations": 8,
    "iterations": 8,
    "posterior_scale": 0.1,
    "piece_seconds": 1.0,
    "seed": 1,
}


def random_extractor(gaussians: int, dims: int, rank: int, scale: float = 1.0) -> IvectorExtractor:
    rng = torch.Generator().manual_seed(3)
    ubm = Gmm(
        torch.full((gaussians,), 1 / gaussians),
        3 * torch.randn(gaussians, dims, generator=rng),
        0.3 + torch.rand(gaussians, dims, generator=rng),
        torch.tensor([gaussians]),
    )
    matrix = torch.randn(gaussians, dims, rank, generator=rng, dtype=torch.float64)
    return IvectorExtractor(ubm, ubm.means.double() + 1, ubm.variances.double(), matrix, scale)


def log_density(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return MultivariateNormal(torch.tensor(mean).double(), torch.tensor(covariance).double()).log_prob(torch.tensor(x)).numpy()


def sums_of(extractor: IvectorExtractor, frames: np.ndarray, gaussian: np.ndarray) -> tuple[Tensor, Tensor]:
    """N_c and F_c of frames ``(T, D)`` of known Gaussians ``(T,)``."""
    shares = np.eye(len(extractor.means))[gaussian]
    return torch.tensor(shares.sum(0)), torch.tensor(shares.T @ frames)


def planted(extractor: IvectorExtractor, count: int, frames: int) -> tuple[Tensor, Tensor, np.ndarray]:
    """N_c, F_c and w of pieces that are drawn from the model."""
    rng = np.random.default_rng(4)
    gaussians, dims, rank = extractor.matrix.shape
    w = rng.normal(size=(count, rank))
    sums = []
    for coordinates in w:
        which = rng.integers(gaussians, size=frames)
        means = (extractor.means + extractor.matrix @ torch.tensor(coordinates)).numpy()
        x = means[which] + rng.normal(size=(frames, dims)) * extractor.variances.sqrt().numpy()[which]
        sums.append(sums_of(extractor, x, which))
    occupancy, first = (torch.stack(parts) for parts in zip(*sums, strict=True))
    return occupancy, first, w


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_posterior_and_likelihood_are_those_of_one_large_gaussian(scale: float) -> None:
    """All frames of a piece are one Gaussian vector; a frame that counts for less is one of larger variance."""
    extractor = random_extractor(3, 2, 4, scale)
    rng = np.random.default_rng(5)
    pieces_of_speech = [(rng.normal(0, 3, (n, 2)), rng.integers(3, size=n)) for n in (1, 7, 12)]
    sums = [sums_of(extractor, *piece) for piece in pieces_of_speech]
    found = extractor.posterior(*(torch.stack(parts) for parts in zip(*sums, strict=True)))
    for (x, which), *results in zip(pieces_of_speech, *found, strict=True):
        mean = extractor.means.numpy()[which].ravel()
        noise = np.diag(extractor.variances.numpy()[which].ravel()) / scale
        loading = extractor.matrix.numpy()[which].reshape(x.size, 4)
        gain = np.linalg.solve(noise + loading @ loading.T, loading).T
        marginal = log_density(x.ravel(), mean, noise + loading @ loading.T)
        reference = log_density(x.ravel(), np.zeros(x.size), noise)
        expected = gain @ (x.ravel() - mean), np.eye(4) - gain @ loading, marginal - reference
        for value, right in zip(results, expected, strict=True):
            np.testing.assert_allclose(value.numpy(), right, rtol=1e-8, atol=1e-9)


def test_without_frames_the_prior_stays() -> None:
    found = random_extractor(3, 2, 4).posterior(torch.zeros(1, 3), torch.zeros(1, 3, 2))
    assert torch.equal(found.mean, torch.zeros(1, 4, dtype=torch.float64))
    assert torch.equal(found.covariance[0], torch.eye(4, dtype=torch.float64))
    assert float(found.log_likelihood) == 0


def test_frames_are_shared_out_by_others_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivector, "_FRAMES_AT_ONCE", 7)
    ubm = random_extractor(3, 2, 1).ubm
    rng = np.random.default_rng(6)
    seen, x = rng.normal(0, 3, (20, 2)), rng.normal(0, 3, (20, 2))
    density = np.stack(
        [
            weight * np.exp(log_density(seen, mean, np.diag(variance)))
            for weight, mean, variance in zip(ubm.weights.numpy(), ubm.means.numpy(), ubm.variances.numpy(), strict=True)
        ],
        1,
    )
    shares = density / density.sum(1, keepdims=True)
    stats = gmm_stats(ubm, torch.tensor(x).float(), torch.tensor(seen).float())
    np.testing.assert_allclose(stats.occupancy, shares.sum(0), rtol=1e-4)
    np.testing.assert_allclose(stats.first, shares.T @ x, rtol=1e-3, atol=1e-4)
    assert stats.frames == 20
    assert stats.log_likelihood == pytest.approx(np.log(density.sum(1)).sum(), rel=1e-5)


def test_sums_of_two_halves_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = random_extractor(3, 2, 4, 0.5)
    occupancy, first, _ = planted(extractor, 11, 30)
    whole = extractor.accumulate(occupancy, first)
    monkeypatch.setattr(ivector, "_PIECES_AT_ONCE", 3)
    halves = [extractor.accumulate(occupancy[part], first[part]) for part in (slice(0, 4), slice(4, None))]
    for name, value in vars(whole).items():
        expected = torch.as_tensor(sum(getattr(half, name) for half in halves))
        torch.testing.assert_close(torch.as_tensor(value), expected, rtol=1e-9, atol=1e-9)
    assert whole.frames == 0.5 * 11 * 30


def test_em_never_falls_and_finds_the_planted_matrix_and_coordinates() -> None:
    truth = random_extractor(6, 4, 3)
    occupancy, first, w = planted(truth, 600, 100)
    start = random_extractor(6, 4, 3)
    start.means = first.sum(0) / occupancy.sum(0)[:, None]
    start.matrix = 0.1 * torch.randn(start.matrix.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    log: list[dict] = []
    with Team.join() as team:
        conf = IvectorConf(6, 3, 1, 30, 1.0, 1.0, 1)
        found = train_matrix(team, start, occupancy, first, conf, log)
    reached = [line["log_likelihood_per_frame"] for line in log]
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(reached))
    stats = found.accumulate(occupancy, first)
    best = truth.accumulate(occupancy, first).log_likelihood
    assert stats.log_likelihood >= best  # more likely than the truth on what it was trained on
    assert stats.log_likelihood == pytest.approx(best, rel=1e-3)
    # minimum divergence: w has mean zero and covariance one over the pieces
    torch.testing.assert_close(stats.mean / 600, torch.zeros(3, dtype=torch.float64), atol=1e-3, rtol=0)
    torch.testing.assert_close(stats.second / 600, torch.eye(3, dtype=torch.float64), atol=1e-3, rtol=0)
    # T up to a rotation: the space it spans, and with the scale of w the covariance T T^T of the means
    one, other = (model.matrix.flatten(0, 1).numpy() for model in (found, truth))
    cosines = np.linalg.svd(np.linalg.qr(one).Q.T @ np.linalg.qr(other).Q)[1]
    assert np.degrees(np.arccos(cosines.min())) < 2
    assert np.linalg.norm(one @ one.T - other @ other.T) < 0.1 * np.linalg.norm(other @ other.T)
    estimated = found.posterior(occupancy, first).mean.numpy()
    fitted = np.column_stack([estimated, np.ones(600)])
    residual = w - fitted @ np.linalg.lstsq(fitted, w, rcond=None)[0]
    assert residual.var(0).max() < 0.02


def test_too_few_pieces_for_the_dimensions() -> None:
    extractor = random_extractor(3, 2, 4)
    occupancy, first, _ = planted(extractor, 4, 30)
    with Team.join() as team, pytest.raises(RecipeError, match="4 pieces of speech for i-vectors of 4 dimensions"):
        train_matrix(team, extractor, occupancy, first, IvectorConf(3, 4, 1, 1, 1.0, 2.0, 1), [])


class SidesSet:
    """Sides whose frames lie off the common mixture by an offset ``(2,)`` of each, in the first two of three dimensions."""

    def __init__(self, folder: Path, sides: int = 14, silent: str = "sw02003-A") -> None:
        self.folder, self.data, self.feats, self.model = folder, folder / "data", folder / "feats", folder / "model.pt"
        rng = np.random.default_rng(9)
        means = rng.normal(0, 6, (4, 3))
        recordings, entries = {}, {}
        features: dict[str, np.ndarray] = {}
        self.offsets: dict[str, np.ndarray] = {}
        for number in range(sides):
            side = f"sw0{2001 + number}-A"
            self.offsets[side] = rng.normal(0, 2, 2)
            recordings[side] = Recording(side, Path("none.sph"), 0, side[:-2], "A", 8000 * 60)
            for utterance in range(1 if side == silent else 6):
                key = f"{side}_{utterance:02d}"
                frames = int(rng.integers(50, 90))
                entries[key] = Utterance(key, side, side, 2.0 * utterance, 2.0 * utterance + frames / 100 + 0.02, ("a",))
                if side != silent:
                    x = means[np.repeat(rng.integers(4, size=frames // 5 + 1), 5)[:frames]] + rng.normal(size=(frames, 3))
                    features[key] = (x + np.append(self.offsets[side], 0)).astype(np.float32)
        del self.offsets[silent]
        self.silent = silent
        data = DataDir(recordings, entries)
        data.write(self.data)
        write_archive(self.feats / "mfcc.scp", sorted(features.items()))
        stats = (
            (side, sum(knf.compute_cmvn_stats(features[key]) for key in data.sides[side])) for side in sorted(self.offsets)
        )
        write_archive(self.feats / "mfcc_cmvn.scp", stats)
        random_model(make_language(small_topology()), 1, 1, dims=9).save(self.model)  # frames are MFCC with deltas

    def paths(self, **more: object) -> list[str]:
        paths = {"data": self.data, "feats": self.feats, "model": self.model} | more
        return [text for name, value in paths.items() for text in (f"--{name}", str(value))]

    def train(self, name: str, **changes: object) -> Path:
        out = self.folder / name / "extractor.pt"
        ivector.main(["train", *self.paths(conf=json.dumps(CONF | changes), out=out)])
        return out

    def extract(self, extractor: Path, name: str, jobs: int = 1) -> dict[str, np.ndarray]:
        out = self.folder / name
        for job in range(jobs):
            ivector.main(["extract", *self.paths(extractor=extractor, job=job, jobs=jobs, out=out / str(job))])
        parts = [str(out / str(job)) for job in range(jobs)]
        ivector.main(["join", "--data", str(self.data), "--parts", *parts, "--out", str(out)])
        return dict(read_archive(out / "ivectors.scp"))


@pytest.fixture(scope="module")
def sides_set(tmp_path_factory: pytest.TempPathFactory) -> SidesSet:
    return SidesSet(tmp_path_factory.mktemp("sides"))


@pytest.fixture(scope="module")
def extractor(sides_set: SidesSet) -> Path:
    return sides_set.train("alone")


def test_command_lines_find_each_sides_offset(sides_set: SidesSet, extractor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [json.loads(line) for line in (extractor.parent / "log.jsonl").read_text().splitlines()]
    parts = {part: [line for line in log if line["part"] == part] for part in ("ubm", "matrix")}
    assert [line["gaussians"] for line in parts["ubm"]] == [1, 1, 2, 3, 4, 4, 4, 4]
    for lines in (parts["ubm"][4:], parts["matrix"]):
        reached = [line["log_likelihood_per_frame"] for line in lines]
        assert all(later >= earlier - 1e-6 for earlier, later in itertools.pairwise(reached))
    vectors = sides_set.extract(extractor, "vectors")
    assert f"side {sides_set.silent} has no frames" in capsys.readouterr().err
    assert not vectors.pop(sides_set.silent).any()
    assert {vector.dtype for vector in vectors.values()} == {np.dtype(np.float32)}
    found = np.stack([vectors[side] for side in sides_set.offsets])
    offsets = np.stack(list(sides_set.offsets.values()))
    fitted = np.column_stack([found, np.ones(len(found))])
    residual = offsets - fitted @ np.linalg.lstsq(fitted, offsets, rcond=None)[0]
    assert (residual.var(0) < 0.05 * offsets.var(0)).all()


def test_a_side_does_not_depend_on_the_others(sides_set: SidesSet, extractor: Path) -> None:
    together, apart = sides_set.extract(extractor, "together"), sides_set.extract(extractor, "apart", jobs=3)
    assert list(together) == list(apart) == list(DataDir.read(sides_set.data).sides)
    assert all(np.array_equal(together[side], apart[side]) for side in together)


def _train(rank: int, arguments: list[str]) -> int:
    ivector.main(arguments)
    return rank


def test_two_processes_train_as_one(sides_set: SidesSet, extractor: Path) -> None:
    out = sides_set.folder / "two" / "extractor.pt"
    run(_train, 2, ["train", *sides_set.paths(conf=json.dumps(CONF), out=out)])
    one, two = IvectorExtractor.load(extractor), IvectorExtractor.load(out)
    for name in ("means", "variances", "matrix"):
        torch.testing.assert_close(getattr(two, name), getattr(one, name), rtol=1e-2, atol=1e-3)
    lines = [[json.loads(line) for line in (path.parent / "log.jsonl").read_text().splitlines()] for path in (extractor, out)]
    for alone, shared in zip(*lines, strict=True):
        assert shared.pop("part") == alone.pop("part")
        assert shared == pytest.approx(alone, rel=1e-4)


def test_raw_features_have_the_sides_mean(sides_set: SidesSet) -> None:
    data = DataDir.read(sides_set.data)
    features = FeatureSet(sides_set.feats, "mfcc", data.utt2side)
    assert features.missing == data.sides[sides_set.silent]
    for ids in map(data.sides.get, sides_set.offsets):
        mean = np.concatenate([features.raw(key) for key in ids]).mean(0)
        for key in ids:
            np.testing.assert_allclose(features.raw(key) - mean, features[key], atol=1e-4)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0, 100.0])
def test_pieces_are_long_enough_and_hold_every_utterance_once(sides_set: SidesSet, seconds: float) -> None:
    data = DataDir.read(sides_set.data)
    features = FeatureSet(sides_set.feats, "mfcc", data.utt2side)
    found = list(pieces(data, features, seconds))
    assert [key for piece in found for key in piece] == list(features)
    for piece in found:
        (side,) = {data.utterances[key].recording for key in piece}
        lengths = [data.utterances[key].end - data.utterances[key].start for key in piece]
        assert sum(lengths) >= seconds or piece == data.sides[side]
        assert sum(lengths) <= 2 * seconds + max(lengths)


def test_what_is_no_extractor(sides_set: SidesSet, extractor: Path, tmp_path: Path) -> None:
    loaded = IvectorExtractor.load(extractor)
    loaded.save(tmp_path / "again.pt")
    assert torch.equal(IvectorExtractor.load(tmp_path / "again.pt").matrix, loaded.matrix)
    with pytest.raises(RecipeError, match="no such i-vector extractor"):
        IvectorExtractor.load(tmp_path / "none.pt")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.pt").write_text("not a model")
    for path in (tmp_path / "empty.pt", tmp_path / "text.pt", sides_set.model):
        with pytest.raises(RecipeError, match=f"{path.name}: no i-vector extractor"):
            IvectorExtractor.load(path)


def test_what_does_not_fit_is_named(sides_set: SidesSet, extractor: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    random_model(make_language(small_topology()), 1, 1, dims=5).save(other)
    with pytest.raises(RecipeError, match="frames of 9 dimensions, the model's have 5"):
        ivector.main(["extract", *sides_set.paths(extractor=extractor, model=other, job=0, jobs=1, out=tmp_path)])
    with pytest.raises(RecipeError, match=r"pieces of speech for i-vectors of 200 dimensions"):
        sides_set.train("large", dims=200)
    sides_set.extract(extractor, "parts", jobs=2)
    parts = [str(sides_set.folder / "parts" / str(job)) for job in (0, 1, 1)]
    for chosen, what in ((parts[:1], "expected keys are missing"), (parts, "stands there twice")):
        with pytest.raises(RecipeError, match=what):
            ivector.main(["join", "--data", str(sides_set.data), "--parts", *chosen, "--out", str(tmp_path)])
