"""The HTML of a self-contained page: style, tables and plots are embedded.

Wide tables and plots scroll inside their own boxes, so that the page fits the screen of a phone.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from server_app.figures.style import save_figure
from server_app.folder import write

from ..results.files import check_replaceable, writing
from ..results.formats import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GENERATOR = "fedstride report"
"""Written into the head of every page: only a file that contains it is replaced."""

SMALLEST = 0.62  # a plot shrinks to this fraction of its width and then scrolls, so that its text is readable

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; color: #1b1b1b; background: #fff;
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .6rem; border-top: 2px solid #0b3c5d; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
nav a { display: inline-block; margin: .1rem .9rem .1rem 0; color: #0b3c5d; }
.box { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .92rem; }
.caption { font-weight: 600; font-size: .92rem; margin: 1rem 0 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #d5d5d5; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th.word, td.word { text-align: left; }
thead th { border-bottom: 2px solid #777; vertical-align: bottom; white-space: normal; max-width: 13rem; }
tbody th, td.word { white-space: normal; min-width: 9rem; }
tbody tr:nth-child(even) { background: #f6f7f9; }
figure { margin: 1rem 0 1.6rem; }
figcaption { font-size: .92rem; color: #444; }
img { display: block; max-width: 100%; height: auto; }
pre { white-space: pre-wrap; background: #f3f4f6; padding: .6rem .8rem; border-radius: 4px; font-size: .85rem;
  margin: .3rem 0 .9rem; }
.bad { border-left: 4px solid #b03a2e; padding-left: .8rem; list-style: none; }
li { margin: .25rem 0; }
.small { font-size: .88rem; color: #444; }
ul { padding-left: 1.2rem; }
@media print { .box { overflow: visible; } }
"""


def escape(text: str) -> str:
    """The text as HTML that shows it literally; characters that are not printable are marked.

    Browsers act on some of them: a mark of direction reverses the text after it, in other cells too.
    """
    return html.escape("".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text))


def page(title: str, lead: str, sections: Iterable[tuple[str, str]]) -> str:
    """The complete page; `sections` are (heading, HTML), empty ones are left out."""
    shown = [(heading, body) for heading, body in sections if body]
    links = "".join(f'<a href="#s{number}">{escape(heading)}</a>' for number, (heading, _) in enumerate(shown))
    bodies = "".join(
        f'<section><h2 id="s{number}">{escape(heading)}</h2>\n{body}</section>\n'
        for number, (heading, body) in enumerate(shown)
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="{GENERATOR}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{lead}\n<nav>{links}</nav>\n{bodies}</body>\n</html>\n"
    )


def table(grid: Grid) -> str:
    """A table in a box that scrolls, with its title above; the first column contains the row headers."""
    rows = "\n".join(_row(row, grid.words) for row in grid.rows)
    head = _row(grid.head, grid.words, head=True)
    return (
        f'<p class="caption">{escape(grid.title)}</p>\n<div class="box"><table>\n<thead>{head}</thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>\n"
    )


def _row(cells: Iterable[str], words: int, *, head: bool = False) -> str:
    parts = []
    for number, cell in enumerate(cells):
        tag, scope = ("th", ' scope="col"') if head else ("th", ' scope="row"') if number == 0 else ("td", "")
        kind = ' class="word"' if number < words else ""
        text = escape(cell).replace("+", "+<wbr>")  # a long method name may break here
        parts.append(f"<{tag}{scope}{kind}>{text}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def embedded(figure: Figure, alt: str, caption: str) -> str:
    """A figure embedded in the page; `alt`: a description in words."""
    file = io.BytesIO()
    save_figure(figure, file, format="png", dpi=110, metadata={"Software": GENERATOR})
    width, height = (round(110 * inches) for inches in figure.get_size_inches())
    content = base64.b64encode(file.getvalue()).decode()
    return (
        f'<figure><div class="box"><img src="data:image/png;base64,{content}" alt="{escape(alt)}" '
        f'width="{width}" height="{height}" style="min-width:{round(SMALLEST * width)}px"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


def listed(lines: Iterable[str], kind: str = "") -> str:
    """An HTML list; empty text if there are no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>\n' if items else ""


def check_target(path: Path) -> None:
    """Raises ConfigError for a folder, and for an existing file that is not a report by fedstride."""
    check_replaceable(path, f'content="{GENERATOR}"', "report", within=2000)


def save(text: str, path: Path) -> None:
    """Write the page. Raises ConfigError as `check_target` does, RunError if the file cannot be written."""
    check_target(path)
    with writing(path):
        write(path, text.encode())
