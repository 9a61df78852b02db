"""What the process of a node does that reads the site's data: checks them, and writes the examples of one form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, printable
from ..data_toml.dictionary import GOALS, Dictionary
from ..data_toml.site import SiteData
from ..evaluation.holdout import draws_of, folds_of, held_key, hold_out, key_of
from ..inputs import Inputs, Kind
from ..reading import Reading
from ..spec import Spec
from ..statistics.example_digests import keyed
from . import column_statistics
from .description import ANSWER, of_site
from .loading import ARRAYS, FORM, examples_in, files, form, of_task, resolved
from .questions import Asker
from .tables import table_file

CHECKED_SECONDS = 1.0  # of a recording, when the data are checked
CHECKED_WORDS = (64, 20_000)  # length and vocabulary of a text, when the data are checked


def checked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """How many `rows` a site's data have, how many `ids` if it has some, and what of them is not as its own file
    says: `faults`, one line each.

    `wanted`: `check`, the site as plain values.
    """
    site = _site(wanted["check"])
    assert site.dictionary is not None
    try:
        count, ids, lines = _faults(site, site.dictionary)
    except DataError as error:
        count, ids, lines = 0, 0, [str(error)]
    about = {"rows": count, "faults": [printable(line) for line in lines]}
    return about | ({"ids": ids} if site.id else {})


def _faults(site: SiteData, dictionary: Dictionary) -> tuple[int, int, list[str]]:
    """See `table_file.faults`. Raises DataError if the data cannot be read."""
    if not dictionary.columns:
        spec = spec_of(dictionary.examples)
        count = len(examples_in(site, files(site, spec), spec).y)
        return count, count, []
    return table_file.faults(site)


def prepared(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Write the examples of a form into a folder, for `load` in another process; how many they are.

    Examples that stay together (of one id, or equal) count once. `wanted`: the site and the form as plain values;
    `folder`; `statistics`, see `column_statistics.py`; `min_rows`; and `shares` of the hold-out, for each of
    which the held-out examples are counted, with `folds` those of each of its folds. Raises DataError and
    ConfigError as `load` does.
    """
    site, spec, folder = _site(wanted["site"]), Spec.unflatten(wanted["form"]), Path(wanted["folder"])
    site.check(spec)
    try:
        examples = examples_in(site, files(site, spec), spec)
    except DataError as error:
        raise DataError(printable(str(error))) from error
    asker = Asker(site, wanted["min_rows"])
    about_columns = Path(wanted["statistics"]), examples, spec, form(site, spec), asker
    report = None if site.is_of_any_form else column_statistics.report(*about_columns)
    key = site.key or key_of(0)
    marks = draws_of(examples.rows, key)
    for name, array in zip(ARRAYS, (examples.x, examples.y, marks), strict=True):
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    about: dict[str, Any] = {
        "form": of_task(spec),
        "moments": report and report.flatten(),
        "min_rows": wanted["min_rows"],
    }
    about["content"] = keyed(examples.content(), key).hex()
    about["order"] = site.order and site.order.hex()
    (folder / FORM).write_text(json.dumps(about))
    held = {held_key(share, fold): _held(marks, share, fold) for share, fold in _divisions(wanted)}
    return {"rows": len(np.unique(marks)), "held": held}


def described(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Write what a site says of its data into a folder, for `description` in another process.

    `wanted`: `describe`, the site as plain values, and the rest as for `prepared`. The answer has `lines` for the
    node's own log. Raises DataError and ConfigError as `of_site` does.
    """
    site, spec = _site(wanted["describe"]), Spec.unflatten(wanted["form"])
    try:
        said = of_site(site, spec, wanted["min_rows"], Path(wanted["statistics"]))
    except DataError as error:
        raise DataError(printable(str(error))) from error
    (Path(wanted["folder"]) / ANSWER).write_text(json.dumps(said.description.flatten()))
    return {"lines": [printable(line) for line in said.lines]}


def _divisions(wanted: Mapping[str, Any]) -> list[tuple[float, int]]:
    """The shares of the hold-out, each with its folds, if runs may choose one."""
    return [(s, fold) for s in wanted["shares"] for fold in range(folds_of(s) if wanted["folds"] else 1)]


def _held(marks: np.ndarray, share: float, fold: int) -> int:
    """How many different examples, or ids, are held out; 0 if they cannot be divided."""
    try:
        return len(np.unique(marks[hold_out(marks, share, 0, fold)[1]]))
    except DataError:
        return 0


def spec_of(said: Mapping[str, Any]) -> Spec:
    """A form of examples that a data file describes; of recordings and texts, one of those that are possible."""
    kind, shape, vocabulary = said["kind"], tuple(said.get("shape", ())), said.get("vocabulary", 0)
    reading = Reading()
    if kind == "sound":
        reading = Reading(rate=said["rate"])
        kind, shape = Kind.SIGNAL, (1, round(said["rate"] * CHECKED_SECONDS))
    elif kind == "text":
        kind, (length, vocabulary) = Kind.TOKENS, CHECKED_WORDS
        shape = (length,)
    if said.get("any_form"):
        reading = Reading(resize="stretch", convert=True, lowest=0.0, highest=1.0)
    goal = next(name for name in GOALS if name in said)
    target = GOALS[goal]
    classes = said[goal]
    names = tuple(classes) if isinstance(classes, list) else ()
    return Spec(
        Inputs(Kind(kind), shape, vocabulary),
        len(names) or classes,
        target,
        scale=said.get("scale", 1.0),
        names=names,
        reading=replace(reading, missing="mean") if said.get("empty") else reading,
    )


def _site(plain: Mapping[str, Any]) -> SiteData:
    site = SiteData.of_plain(plain)
    return replace(site, path=resolved(site.path))
