"""Environment variables in overrides, as in `out=${oc.env:SCRATCH}/runs`: which ones, and in which commands.

Only commands at the user's own machine replace them, before anything else uses the overrides. A server composes
what somebody else has written, so it replaces none: the value would appear in folders, logs and messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fedstride.errors import ConfigError

from .grammar import quote

if TYPE_CHECKING:
    from .overrides import Override

ALLOWED = ("HOME", "USER", "TMPDIR", "SCRATCH", "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "FEDSTRIDE_RUNS")
"""The variables that an override may name: places and numbers of jobs, never keys or passwords."""

_VARIABLE = re.compile(r"\$\{oc\.env:([A-Za-z0-9_]+)\}")
_REFERENCE = re.compile(r"\$\{[A-Za-z0-9_.]+\}")  # to another key of the configuration: ${rounds}


def with_variables(overrides: Sequence[Override], environ: Mapping[str, str]) -> list[Override]:
    """The overrides with the values of environment variables in place of `${oc.env:NAME}`.

    Only for a configuration that is used on this machine. Raises ConfigError for a variable that is not in
    `ALLOWED` or is not set, and for one inside a list.
    """
    return [_with_variables(given, environ) if "${oc.env:" in given.text else given for given in overrides]


def check_interpolations(overrides: Sequence[Override]) -> None:
    """Raise ConfigError for every `${...}` except references to other keys, such as `${rounds}`.

    OmegaConf's resolvers read environment variables, and Hydra's the time and the folders of this machine.
    """
    for given in overrides:
        _check(given.text, given.text)


def check_references(text: str) -> None:
    """Raise ConfigError for every `${...}` except references to other keys and the allowed variables."""
    _check(text, _VARIABLE.sub(lambda match: "" if match[1] in ALLOWED else match[0], text))


def _check(text: str, rest: str) -> None:
    if len(_REFERENCE.findall(rest)) != rest.count("${"):
        raise ConfigError(
            f"{text!r} is not allowed: ${{...}} may only name another key, as in ${{rounds}}, or, in commands "
            "that use this machine alone (run, resume, simulate, compare, show, partition, check), one of the "
            f"environment variables {', '.join(ALLOWED)}, as in ${{oc.env:HOME}}; write the value instead"
        )


def _with_variables(given: Override, environ: Mapping[str, str]) -> Override:
    check_references(given.text)
    if not isinstance(given.value, str):
        raise ConfigError(
            f"{given.text!r} is not allowed: an environment variable can only be a part of a single text"
        )

    def replaced(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigError(f"{given.text!r} is not allowed: the environment variable {match[1]} is not set")
        return environ[match[1]]

    value = _VARIABLE.sub(replaced, given.value)
    return replace(given, text=f"{given.text.partition('=')[0]}={quote(value)}", value=value)
