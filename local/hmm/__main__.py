"""Look into an alignment: align one utterance, and print what its words, phones and frames got.

    python -m local.hmm show --model align/tri4/35/model.pt --data D --feats F --lang L UTTERANCE \\
        [--transforms align/network/train/fmllr.scp] [--picture utterance.svg]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from local.adaptation.linear import apply
from local.cli import RecipeError, nearest, run
from local.datadir import DataDir, Utterance
from local.features import FRAME_SHIFT, FeatureSet
from local.files import read_archive, write_text
from local.hmm.align import Aligner, Alignment, gmm_input
from local.hmm.model import HmmModel
from local.hmm.pictures import Span, aligned_picture
from local.lexicon import Lang
from local.tables import plain

_SILENCE = "-"  # where a table's row is of no word


@dataclass
class Shown:
    """An utterance's alignment, and how well each frame fits the state it went to."""

    utterance: Utterance
    alignment: Alignment
    fit: np.ndarray  # (frames,) log-likelihood of each frame under its pdf

    def phones(self) -> Iterator[tuple[str, str, slice]]:
        """Word, phone and frames of every phone in order; silence is of no word."""
        words = iter(self.alignment.words)
        place, first, frames = next(words, (0, 0, 0))
        for phone, start, length in self.alignment.phones:
            while start >= first + frames and (following := next(words, None)):
                place, first, frames = following
            spoken = first <= start < first + frames
            yield self.utterance.words[place] if spoken else _SILENCE, phone, slice(start, start + length)

    def spans(self) -> tuple[list[Span], list[Span]]:
        """Words and phones, in seconds into the utterance."""
        words = [(self.utterance.words[place], first, frames) for place, first, frames in self.alignment.words]
        first, second = (
            [Span(label, start * FRAME_SHIFT, (start + frames) * FRAME_SHIFT) for label, start, frames in rows]
            for rows in (words, self.alignment.phones)
        )
        return first, second

    def table(self) -> list[list[str]]:
        """A row of headings, then a row a phone; the word stands at its first phone."""
        rows = [["word", "phone", "start s", "length s", "log-likelihood a frame", "pdf-ids (frames)"]]
        firsts = {first for _, first, _ in self.alignment.words}
        for word, phone, frames in self.phones():
            ids = self.alignment.pdf_ids[frames]
            starts = np.flatnonzero(np.diff(ids, prepend=-1))
            runs = zip(ids[starts], np.diff(starts, append=len(ids)), strict=True)
            rows.append(
                [
                    word if word == _SILENCE or frames.start in firsts else "",
                    phone,
                    f"{frames.start * FRAME_SHIFT:.2f}",
                    f"{len(ids) * FRAME_SHIFT:.2f}",
                    f"{self.fit[frames].mean():.2f}",
                    " ".join(f"{pdf} ({count})" for pdf, count in runs),
                ]
            )
        return rows


def show(
    model: HmmModel, lang: Lang, data: DataDir, feats: Path, key: str, transforms: Mapping[str, Tensor] | None = None
) -> Shown:
    """Align the utterance ``key``.

    :param transforms: of the speakers, for a speaker-adapted model; without them it aligns as in its first pass.
    :raises RecipeError: for an utterance that is not there, has no features or too few frames for its words; for a
        speaker without a transform, and for transforms that the model has no use for.
    """
    if key not in data.utterances:
        alike = heapq.nlargest(10, data.utterances, key=lambda known: _common(known, key))
        raise RecipeError(f"no utterance {key} in the data directory{nearest(key, alike)}")
    utterance = data.utterances[key]
    features = FeatureSet(feats, "mfcc", {key: utterance.recording})
    if key not in features:
        raise RecipeError(f"{feats}: utterance {key} has no features; it is shorter than a window, or of another set")
    x, gmm = gmm_input(features[key], model.projection), model.gmm
    if model.unadapted is None and transforms is not None:
        raise RecipeError("this model is not adapted to speakers; leave --transforms out")
    if model.unadapted is not None and transforms is None:
        gmm = model.unadapted
    elif transforms is not None:
        if utterance.speaker not in transforms:
            raise RecipeError(f"--transforms has none of speaker {utterance.speaker}; take those of this set's alignment")
        x = apply(transforms[utterance.speaker], x)
    aligner = Aligner(model, lang, gmm)
    [(_, alignment)] = aligner.align_features([(key, x, aligner.compile(utterance.words))])
    if alignment is None:
        raise RecipeError(f"utterance {key}: its {len(x)} frames are too few for its {len(utterance.words)} words")
    pdf_ids = torch.from_numpy(alignment.pdf_ids).long()
    ids, column = pdf_ids.unique(return_inverse=True)
    fit = gmm.log_likelihoods(x, ids).gather(1, column[:, None])[:, 0]
    return Shown(utterance, alignment, fit.numpy())


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("show", help="align one utterance and print where its frames went")
    for name in ("--model", "--data", "--feats", "--lang"):
        command.add_argument(name, type=Path, required=True)
    command.add_argument("utterance")
    command.add_argument("--transforms", type=Path, help="fmllr.scp of the set's alignment, for a speaker-adapted model")
    command.add_argument("--picture", type=Path, help="an SVG to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model, data, key = HmmModel.load(arguments.model), DataDir.read(arguments.data), arguments.utterance
    transforms = None
    if arguments.transforms:
        transforms = {
            speaker: torch.from_numpy(np.array(matrix)) for speaker, matrix in read_archive(arguments.transforms).items()
        }
    shown = show(model, Lang.read(arguments.lang), data, arguments.feats, key, transforms)
    frames = len(shown.fit)
    print(f"{key}, speaker {shown.utterance.speaker}: {' '.join(shown.utterance.words)}\n")
    if model.unadapted is not None and transforms is None:
        print("A speaker-adapted model without --transforms: aligned with its unadapted mixtures, as in its first pass.\n")
    print(plain(shown.table()))
    print(f"log-likelihood a frame, {frames} frames: {shown.fit.mean():.2f} of the frames given their states,")
    print(f"{shown.alignment.log_likelihood / frames:.2f} with transitions and pronunciations")
    if arguments.picture:
        fbank = FeatureSet(arguments.feats, "fbank", {key: shown.utterance.recording})[key]
        write_text(arguments.picture, aligned_picture(fbank, *shown.spans(), key))


if __name__ == "__main__":
    run(main)
