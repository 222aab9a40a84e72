"""Scores for decoding: a trained network's log posteriors less the log priors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from local.am.model import AcousticModel, AmConf
from local.cli import RecipeError, from_mapping


class NetworkScorer:
    """Inputs ``(frames, inputs)`` to ``(frames, pdfs)``: log p(x | pdf) up to a constant of the frame."""

    def __init__(self, model: AcousticModel, log_priors: Tensor, kinds: list[str]) -> None:
        """:param kinds: the parts of the inputs, by :mod:`local.am.inputs`."""
        self.model = model.eval()
        self.log_priors = log_priors
        self.kinds = kinds

    @staticmethod
    def load(path: str | Path) -> NetworkScorer:
        """Read what training has written.

        :raises RecipeError: where there is none, or it is another kind of file.
        """
        if not Path(path).exists():
            raise RecipeError(f"{path}: no such network; run the stage 'train'")
        try:
            content = torch.load(path, weights_only=True)
            model = AcousticModel(content["inputs"], content["pdfs"], from_mapping(AmConf, content["am"], str(path)))
            model.load_state_dict(content["model"])
            return NetworkScorer(model, content["log_priors"], content["kinds"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise RecipeError(f"{path}: no network of this recipe ({error}); run the stage 'train' again") from None

    @torch.inference_mode()
    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Score an utterance in one pass: the network hears all of it, though it was trained on 21 frames at a time."""
        logits = self.model(torch.from_numpy(inputs)[None])[0]
        return (logits.log_softmax(1) - self.log_priors).numpy()
