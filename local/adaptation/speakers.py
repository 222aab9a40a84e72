"""A speaker's fMLLR transform from a first pass: a model's own alignment, or words that were decoded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from local.adaptation.linear import MIN_FRAMES, FmllrStats, apply, fmllr, identity_transform
from local.cli import RecipeError
from local.hmm.model import HmmModel


def speaker_transform(
    model: HmmModel, features: Sequence[Tensor], pdf_ids: Sequence[Tensor], before: Tensor | None = None
) -> Tensor:
    """Estimate the transform ``(D, D + 1)`` of one speaker for a speaker-adapted model; silence does not count.

    :param features: of the speaker's utterances before adaptation, each ``(frames, D)``.
    :param pdf_ids: an alignment of each, ``(frames,)``.
    :param before: the transform found so far: frames are shared out as adapted by it. None: by the unadapted Gaussians at
        first, then as adapted.
    :return: the identity where there is too little speech.
    :raises RecipeError: where the model is not adapted to speakers.
    """
    if model.unadapted is None:
        raise RecipeError("this model is not adapted to speakers; take that of the stage 'sat'")
    if not features:
        return identity_transform(model.unadapted.means.shape[1])
    x, pdfs = torch.cat(list(features)), torch.cat(list(pdf_ids))
    speech = ~model.silence_pdfs()[pdfs]
    x, pdfs = x[speech], pdfs[speech]
    if before is None:
        before = fmllr(FmllrStats.of(model.gmm, x, pdfs, posteriors_of=model.unadapted), MIN_FRAMES)
    return fmllr(FmllrStats.of(model.gmm, x, pdfs, transformed=apply(before, x)), MIN_FRAMES, before)
