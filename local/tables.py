"""A table as text, as Markdown, as HTML."""

from __future__ import annotations

import html

Table = list[list[str]]  # a row of headings, then the rows


def markdown(table: Table) -> str:
    """The table as Markdown."""
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def plain(table: Table) -> str:
    """The table in columns of characters."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]]) + "\n"


def html_table(table: Table) -> str:
    """The table as HTML; columns of numbers to the right."""
    head, *rows = table
    numeric = [bool(rows) and all(set(row[column]) <= set("0123456789.- ") for row in rows) for column in range(len(head))]

    def line(kind: str, row: list[str]) -> str:
        cells = (
            f"<{kind}{' class=n' if right else ''}>{html.escape(text)}</{kind}>"
            for text, right in zip(row, numeric, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    return f"<div class=scroll><table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table></div>"
