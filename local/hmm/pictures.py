"""Pictures of aligned utterances: what was heard, and where words and phones begin and end."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.transforms import blended_transform_factory

from local.cli import RecipeError
from local.datadir import DataDir
from local.features import FRAME_SHIFT, FeatureSet
from local.files import read_archive
from local.pages import COLOURS, INK, svg

Side = tuple[str, str]  # call and side: sw02001, A

_INCHES_A_SECOND = 2.4
_MIN_WIDTH = 5.0  # inches
_MARGIN = 0.3  # inches, at either side
_DEVIATIONS = (-2.0, 2.5)  # of the normalised log-mel energies: from white to black


@dataclass(frozen=True)
class Span:
    """A word or phone from ``start`` to ``end``, in seconds."""

    label: str
    start: float
    end: float


def read_ctm(path: Path) -> Iterator[tuple[Side, Span]]:
    """The lines ``file side start length label`` of an alignment, one at a time: they may be millions.

    :raises RecipeError: for a line of another form, with its number.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                call, side, start, length, label = line.split()
                yield (call, side), Span(label, float(start), float(start) + float(length))
            except ValueError:
                raise RecipeError(
                    f"{path}:{number}: expected 'file side start length label', found {line[:80]!r}; align again"
                ) from None


def aligned_picture(fbank: np.ndarray, words: Sequence[Span], phones: Sequence[Span], title: str) -> str:
    """An SVG of an utterance: its spectrogram, with words and phones above.

    A frame is drawn from the start of its window to that of the next one, as alignments count time.

    :param fbank: normalised log-mel energies ``(frames, bins)``.
    :param words: in seconds into the utterance; silences are among ``phones`` alone.
    """
    seconds, bins = len(fbank) * FRAME_SHIFT, fbank.shape[1]
    width = max(_MIN_WIDTH, _INCHES_A_SECOND * seconds) + 2 * _MARGIN
    figure, axes = plt.subplots(figsize=(width, 2.9))
    figure.subplots_adjust(left=_MARGIN / width, right=1 - _MARGIN / width, bottom=0.12, top=0.68)
    axes.imshow(
        fbank.T,
        origin="lower",
        aspect="auto",
        cmap="Greys",
        interpolation="nearest",
        extent=(0, seconds, 0, bins),
        vmin=_DEVIATIONS[0],
        vmax=_DEVIATIONS[1],
    )
    above = blended_transform_factory(axes.transData, axes.transAxes)
    style = {"transform": above, "ha": "center", "va": "center", "clip_on": False}
    for place, phone in enumerate(phones):  # at two heights in turn: the short ones have no room beside each other
        axes.plot([phone.start] * 2, [0, 1.22], transform=above, color=COLOURS[0], lw=0.6, clip_on=False)
        middle = (phone.start + phone.end) / 2
        axes.text(middle, 1.06 + 0.1 * (place % 2), phone.label, fontsize=7, color=INK, **style)
    for word in words:
        for edge in (word.start, word.end):
            axes.plot([edge] * 2, [0, 1.34], transform=above, color=COLOURS[1], lw=1.1, clip_on=False)
        axes.text((word.start + word.end) / 2, 1.28, word.label, fontsize=8.5, color=COLOURS[1], **style)
    axes.text(0, 1.45, title, transform=above, fontsize=10, color=INK, ha="left", va="center")
    axes.set_xlim(0, seconds)
    axes.set_xticks(np.arange(0, seconds, 0.1 if seconds < 1.5 else 0.25))
    axes.set_yticks([])
    axes.tick_params(labelsize=7, length=2)
    axes.set_xlabel("seconds", fontsize=7, labelpad=0)
    return svg(figure)


def utterance_pictures(alignment: Path, data: DataDir, feats: Path, count: int = 3) -> list[str]:
    """SVG pictures of ``count`` utterances of about median length, each of another side, with words and phones.

    :param alignment: the folder with ``ali.scp``, ``words.ctm`` and ``phones.ctm`` of ``data``.
    :raises RecipeError: where none is aligned.
    """
    lengths = {key: data.utterances[key].duration for key in read_archive(alignment / "ali.scp")}
    median = statistics.median(lengths.values())
    chosen: dict[str, str] = {}  # side to utterance
    for key in sorted(lengths, key=lambda key: (abs(lengths[key] - median), key)):
        chosen.setdefault(data.utterances[key].recording, key)
        if len(chosen) == count:
            break
    sides = {(data.recordings[side].file, data.recordings[side].side): key for side, key in chosen.items()}
    words, phones = (_spans(alignment / name, data, sides) for name in ("words.ctm", "phones.ctm"))
    fbank = FeatureSet(feats, "fbank", {key: side for side, key in chosen.items()})
    return [aligned_picture(fbank[key], words[key], phones[key], key) for key in chosen.values()]


def _spans(path: Path, data: DataDir, chosen: Mapping[Side, str]) -> dict[str, list[Span]]:
    """Of each utterance chosen, what lies in it: in seconds into the utterance."""
    spans: dict[str, list[Span]] = {key: [] for key in chosen.values()}
    for side, span in read_ctm(path):
        if side in chosen:
            utterance = data.utterances[chosen[side]]
            start, end = span.start - utterance.start, span.end - utterance.start
            if 0 <= (start + end) / 2 < utterance.duration:
                spans[utterance.id].append(Span(span.label, start, end))
    return spans
