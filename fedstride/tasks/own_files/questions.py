"""Questions about a site's columns, as the texts under which their answers are kept.

A text names the columns of the file, and how the site reads them now: its data file may say another unit later, or
another name of the same column, and its policy another smallest number of rows. The answer is then another one.
Two answers about one column, of rows of which a few differ, would say what these rows contain, whatever the unit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ..data_toml.site import SiteData
from . import kept_rows
from .kept_rows import SetOfRows

MOMENTS: Final = "moments"
MEDIAN: Final = "median"
DESCRIPTION: Final = "description"


class Asker(NamedTuple):
    """What a question depends on beside a message: how a site reads its columns, and its least number of rows."""

    site: SiteData
    least: int

    def question(self, kind: str, name: str, columns: Sequence[str], *more: object) -> str:
        """The question about these columns of the task. `name`, `more`: what distinguishes it from others."""
        form = self.site.form
        read = [
            replace(form, columns={}),
            *(form.of(column) for column in columns),
            self.site.id,
            self.least,
            more,
        ]
        digest = hashlib.sha256(repr(read).encode()).hexdigest()[:32]
        return json.dumps([kind, name, sorted({form.of(column).name or column for column in columns}), digest])


def is_answered(question: str, answered: Iterable[str]) -> bool:
    """Whether this question, or another one of its kind about one of its columns, is among these."""
    kind, _, columns, _ = json.loads(question)
    return any(
        of_kind == kind and not set(of_columns).isdisjoint(columns)
        for of_kind, _, of_columns, _ in map(json.loads, answered)
    )


def must_wait(question: str, rows: SetOfRows, said: Iterable[tuple[SetOfRows, Iterable[str]]], least: int) -> bool:
    """Whether a new answer about these rows would differ by a few rows from one that was said of a column of it.

    `said`: the sets of rows of which something was said, each with its questions.
    """
    return any(
        is_answered(question, answered) and 0 < kept_rows.distance(rows, other) < least for other, answered in said
    )
