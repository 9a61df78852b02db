"""What this kernel and machine can confine."""

from __future__ import annotations

from dataclasses import dataclass

from . import kernel
from .landlock_rights import KNOWN

LACKS = (
    (2, "moving files between folders (Landlock ABI 2; refused altogether)"),
    (3, "emptying files (Landlock ABI 3; the filter refuses truncate() instead)"),
    (4, "network by port (Landlock ABI 4; a domain with ports reaches every port)"),
    (5, "controlling devices (Landlock ABI 5; the filter refuses all but harmless requests)"),
    (6, "signals (Landlock ABI 6; the filter refuses them instead, so an app cannot end its own subprocesses)"),
)
"""Version of Landlock (its ABI) -> what older ones lack, and what happens instead."""


@dataclass(frozen=True)
class Support:
    """What this kernel and machine can confine."""

    machine: str
    """x86_64 or aarch64; '' for a machine or system whose calls are not known."""
    landlock: int
    """The version of Landlock that is used; 0: none."""
    filter: bool
    """Whether system calls can be filtered."""

    @property
    def possible(self) -> bool:
        """Whether a process can be confined at all: its files and its system calls."""
        return bool(self.machine) and self.landlock > 0 and self.filter

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing()

    def missing(self) -> tuple[str, ...]:
        """What is not there, in words. Empty if everything is."""
        if not self.machine:
            return ("everything: only Linux on x86-64 or aarch64 can confine a process",)
        lacks = [] if self.filter else ["a filter of system calls (seccomp)"]
        if self.landlock == 0:
            return (*lacks, "files (Landlock, Linux 5.13 or newer with it switched on)")
        return (*lacks, *(text for version, text in LACKS if self.landlock < version))


def support() -> Support:
    """Ask this kernel. Never raises: what cannot be asked is not there."""
    machine = kernel.machine()
    if not machine:
        return Support("", 0, False)
    return Support(machine, min(kernel.landlock_version(), KNOWN), kernel.filters_calls())


def level() -> int:
    """The version of Landlock that is used here; 0: none."""
    return support().landlock
