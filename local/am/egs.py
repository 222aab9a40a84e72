"""The frame store that the network is trained from: inputs and pdf-ids of a set, memory-mapped.

    python -m local.am.egs --data data/train --feats feats/train --alignment align/network/train \\
        --transforms align/network/train/fmllr.scp --model align/network/model.pt --ivectors ivectors/train/ivectors.scp \\
        --out egs/train

Training takes non-overlapping subsequences of 21 frames (the paper's, from memory of it). What is left over at an
utterance's end becomes a subsequence that reaches back into the one before, its repeated frames without a target: every
frame is a target exactly once an epoch. Deltas are added on reading, from the utterance's own neighbouring frames, and so is
the side's i-vector. A frame of 40 fMLLR and 40 log-mel dimensions takes 164 bytes, 2,000 hours of them 118 GB. In float16
these features, of about unit variance, keep three digits: the rounding is a two-thousandth of their spread.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.am.inputs import Inputs
from local.cli import RecipeError, run
from local.datadir import DataDir
from local.files import atomic_dir, read_archive, write_text
from local.hmm.align import check_share

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

    features: np.ndarray  # (F, P + D) float16: features to be taken as they are (fMLLR), and those to get deltas (log-mel)
    plain: int  # P
    targets: np.ndarray  # (F,) int32
    bounds: np.ndarray  # (U + 1,) where each utterance begins, and the end
    ivectors: np.ndarray  # (S, I) float32, of the sides
    sides: np.ndarray  # (U,) the side of each utterance
    num_pdfs: int
    kinds: list[str]  # the parts of the input: see local.am.inputs

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
        """Dimensions of a frame with its i-vector and deltas."""
        return self.plain + self.ivectors.shape[1] + _ORDERS * (self.features.shape[1] - self.plain)

    def batch(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Read subsequences.

        :param indices: ``(batch,)``.
        :return: inputs ``(batch, 21, P + I + 3 D)`` float32; targets ``(batch, 21)`` int64, -100 where a frame has none.
        """
        utterance = self._utterance[indices]
        first, end = self.bounds[utterance][:, None], self.bounds[utterance + 1][:, None]
        frames = self._starts[indices][:, None] + np.arange(-_DELTA_REACH, FRAMES + _DELTA_REACH)
        wide = torch.from_numpy(self.features[np.clip(frames, first, end - 1)]).float()
        with_deltas = torch.einsum("otw,bwd->btod", self._taps, wide[:, :, self.plain :]).flatten(2)
        ivectors = torch.from_numpy(self.ivectors[self.sides[utterance]])[:, None].expand(-1, FRAMES, -1)
        inputs = torch.cat([wide[:, _DELTA_REACH:-_DELTA_REACH, : self.plain], ivectors, with_deltas], 2)
        frames = frames[:, _DELTA_REACH:-_DELTA_REACH]
        targets = self.targets[np.clip(frames, first, end - 1)].astype(np.int64)
        targets[(frames < self._fresh[indices][:, None]) | (frames >= end)] = NO_TARGET
        return inputs, torch.from_numpy(targets)

    def log_priors(self) -> np.ndarray:
        """Log of each pdf's share of the frames, a frame added to each: ``(pdfs,)`` float32.

        A pdf without frames has 0: what little the network gives it, divided by next to nothing, would win over the others.
        """
        frames = np.bincount(self.targets, minlength=self.num_pdfs)
        return np.where(frames, np.log((frames + 1) / (frames + 1).sum()), 0).astype(np.float32)

    @staticmethod
    def read(path: str | Path) -> FrameStore:
        """Open a folder that this module's command line has made; the frames stay on disk.

        :raises RecipeError: where it is not there.
        """
        path = Path(path)
        if not (path / "meta.json").exists():
            raise RecipeError(f"{path}: no frame store; run the stage 'egs'")
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        return FrameStore(
            features=np.load(path / "features.npy", mmap_mode="r"),
            targets=np.load(path / "targets.npy", mmap_mode="r"),
            **{name: np.load(path / f"{name}.npy") for name in ("bounds", "ivectors", "sides")},
            **meta,
        )


def write_store(inputs: Inputs, alignments: Mapping[str, np.ndarray], num_pdfs: int, out: Path) -> None:
    """Write the store of the aligned utterances, one after another: the features never stand in memory together.

    :param alignments: pdf-ids of each utterance, ``(frames,)``.
    :raises RecipeError: where an utterance's numbers of frames differ, a pdf-id is none of the model's, or features are no
        numbers of float16; where more than 5 % of the utterances lack a part.
    """
    keys = sorted(key for key in alignments if key in inputs)
    lost = sorted(set(alignments) - set(keys))
    check_share(len(lost), len(alignments), lost, f"are aligned and have not all of {inputs.kinds}")
    bounds = np.cumsum([0, *(len(alignments[key]) for key in keys)])
    sides = sorted({inputs.utt2side[key] for key in keys})
    place = {side: number for number, side in enumerate(sides)}
    side_of = np.array([place[inputs.utt2side[key]] for key in keys])
    plain, dims = (part.shape[1] for part in inputs.parts(keys[0]))
    with atomic_dir(out) as folder:
        frames = int(bounds[-1])
        features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float16, (frames, plain + dims))
        targets = np.lib.format.open_memmap(folder / "targets.npy", "w+", np.int32, (frames,))
        for key, first, end in zip(tqdm(keys, desc="egs", mininterval=2), bounds, bounds[1:], strict=False):
            whole, pdfs = np.concatenate(inputs.parts(key), axis=1), alignments[key]
            if len(whole) != len(pdfs):
                raise RecipeError(
                    f"utterance {key}: {len(whole)} frames of features, {len(pdfs)} of alignment; were both made from the "
                    "same audio, with the same snip_edges?"
                )
            if pdfs.min() < 0 or pdfs.max() >= num_pdfs:
                raise RecipeError(f"utterance {key}: pdf-id {pdfs.max()} in the alignment, the model has {num_pdfs}")
            if whole.shape[1] != plain + dims:
                raise RecipeError(f"utterance {key}: {whole.shape[1]} features a frame, {plain + dims} in utterance {keys[0]}")
            if not (np.abs(whole) < np.finfo(np.float16).max).all():
                raise RecipeError(f"utterance {key}: its features are not all finite and within float16; make them anew")
            features[first:end], targets[first:end] = whole, pdfs
        features.flush()
        targets.flush()
        np.save(folder / "bounds.npy", bounds)
        np.save(folder / "ivectors.npy", np.stack([inputs.of_side(side) for side in sides]))
        np.save(folder / "sides.npy", side_of)
        meta = {"num_pdfs": num_pdfs, "plain": plain, "kinds": inputs.kinds}
        write_text(folder / "meta.json", json.dumps(meta) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--data", "--feats", "--alignment", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--model", type=Path, help="the model that the transforms belong to, for its projection")
    Inputs.add_arguments(parser)
    arguments = parser.parse_args()
    data = DataDir.read(arguments.data)
    alignments = read_archive(arguments.alignment / "ali.scp")
    num_pdfs = json.loads((arguments.alignment / "stats.json").read_text(encoding="utf-8"))["num_pdfs"]
    lost = sorted(set(data.utterances) - set(alignments))
    check_share(len(lost), len(data.utterances), lost, "have no alignment")
    write_store(Inputs.of_arguments(arguments, data), alignments, num_pdfs, arguments.out)
    store = FrameStore.read(arguments.out)
    print(f"egs: {len(store.targets)} frames, {len(store)} subsequences of {FRAMES}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
