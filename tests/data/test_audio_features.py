"""Audio of every form bit by bit, features against a computation of their own."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from trees import sphere

from local import audio
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.features import FeatureConf, FeatureSet, add_deltas, compute, compute_job, join, normalise

CONF = FeatureConf(13, 23, 40, 40.0, -200.0)


def test_shorten_and_the_other_codings_decode_bit_by_bit(shared_data: Path) -> None:
    """SPHERE files with and without embedded shorten, against digests of what sph2pipe makes of them."""
    rows = [line.split() for line in (shared_data / "sphere/expected_pcm.txt").read_text().splitlines() if line[0] != "#"]
    assert len(rows) == 7
    for digest, name, channels, _, samples in rows:
        decoded = audio._read_all(str(shared_data / "sphere" / name))
        assert decoded.shape == (int(samples), int(channels))
        assert hashlib.sha256(decoded.astype("<i2").tobytes()).hexdigest() == digest


def test_the_pipe_of_wav_scp_gives_one_channel(tmp_path: Path, root: Path) -> None:
    sphere(tmp_path / "a b's.sph", 1)
    command = [sys.executable, "-m", "local.audio", str(tmp_path / "a b's.sph"), "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    samples, rate = soundfile.read(io.BytesIO(done.stdout), dtype="int16")
    assert rate == 8000
    np.testing.assert_array_equal(samples, audio.read_side(tmp_path / "a b's.sph", 1))


def test_flac_is_read_and_another_rate_is_refused(tmp_path: Path) -> None:
    samples = np.arange(-400, 400, dtype=np.int16)
    soundfile.write(tmp_path / "a.flac", samples, 8000, subtype="PCM_16")
    np.testing.assert_array_equal(audio.read_side(tmp_path / "a.flac", 0), samples)
    soundfile.write(tmp_path / "b.wav", samples, 16000, subtype="PCM_16")
    with pytest.raises(RecipeError, match=r"b\.wav: expected 8000 Hz, found 16000 Hz"):
        audio.info(tmp_path / "b.wav")


@pytest.mark.parametrize("content", [b"", b"NIST_1A\n   1024\nsample_rate -i x\nend_head\n".ljust(1024), b"RIFF nothing"])
def test_files_that_are_no_audio_are_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.sph").write_bytes(content)
    with pytest.raises(RecipeError, match=r"x\.sph: "):
        audio.info(tmp_path / "x.sph")
    with pytest.raises(RecipeError, match="no such audio file"):
        audio.info(tmp_path / "y.sph")


def _log_mel(samples: np.ndarray) -> np.ndarray:
    """Kaldi's log-mel filter bank, written out: 25 ms Povey windows every 10 ms, pre-emphasis 0.97, 256-point FFT."""
    frames = 1 + (len(samples) - 200) // 80
    x = np.stack([samples[80 * i : 80 * i + 200] for i in range(frames)]).astype(float)
    x -= x.mean(1, keepdims=True)
    x = np.concatenate([x[:, :1] * (1 - 0.97), x[:, 1:] - 0.97 * x[:, :-1]], axis=1)
    x *= (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(200) / 199)) ** 0.85
    power = np.abs(np.fft.rfft(x, 256)) ** 2

    def mel(f: np.ndarray | float) -> np.ndarray:
        return 1127 * np.log(1 + np.asarray(f) / 700)

    edges = np.linspace(mel(40), mel(3800), 42)
    bins = mel(np.arange(128) * 8000 / 256)
    up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.log(np.maximum(power[:, :128] @ np.maximum(np.minimum(up, down), 0).T, np.finfo(np.float32).eps))


def test_log_mel_is_kaldis() -> None:
    samples = np.random.default_rng(0).integers(-8000, 8000, 4000).astype(np.int16)
    np.testing.assert_allclose(compute(samples, "fbank", CONF), _log_mel(samples), atol=2e-3)


def test_mfcc_is_the_cosine_transform_of_log_mel() -> None:
    samples = np.random.default_rng(0).integers(-8000, 8000, 4000).astype(np.int16)
    same = FeatureConf(13, 40, 40, 40.0, -200.0)
    order, bins = np.arange(13)[:, None], np.arange(40) + 0.5
    transform = np.sqrt(2 / 40) * np.cos(np.pi / 40 * order * bins)
    transform[0] = np.sqrt(1 / 40)
    lifter = 1 + 11 * np.sin(np.pi * np.arange(13) / 22)
    np.testing.assert_allclose(compute(samples, "mfcc", same), _log_mel(samples) @ transform.T * lifter, atol=5e-2)


def test_deltas_by_hand() -> None:
    """Regression over two frames either side: sum of j x_{t+j} over 10, the ends repeated."""
    x = np.array([[3.0], [1], [4], [1], [5]], np.float32)
    expected = [0.0, -0.3, 0.4, 0.9, 0.6]
    np.testing.assert_allclose(add_deltas(x, order=1)[:, 1], expected, atol=1e-6)


def _set(folder: Path) -> DataDir:
    sphere(folder / "c.sph", 6)
    sides = [Recording(f"c-{side}", folder / "c.sph", channel, "c", side, 48000) for channel, side in enumerate("AB")]
    rows = [(f"{side.id}_{i}", side.id, float(i), i + 1.5) for side in sides for i in range(3)]
    utterances = {key: Utterance(key, side, side, start, end, ("a",)) for key, side, start, end in rows}
    return DataDir({side.id: side for side in sides}, utterances)


def test_jobs_join_to_a_set_with_a_sides_statistics(tmp_path: Path) -> None:
    data = _set(tmp_path)
    for job, part in enumerate(data.split(2)):
        assert len(part.speakers) == 1
        compute_job(part, CONF, tmp_path / str(job))
    join(data, [tmp_path / "0", tmp_path / "1"], tmp_path / "all")
    features = FeatureSet(tmp_path / "all", "fbank", data.utt2spk)
    assert list(features) == sorted(data.utterances)
    mine = np.concatenate([features[key] for key in data.speakers["c-A"]])
    np.testing.assert_allclose(mine.mean(0), 0, atol=1e-4)
    assert len(features["c-A_0"]) == 1 + (12000 - 200) // 80
    with pytest.raises(RecipeError, match="3 of 6 utterances have no mfcc features, the first is c-B_0"):
        join(data, [tmp_path / "0"], tmp_path / "half")
    with pytest.raises(RecipeError, match="3 jobs for 2 speakers"):
        data.split(3)


def test_normalising_takes_mean_and_variance() -> None:
    x = np.random.default_rng(1).normal(5, 3, (200, 2)).astype(np.float32)
    stats = np.zeros((2, 3))
    stats[0, :2], stats[0, 2], stats[1, :2] = x.sum(0), len(x), (x.astype(float) ** 2).sum(0)
    np.testing.assert_allclose(normalise(x, stats, True), (x - x.mean(0)) / x.std(0), atol=1e-4)
    np.testing.assert_allclose(normalise(x, stats, False), x - x.mean(0), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speaker": "d"}, "the speaker's id d must be its prefix"),
        ({"start": 2.0, "end": 1.0}, "expected 0 <= start < end"),
        ({"end": 6.5}, "ends at 6.5 s, its recording at 6.000 s"),
        ({"words": ("<s>",)}, "the word '<s>' may not stand in a text"),
        ({"recording": "c-C"}, "no recording c-C"),
    ],
)
def test_kaldis_rules_are_checked(change: dict, message: str, tmp_path: Path) -> None:
    data = _set(tmp_path)
    key = "c-A_0"
    data.utterances[key] = Utterance(**{**data.utterances[key].__dict__, **change})
    with pytest.raises(RecipeError, match=message):
        data.validate()


def test_a_damaged_data_directory_is_named_by_line(tmp_path: Path) -> None:
    data = _set(tmp_path)
    data.write(tmp_path / "d")
    lines = (tmp_path / "d" / "text").read_text()
    (tmp_path / "d" / "text").write_text(lines + lines.splitlines()[0] + "\n")
    with pytest.raises(RecipeError, match=r"text:7: the key c-A_0 stands there twice"):
        DataDir.read(tmp_path / "d")
    (tmp_path / "d" / "text").write_text("")
    with pytest.raises(RecipeError, match="damaged data directory at c-A_0"):
        DataDir.read(tmp_path / "d")
