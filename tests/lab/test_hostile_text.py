"""Texts from clients and other users in plots, pages and messages: drawn and written literally, or marked."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from folders import Call, config, diagnostics, make

from fedstride.errors import ConfigError
from lab.plots import draw
from lab.plots.canvas import save
from lab.report import report
from lab.results.run_folders import load
from server_app.reports.curve import draw as draw_curve
from server_app.reports.plot_style import LONGEST, legend_label, literal, new_figure, save_figure, shown

pytestmark = pytest.mark.usefixtures("cache")

TEXTS = {
    "broken formula": r"$\frac{$",
    "formula": r"$\alpha$ and $x^2$",
    "dollars": "$5 and $7",
    "escaped dollar": r"\$a\$ $",
    "format": "{x} %s {0!r}",
    "markup": "<script>alert(1)</script>&amp;",
    "underscore": "_hidden",
    "control": "a\x00b\x1b[31mc\rd\te",
    "direction": "a\u202eb\u200fc",
    "long": "x" * 5000,
    "empty": "",
    "surrogate": "a\ud800b",
}


NAMES = list(TEXTS.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plot", "method", "override", "layers"),
    [
        ("fedlws", "fedavg+fedlws", "strategy=fedlws", NAMES[:6]),  # lines, with a legend
        ("fedlws", "fedavg+fedlws", "strategy=fedlws", NAMES[6:]),
        ("fedlws", "fedavg+fedlws", "strategy=fedlws", NAMES),  # rows of a heat map
        ("fednlr", "fedavg+fednlr", "client=fednlr", NAMES),  # titles
        ("norms", "fednnnn", "strategy=fednnnn", NAMES[:4]),  # labels of axes
    ],
)
def test_layers_of_any_name_are_drawn(
    tmp_path: Path, plot: str, method: str, override: str, layers: list[str]
) -> None:
    """Metrics are named after layers, and so are parts of a plot."""
    run = load(make(tmp_path / "run", config(override, "rounds=2"), extra=diagnostics(method, layers)))
    save(draw(plot, [run]), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_report_about_layers_of_any_name(tmp_path: Path) -> None:
    extra = diagnostics("fedavg+fedlws", NAMES[:4])
    run = load(make(tmp_path / "run", config("strategy=fedlws", "rounds=2"), extra=extra))
    assert "FedLWS: gamma and tau per layer" in report([run])


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_curve_of_a_run_with_any_label_and_title(tmp_path: Path, text: str) -> None:
    rows = [{"round": number, "test/accuracy": 0.5, "train/loss": 1.0} for number in range(3)]
    draw_curve([(text, rows)], tmp_path / "curve.png", title=text, metric="test/accuracy")
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.parametrize("text", [r"$\alpha$ and $x^2$", "$5 and $7", r"\$a\$ $", "{x} %s"])
def test_a_plot_contains_the_text_letter_by_letter(text: str) -> None:
    """SVG has the characters of a text, if it is told to; a formula would be drawn as shapes of its own."""
    from matplotlib import rc_context

    figure = new_figure(4, 3)
    axes = figure.subplots()
    axes.plot([1, 2], label=text)
    axes.set_title(text)
    axes.set_ylabel(text)
    axes.set_xticks([0, 1], [text, "b"])
    axes.legend()
    file = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        save_figure(figure, file, format="svg")
    assert file.getvalue().count(f">{text}<") == 4


def test_drawing_leaves_other_figures_of_the_process_as_they_were() -> None:
    from matplotlib import rcParams

    before = rcParams["text.parse_math"]
    with literal():
        assert rcParams["text.parse_math"] is False
    assert rcParams["text.parse_math"] is before


def test_texts_are_marked_and_cut_line_by_line() -> None:
    assert shown("a\x1b[31m\u202eb\nc") == "a\ufffd[31m\ufffdb\nc"
    assert shown("é雪 %$") == "é雪 %$"
    assert len(shown("x" * 5000)) == LONGEST
    assert legend_label("_a") == " _a"
    assert legend_label("a_") == "a_"


@pytest.mark.slow
def test_the_page_marks_what_browsers_act_on(tmp_path: Path) -> None:
    hostile = "x\u202ey\x1b[31m<b>z</b>\u2066"
    make(tmp_path / "run", config("strategy=fedavg"), state="failed", reason=hostile)
    page = report([load(tmp_path / "run")], [f"skipped: {hostile}"])
    assert not set("\u202e\u2066\x1b") & set(page)
    assert "<b>z" not in page
    assert "x\ufffdy" in page


def test_commands_print_no_escape_sequences_of_a_run(tmp_path: Path, call: Call) -> None:
    make(tmp_path / "runs/good", config("strategy=fedavg"))
    make(tmp_path / "runs/bad", config("strategy=fedavg", "seed=2"), state="failed", reason="a\x1b[2Jb\nc")
    code, out, err = call("table", str(tmp_path / "runs"))
    assert code == 0
    assert "\x1b" not in out + err
    assert "a [2Jb c" in err


@pytest.mark.parametrize("name", ["a\x1b[2J", "../x", "$x$", "", "a b"])
def test_a_part_of_an_unknown_run_has_the_name_of_a_part(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "run", config("strategy=fedavg"))
    text = (folder / "config.yaml").read_text().replace("name: fedavg", f"name: {json.dumps(name)}")
    (folder / "config.yaml").write_text(text.replace("parts: null", "parts: /x/mine.py"))
    with pytest.raises(ConfigError, match="is not the name of a part"):
        load(folder)
