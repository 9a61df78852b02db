"""Writes a table as text, Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedstride.errors import printable
from server_app.records.spreadsheet import inert


class TableFormat(StrEnum):
    """Output formats of a table."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"


@dataclass(frozen=True)
class Grid:
    """A table for people: all cells are text; the first `words` columns are words, the others numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True)
class Sheet:
    """A table for programs: one unrounded value per cell, None if there is no value."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]


def write(tables: Sequence[tuple[Grid, Sheet]], form: TableFormat, *, width: int | None = None) -> str:
    """The tables in this format, without a final line break; `width`: of the terminal, for text.

    For people they are blocks, one below the other. For programs they are one table, since their heads are equal.
    """
    if form is TableFormat.CSV:
        sheets = [sheet for _, sheet in tables]
        return sheet_csv(Sheet(sheets[0].head, [row for sheet in sheets for row in sheet.rows]))
    return "\n\n".join(_written(grid, form, width) for grid, _ in tables)


def _written(grid: Grid, form: TableFormat, width: int | None) -> str:
    match form:
        case TableFormat.MARKDOWN:
            return markdown(grid)
        case TableFormat.LATEX:
            return latex(grid)
        case _:
            return text(grid, width)


def one_line_each(grid: Grid) -> Grid:
    """The table with a space for every character that is not printable: names may be anybody's."""
    rows = [list(map(printable, row)) for row in grid.rows]
    return Grid(printable(grid.title), list(map(printable, grid.head)), rows, grid.words)


def text(grid: Grid, width: int | None = None) -> str:
    """For a terminal of `width` characters; a wider table is split into parts, one below the other."""
    grid = one_line_each(grid)
    parts = [
        _box([[row[column] for column in columns] for row in [grid.head, *grid.rows]], grid.words)
        for columns in _parts(grid, width)
    ]
    return "\n\n".join(["\n".join([grid.title, *parts[:1]]), *parts[1:]])


def _parts(grid: Grid, width: int | None) -> list[list[int]]:
    """The columns of each part: all columns of words, and the number columns that fit, at least one."""
    widths = [max(len(row[column]) for row in [grid.head, *grid.rows]) + 3 for column in range(len(grid.head))]
    words = list(range(grid.words))
    parts, room = [list(words)], 0
    for column in range(grid.words, len(grid.head)):
        if len(parts[-1]) > grid.words and width is not None and widths[column] > room:
            parts.append(list(words))
        if len(parts[-1]) == grid.words:
            room = (width or 0) - sum(widths[: grid.words])
        parts[-1].append(column)
        room -= widths[column]
    return parts


def _box(rows: Sequence[Sequence[str]], words: int) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(rows[0]):
        table.add_column(Text(name), justify="left" if number < words else "right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    file = io.StringIO()
    Console(file=file, width=10_000, color_system=None, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines())


def markdown(grid: Grid) -> str:
    """A Markdown table below a bold title."""
    grid = one_line_each(grid)
    rule = [":--" if number < grid.words else "--:" for number in range(len(grid.head))]
    rows = [[cell.replace("|", "\\|") for cell in row] for row in [grid.head, *grid.rows]]
    lines = ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]
    return "\n".join([f"**{grid.title}**", "", *lines])


def latex(grid: Grid) -> str:
    """A LaTeX tabular that needs no package; the title is a comment above it."""
    grid = one_line_each(grid)
    columns = "l" * grid.words + "r" * (len(grid.head) - grid.words)
    rows = [" & ".join(map(_tex, row)) + r" \\" for row in [grid.head, *grid.rows]]
    return "\n".join(
        [
            f"% {grid.title}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            rows[0],
            r"\hline",
            *rows[1:],
            r"\hline",
            r"\end{tabular}",
        ]
    )


_TEX = {
    "\\": r"\textbackslash{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
}


def _tex(cell: str) -> str:
    return "".join(_TEX.get(char, char) for char in cell)


def sheet_csv(sheet: Sheet) -> str:
    """Comma-separated values, quoted if needed; an empty cell if there is no value. Text is never a formula."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([[_sheet_cell(cell) for cell in row] for row in [sheet.head, *sheet.rows]])
    return file.getvalue().rstrip("\n")


def _sheet_cell(cell: object) -> object:
    return inert(cell) if isinstance(cell, str) else "" if cell is None else cell
