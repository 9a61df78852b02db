"""The HTML of a self-contained page: style, tables, data, and the scripts that draw its charts, are embedded.

A policy in the page's head forbids the browser to fetch anything, and to execute other scripts. Wide tables scroll
inside their own boxes, so that the page fits the screen of a phone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedstride.files import atomic
from server_app.reports.plot_style import DARK, DARK_MAP, MAP, STYLES

from ..plots.panels import Panel
from ..results.formats import Grid
from ..results.output_files import check_replaceable, writing
from .browser_panels import data

GENERATOR = "fedstride report"
"""Written into the head of every page: only a file that contains it is replaced."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --dim: #555; --rule: #d5d5d5;
  --soft: #f3f4f6; --bad: #b03a2e; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #15181c; --dim: #a9b0b8; --rule: #3a4048; --soft: #20252b;
    --bad: #f0887d; DARK }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .6rem; border-top: 2px solid var(--strong); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
h4 { font-size: .95rem; margin: .8rem 0 .2rem; }
a { color: var(--strong); }
nav a { display: inline-block; margin: .1rem .9rem .1rem 0; }
.verdict { font-size: 1.15rem; font-weight: 600; margin: .6rem 0 .3rem; }
.warning { border-left: 4px solid var(--line-1); padding-left: .8rem; }
.box { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .92rem; }
.caption { font-weight: 600; font-size: .92rem; margin: 1rem 0 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th.word, td.word { text-align: left; }
thead th { border-bottom: 2px solid var(--dim); vertical-align: bottom; white-space: normal; max-width: 13rem; }
tbody th, td.word { white-space: normal; min-width: 9rem; }
.box tbody tr:nth-child(even) { background: var(--soft); }
figure { margin: 1rem 0 1.6rem; }
figcaption { font-size: .92rem; color: var(--dim); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 0 1.5rem; }
.charts figure { min-width: 0; }
.chart { width: 100%; min-height: 220px; overflow: hidden; }
.chart .uplot { width: 100%; }
.chart table, .chart th, .chart td { border: 0; padding: 0 .2rem; font-size: .85rem; min-width: 0; }
.chart .u-legend { text-align: left; }
.chart:has(.heat) { min-height: 0; }
.chart .heat { display: block; cursor: crosshair; touch-action: pan-y; }
.chart .reading { margin: 0; font-size: .85rem; min-height: 1.5em; }
summary { cursor: pointer; color: var(--strong); }
.chart .edge, .chart .u-legend .edge { display: none; }
pre { white-space: pre-wrap; background: var(--soft); padding: .6rem .8rem; border-radius: 4px; font-size: .85rem;
  margin: .3rem 0 .9rem; }
.bad { border-left: 4px solid var(--bad); padding-left: .8rem; list-style: none; }
li { margin: .25rem 0; }
.small { font-size: .88rem; color: var(--dim); }
ul { padding-left: 1.2rem; }
@media print { .box { overflow: visible; } }
"""


def _palette(map_ends: tuple[str, str], lines: Sequence[str]) -> str:
    """Colours of the plots as the style's variables."""
    named = {
        "pale": map_ends[0],
        "strong": map_ends[1],
        **{f"line-{at}": colour for at, colour in enumerate(lines)},
    }
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())


STYLE = _STYLE.replace("LIGHT", _palette(MAP, [look["color"] for look in STYLES])).replace(
    "DARK", _palette(DARK_MAP, DARK)
)


def escape(text: str) -> str:
    """The text as HTML that shows it literally; characters that are not printable are marked.

    Browsers act on some of them: a mark of direction reverses the text after it, in other cells too.
    """
    return html.escape("".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text))


def page(
    title: str,
    lead: str,
    sections: Iterable[tuple[str, str]],
    charts: Sequence[Panel] = (),
    *,
    refresh: int = 0,
) -> str:
    """The complete page; `sections` are (heading, HTML), empty ones are left out.

    `charts`: what `drawing.js` draws, each in the element that `places_of_charts` makes for its number. `refresh`:
    after so many seconds the browser loads the page again; 0: never.
    """
    shown = [(heading, body) for heading, body in sections if body]
    links = "".join(f'<a href="#s{number}">{escape(heading)}</a>' for number, (heading, _) in enumerate(shown))
    bodies = "".join(
        f'<section><h2 id="s{number}">{escape(heading)}</h2>\n{body}</section>\n'
        for number, (heading, body) in enumerate(shown)
    )
    library = f"/* {_file('uplot/LICENSE')} */\n{_file('uplot/uPlot.iife.min.js')}"
    scripts = [library, _file("drawing.js")] if charts else []
    style = STYLE + (_file("uplot/uPlot.min.css") if charts else "")
    allowed = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    panels = json.dumps([data(chart) for chart in charts], allow_nan=False).replace("<", "\\u003c")
    drawn = f'<script type="application/json" id="charts">{panels}</script>\n' if charts else ""
    drawn += "".join(f"<script>{script}</script>\n" for script in scripts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="{GENERATOR}">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{again}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{lead}\n<nav>{links}</nav>\n{bodies}{drawn}</body>\n</html>\n"
    )


def places_of_charts(made: Sequence[Panel], first: int) -> str:
    """The elements in which the browser draws charts, of which the first has this number."""
    places = "".join(
        _place_of_chart(number, chart.about, chart.of) for number, chart in enumerate(made, start=first)
    )
    return f'<div class="charts">{places}</div>\n' if made else ""


def _place_of_chart(number: int, title: str, caption: str) -> str:
    """The element in which the browser draws chart `number`; without scripts, the tables have its figures."""
    return (
        f'<figure><h4>{escape(title)}</h4><div class="chart" data-chart="{number}" role="img" '
        f'aria-label="{escape(title)}"></div><figcaption>{escape(caption)}</figcaption></figure>\n'
    )


def _file(name: str) -> str:
    return Path(__file__).parent.joinpath(name).read_text(encoding="utf-8").strip()


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


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
        atomic.write(path, text.encode())
