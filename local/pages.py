"""What the HTML pages share: their looks, and diagrams as SVG."""

from __future__ import annotations

import html
import io
from collections.abc import Callable

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GRID = "#24292f", "#d9dee3"
COLOURS = ("#0b6bcb", "#d1495b", "#2e8b57", "#8a5fbf", "#c77700", "#5b6770", "#16a3a3", "#b04a92")
_DPI = 150  # of what cannot be drawn by lines

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #24292f; background: #f6f8fa; margin: 0; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 25px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 34px 0 10px; }
.sub { color: #57606a; margin: 0 0 6px; }
.note { background: #fff8e1; border-left: 4px solid #e0a800; padding: 9px 14px; margin: 16px 0; border-radius: 4px; }
.scroll { overflow-x: auto; background: #fff; border: 1px solid #d9dee3; border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 12px; text-align: left; border-bottom: 1px solid #eceff2; white-space: nowrap; font-size: 14px; }
td:last-child { white-space: normal; } th { background: #f0f3f6; font-weight: 600; } tr:last-child td { border-bottom: 0; }
th.n, td.n { text-align: right; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 16px; }
.pictures div { background: #fff; border: 1px solid #d9dee3; border-radius: 8px; padding: 8px; }
.pictures svg { width: 100%; height: auto; }
.utterances div { margin: 0 0 16px; padding: 8px; }
"""


def picture(draw: Callable[[Axes], None], title: str, x: str, y: str, size: tuple[float, float] = (5.4, 3.3)) -> str:
    """An SVG picture of one diagram; ``size`` is in inches."""
    figure, axes = plt.subplots(figsize=size)
    draw(axes)
    axes.set_title(title, fontsize=11, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    return svg(figure)


def svg(figure: Figure) -> str:
    """The figure as an SVG element; it is closed."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None}, dpi=_DPI)
    plt.close(figure)
    text = content.getvalue()
    return text[text.index("<svg") :]


def page(title: str, about: str, body: str, note: str = "") -> str:
    """A whole page that needs no other file.

    :param about: a line below the title; :param body: HTML; :param note: a warning above it.
    """
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><main><h1>{html.escape(title)}</h1>"
        f"<p class=sub>{html.escape(about)}</p>{f'<p class=note>{html.escape(note)}</p>' if note else ''}{body}</main></html>\n"
    )


def diagrams(pictures: list[str]) -> str:
    """Pictures side by side."""
    return f"<div class=pictures>{''.join(f'<div>{picture}</div>' for picture in pictures)}</div>"
