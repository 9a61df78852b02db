"""Reads `conf/papers/`: the experiments as five papers state them, and what we chose where they are silent.

`experiments.yaml` contains the papers' settings in the papers' own terms; its head explains the fields.
`<paper>.yaml` contains our choices for one paper:

    chosen:      a list of {key, value, when, source, why}. `key` is a key of a configuration (rounds, client.lr,
                 partition, task.normalisation), `PART.KEY` for a setting of a method (fedlws.beta), or `method`.
                 Without `value`, the entry only says that a value of experiments.yaml is not the paper's own
                 statement. `when` restricts it: patterns of the experiment's name, or values of other keys.
                 `source` is one of `PaperSource`.
    impossible:  experiments that are not one run of this version, by name or pattern, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import yaml

from fedstride.errors import unknown

from ..conf import conf_dir

UNSTATED = "unstated"
"""The value of a setting that a paper does not state."""


class PaperSource(StrEnum):
    """Where a value comes from."""

    PAPER = "paper"  # the paper states it
    INFERRED = "inferred"  # it follows from other statements or figures of the paper
    UNSTATED = "unstated"  # the paper leaves it open; the value is our choice
    SEVERAL = "several"  # the paper has several values in this experiment; the value is one of them


@dataclass(frozen=True)
class PaperChoice:
    """A value that we chose, or a remark on where a value comes from (`has_value` is false)."""

    key: str
    value: Any
    has_value: bool
    when: Mapping[str, tuple[Any, ...]]
    source: PaperSource
    why: str

    def fits(self, name: str, values: Mapping[str, Any]) -> bool:
        """Whether it is for the experiment with this name and these values by key."""
        return all(
            any(fnmatchcase(name, pattern) for pattern in allowed) if key == "name" else values.get(key) in allowed
            for key, allowed in self.when.items()
        )


def papers() -> list[str]:
    """The names of the papers, such as `fedlws`, in the order of experiments.yaml."""
    return list(dict.fromkeys(name.partition("/")[0] for name in experiment_names()))


def experiment_names() -> list[str]:
    """The names of all experiments, such as `fednnnn/table2_mnist_iid_b`, in the order of the file."""
    return list(_read("experiments")["experiments"])


def experiment(name: str) -> dict[str, Any]:
    """The complete settings of an experiment; the head of experiments.yaml explains the fields.

    Raises ConfigError, with similar names, for an unknown one.
    """
    if name not in _read("experiments")["experiments"]:
        raise unknown("experiment of a paper", name, experiment_names())
    entry: dict[str, Any] = _read("experiments")["experiments"][name]
    return entry


@cache
def chosen(paper: str) -> tuple[PaperChoice, ...]:
    """Our choices for a paper, in the order of its file."""
    return tuple(
        PaperChoice(
            key=entry["key"],
            value=entry.get("value"),
            has_value="value" in entry,
            when={key: tuple(v) if isinstance(v, list) else (v,) for key, v in entry.get("when", {}).items()},
            source=PaperSource(entry["source"]),
            why=entry["why"],
        )
        for entry in _read(paper)["chosen"]
    )


def why_impossible(name: str) -> str | None:
    """Why an experiment is not one run of this version; None if nothing is against it."""
    paper, _, short = name.partition("/")
    reasons: Mapping[str, str] = _read(paper).get("impossible", {})
    return next((reason for pattern, reason in reasons.items() if fnmatchcase(short, pattern)), None)


@cache
def _read(name: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader gives the same result ten times faster
    with (conf_dir() / "papers" / f"{name}.yaml").open("rb") as file:
        tree: dict[str, Any] = yaml.load(file, loader)
    return tree
