"""What the methods measured, as drawings for the browser: norms, factors, rates, a detector, who has which labels.

The plots of `lab/plots/` show the same in files, and both have their values from the same functions there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedstride.errors import FedstrideError

from ..plots import KINDS
from ..plots.canvas import Band, over_rounds, some
from ..plots.examples import first_of_each
from ..plots.fedalr import LINES as OF_FEDALR
from ..plots.fedalr import rates_of_clients
from ..plots.fednlr import LAYERS as LAYERS_OF_FEDNLR
from ..plots.fednlr import LINES as OF_FEDNLR
from ..plots.labels import maps_of_runs
from ..plots.layers import layers_of, matrix
from ..plots.norms import MEANING, ROWS
from ..plots.two_d_lrd import fired, rates
from ..results.grouping import Group, group
from ..results.runs import Run
from .charts import numbers_of_methods
from .drawings import COLOURS, Chart, Heat, chart, heat

Drawing = Chart | Heat
SEEDS = "Line: mean over seeds; band: lowest to highest seed."


@dataclass
class Shown:
    """The drawings of one kind of plot. `folded`: those that a reader opens. `fault`: why there are none.

    `colours`: the number of each method's colour in the whole report.
    """

    title: str
    caption: str
    colours: Mapping[str, int]
    drawings: list[Drawing] = field(default_factory=list)
    folded: list[Drawing] = field(default_factory=list)
    fault: str = ""


def diagnostics(runs: Sequence[Run]) -> list[Shown]:
    """For each kind of plot the drawings of the runs that have its metrics."""
    found, colours = [], numbers_of_methods(runs)
    for name, make in MADE.items():
        shown = KINDS[name].shown(runs)
        if not shown:
            continue
        count = f"{len(shown)} of {len(runs)} runs" if len(shown) < len(runs) else f"all {len(runs)} runs"
        part = Shown(KINDS[name].title(shown), count, colours)
        try:
            make(shown, part)
        except FedstrideError as error:  # a partition is drawn again from the data, which may be missing here
            part.fault = f"not available on this machine: {error}"
        found.append(part)
    return found


def _norms(runs: Sequence[Run], part: Shown) -> None:
    groups, layers = group(runs), layers_of(runs, "norms/N")
    shown = some(layers, ROWS)
    colours = _colours(groups, part.colours)
    part.caption += f". In the units of the weights. {_spread(groups)}"
    if len(shown) < len(layers):
        part.caption += f" {len(shown)} of {len(layers)} layers."
    for layer in (None, *shown):
        place = part.folded if layer else part.drawings
        for symbol, meaning in MEANING.items():
            key = f"norms/{symbol}" + (f"/{layer}" if layer else "")
            bands = {_name(each, groups): _band(each.runs, key) for each in groups}
            place.append(chart(meaning, layer or "whole model", bands, colours=colours))


def _fedlws(runs: Sequence[Run], part: Shown) -> None:
    groups = group(runs)
    part.caption += f". {_spread(groups)}"
    for each in groups:
        for prefix, meaning in (("gamma", "gamma, factor of the weights"), ("tau", "tau, a norm of weights")):
            layers = layers_of(each.runs, f"fedlws/{prefix}")
            bands = {layer: _band(each.runs, f"fedlws/{prefix}/{layer}") for layer in layers}
            part.drawings += _of_layers(meaning, f"{each.method}, {each.setting}", bands)


def _of_layers(meaning: str, caption: str, bands: Mapping[str, Band | None]) -> list[Drawing]:
    """Lines for a few layers, a map for many."""
    if len(bands) <= COLOURS:
        return [chart(meaning, caption, bands)]
    layers, rounds, values = matrix(bands)
    return _kept(heat(meaning, caption, values, columns=_numbers(rounds), y="layer", rows=layers))


def _fedalr(runs: Sequence[Run], part: Shown) -> None:
    shown, note = first_of_each(runs)
    part.caption += f". eta is a factor, at most 1; {note}."
    for run, name in shown:
        bands = {label: _band([run], key) for key, label in OF_FEDALR.items()}
        part.drawings.append(chart("eta of the clients in a round", name, bands))
        places, rounds, values = rates_of_clients(run)
        rows = {place: str(client) for client, place in places.items()}
        names = [rows.get(place, str(place)) for place in range(len(values))]
        part.drawings += _kept(
            heat("eta of each client", name, values, columns=_numbers(rounds), y="client", rows=names)
        )


def _two_d_lrd(runs: Sequence[Run], part: Shown) -> None:
    shown, note = first_of_each(runs)
    part.caption += f". Dotted line: d increases; {note}."
    for run, name in shown:
        for title, names in (
            ("the detector, in squared norms of weights", {"S": "S, before the test", "inner": "inner product"}),
            ("decays so far, and mini-batches in a round", {"d": "d, decays", "tau": "tau, mini-batches"}),
            ("the decay within a round", {"alpha": "alpha, a factor"}),
        ):
            bands = {label: _band([run], f"two_d_lrd/{symbol}") for symbol, label in names.items()}
            part.drawings.append(chart(title, name, bands, marks=fired(run)))
        rounds, values = rates(run)
        part.drawings += _kept(
            heat(
                "rate of each mini-batch, as a fraction of the first",
                name,
                values,
                columns=_numbers(rounds),
                y="mini-batch",
                rows=_numbers(range(len(values))),
                limits=(0.0, 1.0),
            )
        )


def _fednlr(runs: Sequence[Run], part: Shown) -> None:
    groups, layers = group(runs), layers_of(runs, "fednlr/rate_mean")
    shown = some(layers, LAYERS_OF_FEDNLR)
    part.caption += f". Means over the clients. {_spread(groups)}"
    if len(shown) < len(layers):
        part.caption += f" {len(shown)} of {len(layers)} layers."
    for each in groups:
        for layer in shown:
            bands = {label: _band(each.runs, f"fednlr/rate_{end}/{layer}") for end, label in OF_FEDNLR.items()}
            part.drawings.append(chart(f"rates in {layer}", f"{each.method}, {each.setting}", bands, log=True))


def _labels(runs: Sequence[Run], part: Shown) -> None:
    maps, left_out = maps_of_runs(runs)
    part.caption += left_out
    for each in maps:
        counts = each.counts.astype(float)
        columns = [f"{client} ({total:.0f} examples)" for client, total in enumerate(counts.sum(axis=0))]
        part.drawings += _kept(
            heat(
                f"examples of each {each.rows}" if len(counts) > 1 else "examples",
                each.name,
                np.where(counts > 0, counts, np.nan),
                x="client",
                columns=columns,
                y=each.rows,
                rows=_numbers(range(len(counts))),
                limits=(0.0, float(counts.max())),
            )
        )


MADE: dict[str, Callable[[Sequence[Run], Shown], None]] = {
    "norms": _norms,
    "fedlws": _fedlws,
    "fedalr": _fedalr,
    "two_d_lrd": _two_d_lrd,
    "fednlr": _fednlr,
    "labels": _labels,
}
"""The kinds of `lab/plots` that are not charts of the comparison."""


def _band(runs: Sequence[Run], key: str) -> Band | None:
    return over_rounds([run.rows for run in runs], key)


def _name(each: Group, groups: Sequence[Group]) -> str:
    """The method, and the setting if the groups have several."""
    several = len({other.setting for other in groups}) > 1
    return f"{each.method}, {each.setting}" if several else each.method


def _colours(groups: Sequence[Group], methods: Mapping[str, int]) -> dict[str, int]:
    """A method has its colour of the other charts; with several settings, each line has its own."""
    names = [_name(each, groups) for each in groups]
    if all(name == each.method for name, each in zip(names, groups, strict=True)):
        return {name: methods.get(name, 0) for name in names}
    return {name: number for number, name in enumerate(names)}


def _spread(groups: Sequence[Group]) -> str:
    return "One run each." if all(len(each.runs) == 1 for each in groups) else SEEDS


def _numbers(values: Iterable[float]) -> list[str]:
    return [f"{value:g}" for value in values]


def _kept(drawing: Heat | None) -> list[Drawing]:
    return [] if drawing is None else [drawing]
