"""The frame store that the network is trained from: features and pdf-ids of a set, memory-mapped.

    python -m local.am.egs --data data/train --feats feats/train --alignment align/tri/train/ali.scp \\
        --model align/tri/model.pt --out egs/train

Training takes non-overlapping subsequences of 21 frames (the paper's, from memory of it). What is left over at an
utterance's end becomes a subsequence that reaches back into the one before, its repeated frames without a target: every
frame is a target exactly once an epoch. Deltas are added on reading, from the utterance's own neighbouring frames.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.cli import RecipeError, run
from local.datadir import DataDir
from local.features import FeatureSet
from local.files import atomic_dir, read_archive
from local.hmm.align import check_share
from local.hmm.model import HmmModel

FRAMES = 21  # of a subsequence
NO_TARGET = -100  # what torch's cross-entropy leaves out
_DELTA_REACH = 4  # frames either side that second-order deltas look at
_ORDERS = 3  # static, delta, delta-delta


def delta_filters() -> np.ndarray:
    """Kaldi's regression filters of order 0, 1, 2 (window 2), each over 9 frames: ``(3, 9)``."""
    first = np.arange(-2, 3) / 10
    filters = np.zeros((_ORDERS, 2 * _DELTA_REACH + 1), np.float32)
    filters[0, _DELTA_REACH] = 1
    filters[1, 2:7] = first
    filters[2] = np.convolve(first, first)
    return filters


@dataclass
class FrameStore:
    """F frames of the utterances one after another, cut into N subsequences."""

    features: np.ndarray  # (F, D) float16, normalised log-mel
    targets: np.ndarray  # (F,) int32
    bounds: np.ndarray  # (U + 1,) where each utterance begins, and the end
    num_pdfs: int

    def __post_init__(self) -> None:
        starts, fresh, utterances = [], [], []
        for number, (first, end) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            cuts = np.arange(first, end, FRAMES)
            starts.append(np.maximum(np.minimum(cuts, end - FRAMES), first))
            fresh.append(cuts)
            utterances.append(np.full(len(cuts), number))
        self._starts = np.concatenate(starts)  # first frame of each subsequence
        self._fresh = np.concatenate(fresh)  # first of its frames that is a target
        self._utterance = np.concatenate(utterances)
        taps = np.zeros((_ORDERS, FRAMES, FRAMES + 2 * _DELTA_REACH), np.float32)
        for frame in range(FRAMES):
            taps[:, frame, frame : frame + 2 * _DELTA_REACH + 1] = delta_filters()
        self._taps = torch.from_numpy(taps)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def inputs(self) -> int:
        """Dimensions of a frame with its deltas."""
        return _ORDERS * self.features.shape[1]

    def batch(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Read subsequences.

        :param indices: ``(batch,)``.
        :return: inputs ``(batch, 21, 3 D)`` float32; targets ``(batch, 21)`` int64, -100 where a frame has none.
        """
        utterance = self._utterance[indices]
        first, end = self.bounds[utterance][:, None], self.bounds[utterance + 1][:, None]
        frames = self._starts[indices][:, None] + np.arange(-_DELTA_REACH, FRAMES + _DELTA_REACH)
        wide = torch.from_numpy(self.features[np.clip(frames, first, end - 1)].astype(np.float32))
        inputs = torch.einsum("otw,bwd->btod", self._taps, wide).flatten(2)
        frames = frames[:, _DELTA_REACH:-_DELTA_REACH]
        targets = self.targets[np.clip(frames, first, end - 1)].astype(np.int64)
        targets[(frames < self._fresh[indices][:, None]) | (frames >= end)] = NO_TARGET
        return inputs, torch.from_numpy(targets)

    def log_priors(self) -> np.ndarray:
        """Log of each pdf's share of the frames, a frame added to each: ``(pdfs,)`` float32."""
        counts = np.bincount(self.targets, minlength=self.num_pdfs) + 1.0
        return np.log(counts / counts.sum()).astype(np.float32)

    @staticmethod
    def read(path: str | Path) -> FrameStore:
        """Open a folder that this module's command line has made; the frames stay on disk.

        :raises RecipeError: where it is not there.
        """
        path = Path(path)
        if not (path / "meta.json").exists():
            raise RecipeError(f"{path}: no frame store; run the stage 'egs'")
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        features = np.load(path / "features.npy", mmap_mode="r")
        return FrameStore(
            features, np.load(path / "targets.npy", mmap_mode="r"), np.load(path / "bounds.npy"), meta["num_pdfs"]
        )


def paired(
    features: FeatureSet, alignment: Iterable[tuple[str, np.ndarray]], num_pdfs: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features and pdf-ids of each aligned utterance.

    :raises RecipeError: where their numbers of frames differ, or a pdf-id is none of the model's.
    """
    for key, pdf_ids in alignment:
        frames = features[key]
        if len(frames) != len(pdf_ids):
            raise RecipeError(
                f"utterance {key}: {len(frames)} frames of features, {len(pdf_ids)} of alignment; were both made from the "
                "same audio, with the same snip_edges?"
            )
        if pdf_ids.min() < 0 or pdf_ids.max() >= num_pdfs:
            raise RecipeError(f"utterance {key}: pdf-id {pdf_ids.max()} in the alignment, the model has {num_pdfs}")
        yield frames.astype(np.float16), pdf_ids.astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--data", "--feats", "--alignment", "--model", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    data, num_pdfs = DataDir.read(arguments.data), HmmModel.load(arguments.model).num_pdfs
    features = FeatureSet(arguments.feats, "fbank", data.utt2side)
    alignments = read_archive(arguments.alignment)
    lost = sorted(set(data.utterances) - set(alignments))
    check_share(len(lost), len(data.utterances), lost, "have no alignment")
    aligned = ((key, alignments[key]) for key in tqdm(sorted(alignments), desc="egs", mininterval=2))
    rows, targets = zip(*paired(features, aligned, num_pdfs), strict=True)
    with atomic_dir(arguments.out) as folder:
        np.save(folder / "features.npy", np.concatenate(rows))
        np.save(folder / "targets.npy", np.concatenate(targets))
        np.save(folder / "bounds.npy", np.cumsum([0, *map(len, targets)]))
        (folder / "meta.json").write_text(json.dumps({"num_pdfs": num_pdfs}) + "\n", encoding="utf-8")
    store = FrameStore.read(arguments.out)
    print(f"egs: {len(store.targets)} frames, {len(store)} subsequences of {FRAMES}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
