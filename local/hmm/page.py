"""A page on one GMM-HMM stage: its training, its tied states, and what its alignment gave to phones.

python -m local.hmm.page --folder align/tri1/35 --out align/tri1/page.html
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from local.cli import RecipeError, run
from local.features import FRAME_SHIFT
from local.files import write_text
from local.hmm.model import HmmModel
from local.pages import COLOURS, INK, diagrams, page, picture
from local.tables import Table, html_table

_FEW_FRAMES = (50, 100)  # a tied state with fewer is poorly trained
_SHARES = (0.1, 0.5, 0.9)  # of a phone's occurrences
_LIGHT_INK = "#b7c0c9"


def quantiles(counts: Mapping[int, int], shares: tuple[float, ...]) -> list[int]:
    """The smallest value that at least each of ``shares`` of the occurrences do not exceed."""
    values = sorted(counts)
    reached = np.cumsum([counts[value] for value in values])
    return [values[int(np.searchsorted(reached, share * reached[-1]))] for share in shares]


def summary(
    model: HmmModel, log: list[dict[str, Any]], stats: Mapping[str, Any], durations: Mapping[str, Counter[int]]
) -> Table:
    """The model and its alignment in figures.

    :param stats: the folder's ``alignment.json``.
    """
    hours = stats["frames"] * FRAME_SHIFT / 3600
    frames = {phone: sum(length * n for length, n in counts.items()) for phone, counts in durations.items()}
    silent = sum(frames.get(phone, 0) for phone in model.silence_phones)
    occupancy = model.occupancy
    source = "MFCC with deltas" if model.projection is None else "LDA and MLLT of spliced MFCC"
    few = ", ".join(f"{int((occupancy < limit).sum())} below {limit}" for limit in _FEW_FRAMES)
    return [
        ["part", "figures"],
        ["context", "triphones" if model.context_width > 1 else "monophones"],
        ["tied states", f"{model.num_pdfs}; by frames in training: {few}"],
        ["Gaussians", f"{model.gmm.num_gaussians}, {model.gmm.num_gaussians / model.num_pdfs:.1f} a tied state"],
        ["features", f"{model.gmm.means.shape[1]} dimensions: {source}"],
        ["adapted to speakers", "no" if model.unadapted is None else "yes, by fMLLR"],
        ["training", f"{len(log)} iterations on {log[-1]['frames']} frames"],
        [
            "aligned",
            f"{stats['utterances']} utterances, {stats['frames']} frames ({hours:.2f} h)",
        ],
        ["not aligned", f"{len(stats['failed'])}{': ' if stats['failed'] else ''}{' '.join(stats['failed'][:5])}"],
        ["log-likelihood a frame, of the best paths", f"{stats['log_likelihood'] / stats['frames']:.2f}"],
        ["frames of silence and noise", f"{100 * silent / sum(frames.values()):.1f} %"],
    ]


def likelihood_picture(log: list[dict[str, Any]]) -> str:
    """Log-likelihood by iteration; those that began with a new alignment are marked."""

    def draw(axes: Axes) -> None:
        iterations = [line["iteration"] for line in log]
        values = [line["log_likelihood_per_frame"] for line in log]
        axes.plot(iterations, values, "o-", ms=3, lw=1.4, color=COLOURS[0])
        new = [place for place, line in enumerate(log) if line["realigned"]]
        if new:
            marked = [iterations[place] for place in new], [values[place] for place in new]
            axes.plot(*marked, "o", ms=7, mfc="none", color=COLOURS[1], label="aligned anew")

    return picture(draw, "Training", "iteration", "log-likelihood a frame")


def occupancy_picture(model: HmmModel) -> str:
    """Frames of every tied state, and its Gaussians, by rank."""
    order = model.occupancy.argsort(descending=True)

    def draw(axes: Axes) -> None:
        rank = np.arange(1, len(order) + 1)
        # 0.5 stands for no frame at all, which has no logarithm
        axes.semilogy(rank, model.occupancy[order].clamp_min(0.5), lw=1.6, color=COLOURS[0], label="frames")
        axes.semilogy(rank, model.gmm.sizes[order], ".", ms=2.5, color=COLOURS[2], label="Gaussians")
        for limit in _FEW_FRAMES:
            axes.axhline(limit, color=COLOURS[1], lw=0.8, ls="--")
            below = int((model.occupancy < limit).sum())
            axes.annotate(f"{below} below {limit}", (0, limit), fontsize=7, color=COLOURS[1], va="bottom")

    return picture(draw, "Tied states", "rank by frames in training", "frames; Gaussians")


def duration_picture(durations: Mapping[str, Counter[int]]) -> str:
    """Median and 10 to 90 % of every phone's length, the longest first."""
    rows = sorted(((quantiles(counts, _SHARES), phone) for phone, counts in durations.items()), key=lambda row: row[0][1])[::-1]

    def draw(axes: Axes) -> None:
        for place, ((low, median, high), _) in enumerate(rows):
            axes.plot([place] * 2, [1000 * FRAME_SHIFT * low, 1000 * FRAME_SHIFT * high], lw=3, color=_LIGHT_INK)
            axes.plot(place, 1000 * FRAME_SHIFT * median, "o", ms=4, color=COLOURS[0])
        axes.set_xticks(range(len(rows)), [phone for _, phone in rows])
        axes.set_xlim(-0.7, len(rows) - 0.3)
        axes.set_yscale("log")
        axes.set_yticks([30, 50, 100, 200, 400, 800], ["30", "50", "100", "200", "400", "800"])
        axes.minorticks_off()
        axes.tick_params(axis="x", labelcolor=INK)

    return picture(draw, "Phones' lengths: median, and 10 to 90 %", "", "ms", size=(11.2, 2.9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="of a stage's last iteration")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    folder = arguments.folder
    model = HmmModel.load(folder / "model.pt")
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    if not log:
        raise RecipeError(f"{folder}/log.jsonl: no iteration in it; train again with the stage 'align'")
    stats = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
    durations = {phone: Counter(dict(counts)) for phone, counts in stats["durations"].items()}
    body = (
        f"{html_table(summary(model, log, stats, durations))}<h2>Pictures</h2>"
        f"{diagrams([likelihood_picture(log), occupancy_picture(model)])}"
        f"<h2>Alignment of the training set</h2><div class=scroll>{duration_picture(durations)}</div>"
    )
    write_text(arguments.out, page(f"GMM-HMM: {folder.parent.name}", f"{folder}", body))


if __name__ == "__main__":
    run(main)
