"""Scores for people to read, laid out like sclite's: a table by speaker and label, and every alignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from local.score.align import judge
from local.score.wer import Line, Result, cross_entropy, total

COLUMNS = ("# Snt", "# Wrd", "Corr", "Sub", "Del", "Ins", "Err", "S.Err", "NCE")
_OF_WORDS = slice(2, 7)  # the columns that are shares of the reference's words
_WIDTH = 118  # characters of an alignment before it goes on below


@dataclass
class Row:
    """A row of the table: a figure a column, None where there is none."""

    name: str
    figures: list[float | None]
    shares: bool  # whether what can be percent is, rather than counts


def row(name: str, lines: Sequence[Line], percent: bool) -> Row:
    """The figures of some segments, in percent of the reference's words (``S.Err``: of the segments) or in counts.

    Without words in the reference there are only counts, as in sclite.
    """
    counts = total(lines)
    wrong = sum(line.counts.errors > 0 for line in lines)
    shares = percent and counts.words > 0
    of_words = (counts.correct, counts.substituted, counts.deleted, counts.inserted, counts.errors)
    return Row(
        name,
        [
            len(lines),
            counts.words,
            *(100 * number / counts.words if shares else number for number in of_words),
            100 * wrong / max(len(lines), 1) if percent else wrong,
            cross_entropy(lines),
        ],
        shares,
    )


def system_rows(result: Result, percent: bool) -> list[list[Row]]:
    """The speakers; all of them and the labels; the speakers' mean, standard deviation and median.

    In percent, the latter leave out speakers without words in the reference, but for the numbers of segments and words.
    """
    speakers = [row(name, lines, percent) for name, lines in result.speakers().items()]
    sums = [row("Sum/Avg" if percent else "Sum", result.lines, percent)]
    sums += [
        row(f"<{label}> {about.name}", lines, percent) for label, about in result.labels.items() if (lines := result.of(label))
    ]
    columns = []
    for column in range(len(COLUMNS)):
        some = [r for r in speakers if r.shares or not percent or column not in range(len(COLUMNS))[_OF_WORDS]]
        columns.append([figure for r in some if (figure := r.figures[column]) is not None])
    statistics = [
        Row("Mean", [float(np.mean(values)) if values else None for values in columns], percent),
        Row("S.D.", [float(np.std(values, ddof=len(values) > 1)) if values else None for values in columns], percent),
        Row("Median", [float(np.median(values)) if values else None for values in columns], percent),
    ]
    return [speakers, sums, statistics]


def system_report(result: Result, title: str, percent: bool) -> str:
    """The table as text. ``*`` marks counts where there is nothing to be a percentage of."""
    blocks = system_rows(result, percent)
    has_confidences = any(r.figures[-1] is not None for rows in blocks for r in rows)
    columns = COLUMNS if has_confidences else COLUMNS[:-1]
    width = max(8, *(len(r.name) for rows in blocks for r in rows))

    def cell(r: Row, column: int, decimals: int) -> str:
        figure = r.figures[column]
        if figure is None:
            return f"{'-':>8}"
        if columns[column] == "NCE":
            return f"{figure:8.3f}"
        starred = percent and not r.shares and column in range(len(columns))[_OF_WORDS]
        whole = starred or decimals == 0 or (column < _OF_WORDS.start and float(figure).is_integer())
        return f"{figure:7.0f}{'*' if starred else ' '}" if whole else f"{figure:7.1f} "

    def line(name: str, cells: Sequence[str]) -> str:
        parts = ["".join(cells[:2]), "".join(cells[2:8]), *cells[8:]]
        return f"| {name:{width}} | {' | '.join(parts)} |"

    head = line("SPKR", [f"{name:>7} " for name in columns])
    ruler = "|" + "-" * (len(head) - 2) + "|"
    kind = "percent of the reference's words" if percent else "words"
    out = [f"{title}: {kind}; S.Err: segments with an error", ruler, head]
    for place, rows in enumerate(blocks):
        out.append(ruler if place == 0 else ruler.replace("-", "="))
        decimals = 1 if percent or place == 2 else 0
        out += [line(r.name, [cell(r, column, decimals) for column in range(len(columns))]) for r in rows]
    out.append(ruler)
    if percent and any(not r.shares for r in blocks[0]):
        out.append("* No reference words for this speaker: counts, left out of mean, S.D. and median.")
    return "\n".join(out) + "\n"


def alignment_report(result: Result) -> str:
    """Every segment's reference and hypothesis under each other, errors in capitals."""
    blocks = []
    for line in result.lines:
        labels = f" <{','.join(line.segment.labels)}>" if line.segment.labels else ""
        c = line.counts
        scores = f"Scores: (#C #S #D #I) {c.correct} {c.substituted} {c.deleted} {c.inserted}"
        blocks.append("\n".join([f"{line.name} {line.segment.speaker}{labels}", scores, *_rows(line)]) + "\n")
    return "\n".join(blocks)


def _rows(line: Line) -> Iterator[str]:
    heads = ("REF: ", "HYP: ", "EVAL:")
    rows = list(heads)
    for pair in line.pairs:
        verdict = judge(pair.word, pair.heard)
        right = verdict == "C"
        shown = [(text.lower() if right else text.upper()) or "***" for text in (pair.word, pair.heard)]
        width = max(len(text) for text in shown)
        if len(rows[0]) + width >= _WIDTH:
            yield from (text.rstrip() for text in rows)
            yield ""
            rows = list(heads)
        for place, text in enumerate([*shown, "" if right else verdict]):
            rows[place] += f" {text:{width}}"
    if line.pairs:
        yield from (text.rstrip() for text in rows)
