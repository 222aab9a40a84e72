"""MFCC and log-mel features at 8 kHz, per-side cepstral mean and variance normalisation, deltas.

    python -m local.features compute --data D --job 0 --jobs 4 --conf '{...}' --out feats/train/0
    python -m local.features join --data D --parts feats/train/0 feats/train/1 ... --out feats/train

The arithmetic is Kaldi's (package kaldi-native-fbank): 25 ms windows every 10 ms, none beyond the ends (snip_edges),
and samples on the scale of 16-bit integers. There is no dither, so the same audio gives the same numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
from tqdm import tqdm

from local import audio
from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir, Utterance
from local.files import read_archive, write_archive, write_text

FRAME_SHIFT = 0.01  # seconds
KINDS = ("mfcc", "fbank")
_MIN_SHARE = 0.95  # of the utterances must have features
_VARIANCE_KINDS = ("fbank",)  # the others are normalised by the mean alone
_MIN_VARIANCE = 1e-6


@dataclass(frozen=True)
class FeatureConf:
    """What the two kinds of features are made with."""

    cepstra: int  # MFCC coefficients, C0 among them
    mfcc_bins: int  # mel filters below the MFCC
    fbank_bins: int  # log-mel filters
    low_freq: float  # Hz, of the first filter
    high_freq: float  # Hz, of the last filter; 0 or below: counted from the Nyquist frequency


def compute(samples: np.ndarray, kind: str, conf: FeatureConf) -> np.ndarray:
    """Compute the features of a stretch of audio.

    :param samples: int16, shape ``(samples,)``.
    :param kind: ``mfcc`` or ``fbank``.
    :return: float32, shape ``(frames, dims)``; no frames where the audio is shorter than a window.
    """
    options = knf.MfccOptions() if kind == "mfcc" else knf.FbankOptions()
    options.frame_opts.samp_freq = audio.SAMPLE_RATE
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = True
    options.mel_opts.low_freq = conf.low_freq
    options.mel_opts.high_freq = conf.high_freq
    if kind == "mfcc":
        options.num_ceps = conf.cepstra
        options.mel_opts.num_bins = conf.mfcc_bins
        options.use_energy = False
        extractor = knf.OnlineMfcc(options)
    else:
        options.mel_opts.num_bins = conf.fbank_bins
        options.use_energy = False
        extractor = knf.OnlineFbank(options)
    extractor.accept_waveform(audio.SAMPLE_RATE, samples.astype(np.float32))
    extractor.input_finished()
    frames = [extractor.get_frame(index) for index in range(extractor.num_frames_ready)]
    return np.stack(frames) if frames else np.zeros((0, extractor.dim), np.float32)


def add_deltas(features: np.ndarray, order: int = 2, window: int = 2) -> np.ndarray:
    """Append regression deltas up to ``order``: ``(frames, dims)`` to ``(frames, dims * (order + 1))``, float32.

    Frames beyond the ends repeat the first and the last one (Kaldi's add-deltas).
    """
    options = knf.DeltaOptions()
    options.order, options.window = order, window
    return knf.compute_deltas(options, np.ascontiguousarray(features, dtype=np.float32))


def normalise(features: np.ndarray, stats: np.ndarray, variance: bool) -> np.ndarray:
    """Subtract a side's mean and, with ``variance``, divide by its standard deviation.

    :param features: ``(frames, dims)``.
    :param stats: Kaldi's, ``(2, dims + 1)``: sums and count, sums of squares.
    """
    count = stats[0, -1]
    mean = stats[0, :-1] / count
    normalised = features - mean.astype(np.float32)
    if variance:
        spread = np.maximum(stats[1, :-1] / count - mean**2, _MIN_VARIANCE)
        normalised *= (1.0 / np.sqrt(spread)).astype(np.float32)
    return normalised


class FeatureSet(Mapping[str, np.ndarray]):
    """The normalised features of a set by utterance id, read when asked for: float32, ``(frames, dims)``."""

    def __init__(self, folder: str | Path, kind: str, utt2side: Mapping[str, str]) -> None:
        """Open ``{kind}.scp`` and ``{kind}_cmvn.scp`` in ``folder`` for the utterances of ``utt2side``.

        Utterances that have no features (too short for a window) are left out; see :attr:`missing`.
        """
        folder = Path(folder)
        self._features = read_archive(folder / f"{kind}.scp")
        self._side = {key: side for key, side in utt2side.items() if key in self._features}
        self._stats = read_archive(folder / f"{kind}_cmvn.scp", expected=set(self._side.values()))
        self._variance = kind in _VARIANCE_KINDS
        self.missing = sorted(set(utt2side) - set(self._side))

    def __getitem__(self, key: str) -> np.ndarray:
        return normalise(self._features[key], self._stats[self._side[key]], self._variance)

    def raw(self, key: str) -> np.ndarray:
        """The features of an utterance as they were before normalisation."""
        return np.array(self._features[key])  # a copy: the archive's own may not be written to

    def __iter__(self) -> Iterator[str]:
        return iter(self._side)

    def __len__(self) -> int:
        return len(self._side)


def read_samples(data: DataDir, utterance: Utterance) -> np.ndarray:
    """An utterance's audio, int16, ``(samples,)``."""
    recording = data.recordings[utterance.recording]
    first, last = (round(time * audio.SAMPLE_RATE) for time in (utterance.start, utterance.end))
    return audio.read_side(recording.path, recording.channel)[first:last]


def compute_job(data: DataDir, conf: FeatureConf, out: Path) -> None:
    """Write both kinds of features of ``data`` to ``out/mfcc.scp`` and ``out/fbank.scp``.

    :raises RecipeError: for audio that cannot be read, or features that are not finite, naming the utterance.
    """
    features: dict[str, list[tuple[str, np.ndarray]]] = {kind: [] for kind in KINDS}
    for utterance in tqdm(data.utterances.values(), desc="features", mininterval=2):
        samples = read_samples(data, utterance)
        for kind in KINDS:
            matrix = compute(samples, kind, conf)
            if not np.isfinite(matrix).all():
                path = data.recordings[utterance.recording].path
                raise RecipeError(f"utterance {utterance.id}: its {kind} features are not finite ({path})")
            if len(matrix):
                features[kind].append((utterance.id, matrix))
    for kind in KINDS:
        write_archive(out / f"{kind}.scp", features[kind])


def join(data: DataDir, parts: list[Path], out: Path) -> None:
    """Join the jobs' indices into ``out`` and write the statistics of each side beside them.

    :raises RecipeError: where less than 95 % of the utterances have features.
    """
    for kind in KINDS:
        lines: dict[str, str] = {}
        for part in parts:
            lines.update(line.split(" ", 1) for line in (part / f"{kind}.scp").read_text().splitlines())
        missing = sorted(set(data.utterances) - set(lines))
        if len(missing) > (1 - _MIN_SHARE) * len(data.utterances):
            raise RecipeError(
                f"{out}: {len(missing)} of {len(data.utterances)} utterances have no {kind} features, the first is "
                f"{missing[0]}; more than 5 % is too many: look at the logs of the stage 'feats'"
            )
        if missing:
            print(f"warning: {len(missing)} utterances are too short for {kind}: {missing[:5]}", file=sys.stderr)
        write_text(out / f"{kind}.scp", "".join(f"{key} {lines[key]}\n" for key in sorted(lines)))
        features = read_archive(out / f"{kind}.scp")
        stats = (
            (side, sum(knf.compute_cmvn_stats(features[key]) for key in ids if key in features))
            for side, ids in data.sides.items()
            if any(key in features for key in ids)
        )
        write_archive(out / f"{kind}_cmvn.scp", stats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    job = commands.add_parser("compute", help="the features of one job's speakers")
    job.add_argument("--job", type=int, required=True, help="from 0")
    job.add_argument("--jobs", type=int, required=True)
    job.add_argument("--conf", required=True, help="JSON of FeatureConf")
    whole = commands.add_parser("join", help="all jobs' features as one set")
    whole.add_argument("--parts", type=Path, nargs="+", required=True)
    for command in (job, whole):
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = DataDir.read(arguments.data)
    if arguments.command == "join":
        join(data, arguments.parts, arguments.out)
    else:
        conf = parse_conf(FeatureConf, arguments.conf)
        compute_job(data.split(arguments.jobs)[arguments.job], conf, arguments.out)


if __name__ == "__main__":
    run(main)
