"""What the network sees of a frame: fMLLR features, the side's i-vector, log-mel with deltas and delta-deltas.

With 40 fMLLR, 100 i-vector and 40 log-mel dimensions these are the paper's 260 (from memory of it). All but log-mel may be
left out. The frame store and the decoder get them from here, in this order.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from local.adaptation.linear import apply
from local.cli import RecipeError
from local.datadir import DataDir
from local.features import FeatureSet, add_deltas
from local.files import read_archive
from local.hmm.align import gmm_input
from local.hmm.model import HmmModel

FMLLR, IVECTOR, FBANK = "fmllr", "ivector", "fbank"


@dataclass
class Inputs:
    """The parts of a set's inputs, read when asked for."""

    fbank: FeatureSet  # (frames, 40) each
    utt2side: Mapping[str, str]
    fmllr: Mapping[str, np.ndarray] | None = None  # (frames, 40) each, by utterance
    ivectors: Mapping[str, np.ndarray] | None = None  # (100,) each, by side

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Options that name the parts beside log-mel."""
        parser.add_argument("--transforms", type=Path, help="index of the speakers' fMLLR transforms")
        parser.add_argument("--fmllr", type=Path, help="index of fMLLR features, in place of transforms")
        parser.add_argument("--ivectors", type=Path, help="index of the sides' i-vectors")

    @staticmethod
    def of_arguments(arguments: argparse.Namespace, data: DataDir, model: HmmModel | None = None) -> Inputs:
        """Open the parts of a set that these options, ``--feats`` beside them, name.

        :param model: that of ``--model``, where it has been read already.
        :raises RecipeError: where a speaker or a side has none, or transforms have no model.
        """
        inputs = Inputs(FeatureSet(arguments.feats, FBANK, data.utt2side), data.utt2side)
        if arguments.transforms:
            if arguments.model is None:
                raise RecipeError("--transforms needs --model: fMLLR features are those of its projection")
            model = model or HmmModel.load(arguments.model)
            inputs.fmllr = Adapted(data, arguments.feats, model, arguments.transforms)
        elif arguments.fmllr:
            inputs.fmllr = read_archive(arguments.fmllr)
        if arguments.ivectors:
            inputs.ivectors = read_archive(arguments.ivectors, expected=set(data.utt2side.values()))
        return inputs

    def __contains__(self, key: str) -> bool:
        """Whether an utterance has all parts."""
        return key in self.fbank and (self.fmllr is None or key in self.fmllr)

    @property
    def kinds(self) -> list[str]:
        """Names of the parts, in order."""
        given = {FMLLR: self.fmllr, IVECTOR: self.ivectors, FBANK: self.fbank}
        return [name for name, part in given.items() if part is not None]

    def parts(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """fMLLR features of an utterance, ``(frames, F)``, of no dimensions where there are none, and log-mel ``(frames, D)``.

        :raises RecipeError: where their numbers of frames differ.
        """
        fbank = self.fbank[key]
        if self.fmllr is None:
            return fbank[:, :0], fbank
        if key not in self.fmllr:
            raise RecipeError(f"utterance {key} has log-mel and no fMLLR features; make both of the same data")
        fmllr = self.fmllr[key]
        if len(fmllr) != len(fbank):
            raise RecipeError(
                f"utterance {key}: {len(fbank)} frames of log-mel, {len(fmllr)} of fMLLR features; were both made from the "
                "same audio, with the same snip_edges?"
            )
        return fmllr, fbank

    def of_side(self, side: str) -> np.ndarray:
        """The i-vector of a side, ``(I,)`` float32; of no dimensions where there are none."""
        return np.zeros(0, np.float32) if self.ivectors is None else self.ivectors[side]

    def whole(self, key: str) -> np.ndarray:
        """All of an utterance's input, ``(frames, inputs)`` float32."""
        fmllr, fbank = self.parts(key)
        side = self.of_side(self.utt2side[key])
        return np.concatenate([fmllr, np.broadcast_to(side, (len(fbank), len(side))), add_deltas(fbank)], axis=1)


class Adapted(Mapping[str, np.ndarray]):
    """fMLLR features by utterance, each computed when asked for."""

    def __init__(self, data: DataDir, feats: Path, model: HmmModel, transforms: Path) -> None:
        self._mfcc = FeatureSet(feats, "mfcc", data.utt2side)
        self._speaker = data.utt2spk
        self._projection = model.projection
        self._transforms = read_archive(transforms, expected={self._speaker[key] for key in self._mfcc})

    def __getitem__(self, key: str) -> np.ndarray:
        transform = torch.tensor(self._transforms[self._speaker[key]])
        return apply(transform, gmm_input(self._mfcc[key], self._projection)).numpy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._mfcc)

    def __len__(self) -> int:
        return len(self._mfcc)
