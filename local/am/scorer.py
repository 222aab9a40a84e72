"""Scores for decoding: a trained network's log posteriors less the log priors.

    python -m local.am.scorer --network train/S/final.pt --data data/eval2000 --feats feats/eval2000 \\
        --fmllr kaldi/eval2000/feats.scp --ivectors ivectors/eval2000/ivectors.scp --job 0 --jobs 4 --out OUT/0/likelihoods.scp

writes them as a Kaldi archive, for Kaldi's own decoders: ``latgen-faster-mapped final.mdl HCLG.fst scp:likelihoods.scp ...``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.am.inputs import Inputs
from local.am.model import AcousticModel, AmConf
from local.cli import RecipeError, from_mapping, run
from local.datadir import DataDir
from local.files import write_archive
from local.saved import saved

_FRAMES_AT_ONCE = 2000  # that go through a network together: 32,000 scores of each are 256 MB


class NetworkScorer:
    """Inputs ``(frames, inputs)`` of each utterance to ``(frames, pdfs)``: log p(x | pdf) up to a constant of the frame."""

    def __init__(self, model: AcousticModel, log_priors: Tensor, kinds: list[str], device: str = "cpu") -> None:
        """:param kinds: the parts of the inputs, by :mod:`local.am.inputs`."""
        self.model = model.eval().to(device)
        self.log_priors = log_priors.to(device)
        self.kinds = kinds

    @staticmethod
    def load(path: str | Path, device: str = "cpu") -> NetworkScorer:
        """Read what training has written.

        :raises RecipeError: where there is none, or it is another kind of file.
        """
        with saved(path, "network", "train") as content:
            model = AcousticModel(content["inputs"], content["pdfs"], from_mapping(AmConf, content["am"], str(path)))
            model.load_state_dict(content["model"])
            return NetworkScorer(model, content["log_priors"], content["kinds"], device)

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Score utterances, each in one pass: the network hears all of it, though it was trained on 21 frames at a time."""
        device = self.log_priors.device
        logits = self.model.utterances([torch.from_numpy(frames).to(device) for frames in inputs])
        return [(scores.log_softmax(1) - self.log_priors).cpu().numpy() for scores in logits]


def network_scores(
    network: Path, inputs: Inputs, device: str = "cpu"
) -> Callable[[Sequence[str]], Iterator[tuple[str, np.ndarray | None]]]:
    """Utterance ids to scores ``(frames, pdfs)`` float32 of each, in order; ``None`` where it has no frames.

    A few utterances go through the network together; no more are kept.

    :raises RecipeError: where the network was trained on other inputs.
    """
    scorer = NetworkScorer.load(network, device)
    if scorer.kinds != inputs.kinds:
        raise RecipeError(f"{network}: a network of inputs {scorer.kinds}, found {inputs.kinds}: see --transforms, --ivectors")

    def read(key: str) -> np.ndarray | None:
        if key not in inputs.fbank:
            return None
        frames = inputs.whole(key)
        if frames.shape[1] != scorer.model.lstm.input_size:
            raise RecipeError(
                f"utterance {key}: {frames.shape[1]} inputs a frame, {network} was trained on {scorer.model.lstm.input_size}"
            )
        return frames

    def scored(waiting: list[tuple[str, np.ndarray | None]]) -> Iterator[tuple[str, np.ndarray | None]]:
        results = iter(scorer([frames for _, frames in waiting if frames is not None]))
        return ((key, None if frames is None else next(results)) for key, frames in waiting)

    def scores_of(keys: Sequence[str]) -> Iterator[tuple[str, np.ndarray | None]]:
        waiting: list[tuple[str, np.ndarray | None]] = []
        for key in keys:
            waiting.append((key, read(key)))
            if sum(len(frames) for _, frames in waiting if frames is not None) >= _FRAMES_AT_ONCE:
                yield from scored(waiting)
                waiting = []
        yield from scored(waiting)

    return scores_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--network", "--data", "--feats", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--model", type=Path, help="the model that the transforms belong to, for its projection")
    Inputs.add_arguments(parser)
    parser.add_argument("--job", type=int, required=True, help="from 0")
    parser.add_argument("--jobs", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # jobs run side by side instead
    data = DataDir.read(arguments.data).split(arguments.jobs)[arguments.job]
    scores_of = network_scores(arguments.network, Inputs.of_arguments(arguments, data))
    scores = tqdm(scores_of(list(data.utterances)), total=len(data.utterances), desc="likelihoods", mininterval=2)
    write_archive(arguments.out, ((key, matrix) for key, matrix in scores if matrix is not None))


if __name__ == "__main__":
    run(main)
