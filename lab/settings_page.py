"""Generates `docs/settings.md`: every setting of every part, as one page of Markdown."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from fedstride.parts import Table
from fedstride.settings import REQUIRED, Field, Influence, fields_of
from server_app.config.keys import may_change
from server_app.config.schema import FIXED_ON_RESUME, TABLES, Config
from strategies.replies.screening_settings import Screening

COMMAND = "fedstride list --reference"

HEAD = f"""# Settings

All keys of a run's configuration. This page is generated:
`uv run {COMMAND} > docs/settings.md`.
Set a key with `KEY=VALUE`. Choose a part with `GROUP=NAME`. An experiment (`conf/experiment/`,
or [one of the papers'](experiments.md)) may set values other than the defaults below;
`fedstride show NAME` prints the values that apply.

The column *kind* says how a key affects a result:

- *method*: the key belongs to the compared method. It distinguishes the rows of a table of results.
- *setting*: the key belongs to the conditions of the comparison. It distinguishes the columns of a
  table.
- *chance*: the key changes the bits of a result, but it is not compared (seed, device, threads).
- *none*: no result depends on the key.

The column *resume* says whether the key may change when a run is resumed
(`fedstride resume FOLDER KEY=VALUE`). For `parts` and `partition.files`, the
paths may change, but not the content. A run stores its paths as absolute ones; in a deployment
`task.root` belongs to the nodes, and stays as it is given.
"""

COLUMNS = ("key", "type", "default", "allowed", "meaning", "kind", "resume")


def reference() -> str:
    """The complete page, including user-defined parts that are loaded."""
    lines = [HEAD, "## The run", "", *_table("", _of_the_run(Config)), ""]
    lines += ["## `screening`", "", *_table("screening.", _of_the_run(Screening)), ""]
    for group, table in TABLES.items():
        lines += [f"## `{group}`", "", *_group(group, table)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _of_the_run(kind: type) -> Iterator[tuple[Field, Influence]]:
    return ((field, field.setting.kind or Influence.SETTING) for field in fields_of(kind).values())


def _group(group: str, table: Table) -> Iterator[str]:
    shared = fields_of(table.base)
    if shared:
        yield f"For every `{group}`:"
        yield ""
        yield from _table(f"{group}.", ((field, table.kind_of(field)) for field in shared.values()))
        yield ""
    for name in sorted(table):
        fields = table.fields(name)
        inner = " It wraps another one: `BASE+" + name + "`." if table.wraps(name) else ""
        yield f"### `{group}={name}`"
        yield ""
        yield f"{table[name].about}{inner}"
        yield ""
        if fields:
            yield from _table(f"{group}.", ((field, table.kind_of(field)) for field in fields.values()))
            yield ""


def _table(path: str, fields: Iterable[tuple[Field, Influence]]) -> Iterator[str]:
    yield _row(COLUMNS)
    yield "|" + "---|" * len(COLUMNS)
    for field, kind in fields:
        yield _row(
            (
                f"`{path}{field.name}`",
                _type(field.type),
                f"`{_default(field)}`",
                _cell(field.allowed),
                _cell(field.setting.meaning),
                str(kind),
                "may change" if may_change(field, kind) and field.name not in FIXED_ON_RESUME else "",
            )
        )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(kind: Any) -> str:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " or ".join(map(_type, typing.get_args(kind)))
    if kind is types.NoneType:
        return "null"
    if typing.get_origin(kind) is not None:
        return f"{typing.get_origin(kind).__name__} of {_type(typing.get_args(kind)[-1])}"
    return "text" if kind is str else inspect.formatannotation(kind)


def _default(field: Field) -> str:
    return "required" if field.default is REQUIRED else json.dumps(field.default)
