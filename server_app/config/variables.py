"""Environment variables in overrides, as in `out=${oc.env:SCRATCH}/runs`: which ones, and in which commands.

Only commands at the user's own machine replace them, before anything else reads the overrides. A server composes
what somebody else has written, so it replaces none: the value would appear in folders, logs and messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fedstride.errors import ConfigError

from .overrides import quote, read

ALLOWED = ("HOME", "USER", "TMPDIR", "SCRATCH", "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "FEDSTRIDE_RUNS")
"""The variables that an override may name: places and numbers of jobs, never keys or passwords."""

_VARIABLE = re.compile(r"\$\{oc\.env:([A-Za-z0-9_]+)\}")
_REFERENCE = re.compile(r"\$\{[A-Za-z0-9_.]+\}")  # to another key of the configuration: ${rounds}


def with_variables(overrides: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The overrides with the values of environment variables in place of `${oc.env:NAME}`.

    Only for a configuration that is used on this machine. Raises ConfigError for a variable that is not in
    `ALLOWED` or is not set, and for one inside a list.
    """
    return [_with_variables(text, environ) if "${oc.env:" in text else text for text in overrides]


def check_interpolations(overrides: Sequence[str]) -> None:
    """Raise ConfigError for every `${...}` except references to other keys, such as `${rounds}`.

    OmegaConf's resolvers read environment variables, and Hydra's the time and the folders of this machine.
    """
    for text in overrides:
        if len(_REFERENCE.findall(text)) != text.count("${"):
            raise ConfigError(
                f"{text!r} is not allowed: ${{...}} may only name another key, as in ${{rounds}}, or, in commands "
                "that use this machine alone (run, resume, simulate, show, partition), one of the environment "
                f"variables {', '.join(ALLOWED)}, as in ${{oc.env:HOME}}; write the value instead"
            )


def _with_variables(text: str, environ: Mapping[str, str]) -> str:
    check_interpolations([_VARIABLE.sub(lambda found: "" if found[1] in ALLOWED else found[0], text)])
    value = read(text, "key=value, as in out=${oc.env:HOME}/runs").value()
    if not isinstance(value, str):
        raise ConfigError(f"{text!r} is not allowed: an environment variable can only be a part of a single text")

    def replaced(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise ConfigError(f"{text!r} is not allowed: the environment variable {found[1]} is not set")
        return environ[found[1]]

    return f"{text.partition('=')[0]}={quote(_VARIABLE.sub(replaced, value))}"
