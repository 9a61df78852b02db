"""Plots: every kind is drawn and labelled, its numbers are checked by hand, other files are not overwritten."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import LAYERS, METHODS, Call, config, diagnostics, make, make_all
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedstride.errors import ConfigError
from fedstride.tasks.data import Data
from fedstride.tasks.spec import Spec
from lab.plots import KINDS, draw, kind, numbers_of_methods
from lab.plots.canvas import drawn, heat_map, save
from lab.plots.panels import Band, LinePanel, Map, over_rounds, some
from lab.plots.panels import PlotFigure as DrawnOf
from lab.plots.partition_labels import Counts, counts_of, draw_labels, maps_of
from lab.plots.partition_labels import figure as label_figure
from lab.plots.reliability import DIAGONAL
from lab.report.browser_panels import data
from lab.report.charts import charts
from lab.report.diagnostics import diagnostics as diagnostics_of
from lab.results.grouping import group
from lab.results.run_folders import Run, find_runs, load
from server_app.reports.plot_style import STYLES, dash, style

pytestmark = pytest.mark.usefixtures("cache")

Plot = Callable[[str], Figure]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_all(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def plot(runs: list[Run]) -> Plot:
    """The plot of a kind from all runs, drawn once."""
    return cache(lambda name: draw(name, runs))


def shown(figure: Figure) -> list[Axes]:
    """The panels with data, without colour bars (which are not in the grid)."""
    return [axes for axes in figure.axes if axes.has_data() and axes.axison and axes.get_subplotspec()]


def lines_of(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """The labelled lines of a panel: (x, y) by label."""
    handles, labels = axes.get_legend_handles_labels()
    return {
        label: (list(map(float, handle.get_xdata())), list(map(float, handle.get_ydata())))
        for handle, label in zip(handles, labels, strict=True)
    }


def words(figure: Figure) -> str:
    """The figure's title, on one line."""
    return figure.get_suptitle().replace("\n", " ")


# ---------------------------------------------------------------- every kind


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_drawn_and_every_panel_labelled(plot: Plot, tmp_path: Path, name: str) -> None:
    figure = plot(name)
    assert words(figure)
    panels = shown(figure)
    assert panels
    assert all(axes.get_ylabel() for axes in panels if axes.get_subplotspec().is_first_col())
    columns = {axes.get_subplotspec().colspan.start: axes for axes in panels}  # the lowest panel of each column
    assert all(axes.get_xlabel() for axes in columns.values())
    assert all(axes.get_ylabel() for axes in figure.axes if axes.get_label() == "<colorbar>")
    save(figure, tmp_path / f"{name}.png")
    content = (tmp_path / f"{name}.png").read_bytes()
    assert content.startswith(PNG)
    assert len(content) > 10_000


UNITS = {
    "accuracy": ("round", "test accuracy (%)"),
    "seconds": ("seconds of training and aggregation", "test accuracy (%)"),
    "norms": ("", "N (whole model)"),
    "fedlws": ("round", "gamma (factor of the weights)"),
    "fedalr": ("round", "eta (factor, no unit)"),
    "two_d_lrd": ("", "S (norm² of weights)"),
    "fednlr": ("round", "learning rate"),
    "reliability": ("", "share observed"),
    "labels": ("", "examples"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_axes_have_units(plot: Plot, name: str) -> None:
    first = shown(plot(name))[0]
    assert (first.get_xlabel(), first.get_ylabel()) == UNITS[name]


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].advice])
def test_a_plot_without_data_is_refused_with_advice(root: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"none of 1 runs has {KINDS[name].needs}.*{KINDS[name].advice}"):
        draw(name, [load(root / "fedavg-1")])


def test_single_runs_are_drawn(root: Path) -> None:
    figure = draw("accuracy", [load(root / "fedavg-1")])
    assert "each line is one run" in words(figure)


# ---------------------------------------------------------------- numbers


def test_a_band_is_mean_lowest_and_highest_of_the_common_rounds() -> None:
    seeds = [
        [{"round": 0, "m": 1.0}, {"round": 1, "m": 2.0}, {"round": 2, "m": 5.0}],
        [{"round": 0, "m": 3.0}, {"round": 1, "m": None}, {"round": 2, "m": 6.0}, {"round": 3, "m": 7.0}],
    ]
    band = over_rounds(seeds, "m", 10.0)
    assert band is not None
    assert (band.x, band.mean, band.low, band.high, band.n) == ([0, 2], [20, 55], [10, 50], [30, 60], 2)
    assert not band.whole and over_rounds(seeds[:1], "m") == Band([0, 1, 2], *[[1.0, 2.0, 5.0]] * 3, 1, True)
    assert over_rounds(seeds, "other") is None
    assert over_rounds([], "m") is None


@pytest.mark.slow
def test_accuracy_and_seconds_by_hand(tmp_path: Path) -> None:
    for seed, values in ((1, [0.4, 0.6]), (2, [0.6, 0.7])):
        make(tmp_path / str(seed), config("strategy=fedavg", f"seed={seed}"), values)
    runs = find_runs([tmp_path])[0]
    (panel,) = shown(draw("accuracy", runs))
    assert lines_of(panel) == {"fedavg: 65.0 %": ([0, 1, 2], pytest.approx([10, 50, 65]))}
    (band,) = panel.collections
    assert sorted({round(float(y)) for _, y in band.get_paths()[0].vertices}) == [10, 40, 60, 70]
    (panel,) = shown(draw("seconds", runs))
    assert lines_of(panel)["fedavg: 65.0 %"][0] == [0.0, 2.5, 5.0]  # 2 s of training, 0.5 s of aggregation


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "seconds"])
def test_a_line_says_where_it_ends_before_a_seed(tmp_path: Path, name: str) -> None:
    for seed, values in ((1, [0.5, 0.6, 0.7]), (2, [0.5, 0.8])):
        make(tmp_path / f"short-{seed}", config("strategy=fedavg", f"seed={seed}"), values)
        make(tmp_path / f"whole-{seed}", config("strategy=fednnnn", f"seed={seed}"), [0.1, 0.3])
    figure = draw(name, find_runs([tmp_path])[0])
    at = {"accuracy": "2", "seconds": "5"}[name]
    assert set(lines_of(shown(figure)[0])) == {f"fedavg: 70.0 % at {at}", "fednnnn: 30.0 %"}
    assert "line: mean over seeds, up to the last round of the shortest seed, band" in words(figure)


def test_settings_get_panels_and_failed_runs_are_marked(tmp_path: Path) -> None:
    for alpha in (1, 10):
        make(tmp_path / f"{alpha}", config(f"partition.alpha={alpha}", "strategy=fedavg"))
        make(tmp_path / f"{alpha}f", config(f"partition.alpha={alpha}"), [0.3], state="failed", reason="x")
    figure = draw("accuracy", find_runs([tmp_path])[0])
    assert [axes.get_title() for axes in shown(figure)] == ["alpha=1", "alpha=10"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg", "fednnnn (failed)"]


@pytest.mark.slow
def test_norms_of_the_whole_model_and_of_each_layer(plot: Plot) -> None:
    figure = plot("norms")
    assert [axes.get_ylabel() for axes in shown(figure)] == [
        f"{symbol} ({place})" for place in ("whole model", *LAYERS) for symbol in ("N", "E", "step")
    ]
    assert set(lines_of(shown(figure)[0])) == set(METHODS)
    assert lines_of(shown(figure)[1])["fedavg"] == ([1, 2, 3], pytest.approx([1, 0.5, 1 / 3]))


def test_fedlws_has_a_line_per_layer(plot: Plot) -> None:
    gamma, tau = shown(plot("fedlws"))
    assert lines_of(gamma) == {"conv1": ([1, 2, 3], [1, 1, 1]), "fc1": ([1, 2, 3], [0.99, 0.99, 0.99])}
    assert lines_of(tau)["fc1"] == ([1, 2, 3], pytest.approx([0.1, 0.2, 0.3]))


@pytest.mark.slow
def test_many_layers_give_a_heat_map(tmp_path: Path) -> None:
    layers = [f"block{number}.conv" for number in range(20)]
    make(tmp_path / "a", config("strategy=fedlws"), [0.1, 0.2], extra=diagnostics("fedlws", layers))
    figure = draw("fedlws", find_runs([tmp_path])[0])
    gamma = shown(figure)[0]
    assert np.asarray(gamma.images[0].get_array()).shape == (20, 2)
    assert [label.get_text() for label in gamma.get_yticklabels()] == layers
    norms = draw("norms", find_runs([tmp_path])[0])
    assert "11 of 20 layers" in words(norms)
    assert len(shown(norms)) == 3 * 12


def test_fedalr_shows_the_clients_that_took_part(plot: Plot) -> None:
    curves, clients = shown(plot("fedalr"))[:2]
    assert list(lines_of(curves)) == ["largest", "mean", "smallest"]
    rates = np.ma.filled(np.ma.asarray(clients.images[0].get_array()), np.nan)
    assert rates.shape == (10, 3)
    assert rates[0].tolist() == [0.4] * 3
    assert rates[2].tolist() == [0.6] * 3
    assert np.isnan(rates[[1, 3, 4, 5, 6, 7, 8, 9]]).all()


def test_two_d_lrd_marks_the_rounds_in_which_d_increases(plot: Plot) -> None:
    figure = plot("two_d_lrd")
    detector, counts, alpha, rates = shown(figure)[:4]
    assert lines_of(detector)["S, before the test"][1] == pytest.approx([0.1, -0.1, -0.3])
    assert lines_of(counts)["d, decays so far"][1] == [0, 1, 1]
    assert lines_of(alpha)["alpha, decay within a round"][1] == [1, 0.8, 0.8]
    dotted = [line.get_xdata()[0] for line in alpha.lines if line.get_linestyle() == ":"]
    assert dotted == [2]
    assert np.asarray(rates.images[0].get_array())[:, 1] == pytest.approx([1, 0.8, 0.64])
    assert "the lowest seed of each" in words(figure)


def test_fednlr_has_a_panel_per_layer(plot: Plot) -> None:
    panels = shown(plot("fednlr"))
    assert [axes.get_title() for axes in panels] == list(LAYERS)
    assert [y[0] for _, y in lines_of(panels[0]).values()] == [0.2, 0.05, 0.02]
    assert panels[0].get_yscale() == "log"


# ---------------------------------------------------------------- partitions


PARTS = [np.array([0, 1, 2]), np.array([3]), np.array([4, 5])]
LABELS = np.array([0, 0, 1, 2, 1, 1])


def test_the_reliability_of_the_last_round_without_empty_bins(plot: Plot) -> None:
    figure = plot("reliability")
    curve, rows = shown(figure)
    drawn = lines_of(curve)
    (name,) = set(drawn) - {"as predicted"}
    assert "fednnnn" in name and drawn[name] == ([0.15, 0.35, 0.55, 0.75, 0.95], [0.15, 0.35, 0.55, 0.75, 0.95])
    assert drawn["as predicted"][0][0] == 0.0 and drawn["as predicted"][1][-1] == 1.0
    assert "on the test set, round 3: ECE 0.0333" in curve.get_title()
    assert [text.get_text() for text in rows.texts] == ["40"] * 5


def test_label_counts_by_hand() -> None:
    assert counts_of(PARTS, LABELS, 4).tolist() == [[2, 0, 0], [1, 0, 2], [0, 1, 0], [0, 0, 0]]


def task(groups: np.ndarray | None = None, classes: int = 4) -> Data:
    x = np.zeros((6, 1, 2, 2), np.uint8)
    return Data(Spec.images(x.shape[1:], classes, (0.0,), (1.0,)), x, LABELS, x, LABELS, groups=groups)


def test_groups_are_shown_after_classes() -> None:
    maps = maps_of(PARTS, task(np.array([40, 40, 7, 7, 7, 40])))
    assert [each.rows for each in maps] == ["class", "group"]
    assert maps[1].counts.tolist() == [[1, 1, 1], [2, 0, 1]]  # rows: groups 7 and 40


def test_without_classes_and_groups_only_the_sizes_are_shown() -> None:
    (only,) = maps_of(PARTS, task(classes=0))
    assert only.counts.tolist() == [[3, 1, 2]]
    assert len(shown(drawn(label_figure([only], "sizes")))) >= 2


@pytest.mark.slow
def test_a_map_with_many_classes_and_clients_is_of_readable_size() -> None:
    many = Counts(np.arange(10_000).reshape(100, 100), "")
    made = drawn(label_figure([many, many], "many"))
    assert made.get_figwidth() == 14.0
    assert 6.0 < made.get_figheight() / 2 < 9.0


def test_a_partition_is_drawn_into_a_file(tmp_path: Path) -> None:
    draw_labels(PARTS, task(), tmp_path / "new/partition.png", "examples of each class")
    assert (tmp_path / "new/partition.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_runs_with_the_same_partition_share_a_map(plot: Plot) -> None:
    figure = plot("labels")
    maps = [axes for axes in shown(figure) if axes.images]
    assert len(maps) == 2  # one per seed, for all methods
    counts = np.ma.filled(np.ma.asarray(maps[0].images[0].get_array()), 0)
    assert counts.shape == (10, 10)
    assert counts.sum(axis=1).tolist() == [400] * 10
    assert {text.get_text() for text in maps[0].texts} == {f"{count:.0f}" for count in counts.ravel() if count}


# ---------------------------------------------------------------- style


def test_lines_differ_without_colours() -> None:
    marks = [(str(each["linestyle"]), each["marker"]) for each in STYLES]
    assert len({mark for _, mark in marks}) == len(STYLES)
    assert len(set(marks)) == len(STYLES)
    styles = [(style(n)["color"], style(n)["marker"]) for n in range(2 * len(STYLES))]
    assert len(set(styles)) == len(styles)
    assert style(0, 500)["markevery"] == 25


def test_heat_maps_get_darker_with_the_value_and_contain_it(tmp_path: Path) -> None:
    axes = Figure().subplots()
    heat_map(axes, Map("", "", "", np.array([[0.0, 0.5, 1.0, np.nan]]), "abcd", "a", "share"))
    image = axes.images[0]
    red, green, blue = np.asarray(image.cmap(image.norm([0.0, 0.5, 1.0])))[:, :3].T
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert 0.98 > grey[0] > grey[1] > grey[2]  # white is reserved for missing values
    assert [text.get_text() for text in axes.texts] == ["0.00", "0.50", "1.00"]
    assert [text.get_color() for text in axes.texts] == ["k", "k", "w"]


def test_some_keeps_the_first_and_the_last() -> None:
    assert some(["a", "b"], 3) == ["a", "b"]
    assert some([str(n) for n in range(10)], 4) == ["0", "3", "6", "9"]


def colours_of(panels: Sequence[LinePanel], name: str) -> set[int]:
    return {panel.look(name).colour for panel in panels if panel.bands.get(name) is not None}


@pytest.mark.slow
def test_a_method_has_one_colour_in_all_panels_of_a_page(tmp_path: Path) -> None:
    """Although its label has other words where fewer runs are shown, and some runs have another metric."""
    for alpha, beta, method in itertools.product((1, 10), (0.2, 0.8), ("fedavg", "fednnnn", "norm_norm")):
        more = [f"strategy.beta={beta}"] if method == "fednnnn" else []
        if method != "norm_norm" or alpha == 10:
            settings = config(f"strategy={method}", f"partition.alpha={alpha}", f"seed={int(10 * beta)}", *more)
            make(tmp_path / f"{method}-{alpha}-{beta}", settings, [0.3, 0.4], extra=diagnostics(method))
    make(tmp_path / "lost", config("strategy=norm_norm", "partition.alpha=10", "seed=3"), [0.2], state="failed")
    make(tmp_path / "other", config("strategy=norm_norm", "best=test/loss"), [0.2, 0.3])
    runs = find_runs([tmp_path])[0]
    colours = numbers_of_methods(runs)
    assert len(colours) == 4
    curves = charts(runs, colours)
    measured = [panel for part in diagnostics_of(runs, colours) for panel in part.drawings]
    panels = [*curves, *(panel for panel in measured if isinstance(panel, LinePanel))]
    one: dict[str, set[int]] = {}
    for name in {name for panel in panels for name in panel.bands} - {DIAGONAL}:  # which is no method
        method = name.split(",")[0].replace(" (failed)", "")
        one.setdefault(method, set()).update(colours_of(panels, name))
    assert all(len(found) == 1 for found in one.values())
    assert len(set.union(*one.values())) == len(one) == 4
    for panel in panels:  # and no two lines of a panel look alike
        looks = [panel.look(name) for name, band in panel.bands.items() if band is not None]
        assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("name", ["fednlr", "fedalr", "fedlws", "two_d_lrd"])
def test_lines_that_are_parts_of_a_method_have_its_colour(runs: list[Run], name: str) -> None:
    colours = numbers_of_methods(runs)
    figure = kind(name).figure(kind(name).shown(runs), colours)
    panels = [panel for part in figure.parts for panel in part if isinstance(panel, LinePanel)]
    own = {colours[each.identity] for each in group(kind(name).shown(runs))}
    assert {panel.look(line).colour for panel in panels for line in panel.bands} == own


@pytest.mark.parametrize(
    ("values", "above"),
    [
        ({"a": [1.0, 2, 3], "b": [1.0, 2, 3]}, [1, 0]),
        ({"a": [1.0, 2, 3], "b": [1.0, 2, 3.001], "c": [1.0, 2, 3]}, [2, 1, 0]),
        ({"a": [1.0, 2, 3], "b": [3.0, 2, 1], "c": [1.0, 2.001, 3]}, [1, 0, 0]),
        ({"a": [1.0, 1, 1], "b": [1.0, 1, 1]}, [1, 0]),
        ({"a": [1.0, 2, 3], "b": [1.2, 2.2, 3.2]}, [0, 0]),
        ({"a": [1.0, 2, 3]}, [0]),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_a_line_below_another_is_wider(values: dict[str, list[float]], above: list[int], log: bool) -> None:
    bands = {name: Band([1.0, 2.0, 3.0], each, each, each, 1) for name, each in values.items()}
    panel = LinePanel("", "", "", bands, log=log)
    assert list(panel.above().values()) == above
    axes = drawn(DrawnOf("", [], [[panel]], (4.0, 3.0))).axes[0]
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths == [1.6 + 2.4 * count for count in above]
    assert [line["above"] for line in data(panel)["lines"]] == above


def test_sixteen_lines_differ_in_dashes_where_colours_repeat() -> None:
    assert len({(n % len(STYLES), tuple(dash(n))) for n in range(2 * len(STYLES))}) == 2 * len(STYLES)
    assert [n for n in range(len(STYLES)) if not dash(n)] == [0]  # only the first line has no gaps


# ---------------------------------------------------------------- files and the command


def numbers(count: int) -> Figure:
    figure = Figure()
    figure.subplots().plot(range(count))
    return figure


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_only_plots_by_fedstride_are_replaced(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    save(numbers(2), path)
    before = path.read_bytes()
    save(numbers(5), path)
    assert path.read_bytes() != before
    path.write_bytes(b"somebody's")
    with pytest.raises(ConfigError, match="is not a plot by fedstride: it is not overwritten"):
        save(numbers(2), path)
    assert path.read_bytes() == b"somebody's"


def test_a_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(ConfigError, match=r"a\.png is a folder: name a file in it"):
        save(numbers(2), tmp_path / "a.png")


@pytest.mark.slow
def test_the_command_writes_a_file_and_reports_it(
    root: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("plot", "fedlws", root)
    assert (code, err) == (0, "")
    assert out == f"fedlws: FedLWS: gamma and tau per layer, 2 of 12 runs, {tmp_path / 'fedlws.png'}\n"
    assert (tmp_path / "fedlws.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["acuracy", "RUNS"], "unknown plot 'acuracy'. Did you mean 'accuracy'?"),
        (["accuracy"], "name one or more run folders"),
        (["accuracy", "nowhere"], "nowhere does not exist"),
        (["accuracy", "RUNS", "-o", "a.jpg"], "the name must end with .png, .svg, .pdf"),
        (["accuracy", "RUNS", "-o", "mine.png"], "it is not overwritten"),
        (["fedalr", "RUNS/fedavg-1"], "runs with strategy=fedalr have it"),
    ],
)
def test_invalid_requests_give_exit_code_2(
    root: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUNS").symlink_to(root)
    (tmp_path / "mine.png").write_bytes(b"mine")
    code, out, err = call("plot", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RUNS", "mine.png"]


def test_the_help_names_every_kind(call: Call) -> None:
    code, out, _ = call("plot", "--help")
    assert code == 0
    assert all(name in out and kind(name).about for name in KINDS)


def test_pyplot_is_not_loaded(runs: list[Run]) -> None:
    import sys

    before: Any = sys.modules.get("matplotlib.pyplot")
    draw("accuracy", runs)
    assert sys.modules.get("matplotlib.pyplot") is before
