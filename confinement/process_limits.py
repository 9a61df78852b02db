"""Limits and capabilities of the calling process."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

from . import kernel
from .errors import ConfinementError
from .permissions import Domain

SETPCAP = 8
SECUREBITS = 0xEF
"""Root gets no capabilities by being root, a change of user neither gives nor keeps any, none is inherited; all
locked."""


def limits(domain: Domain) -> dict[int, int]:
    """The kernel's number of each limit of the domain -> its value. Pure."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: domain.open_files,
        resource.RLIMIT_AS: domain.memory,
        resource.RLIMIT_NPROC: domain.processes,
        resource.RLIMIT_FSIZE: domain.file_bytes,
        resource.RLIMIT_CPU: domain.cpu_seconds,
    }
    return {which: value for which, value in wanted.items() if value is not None}


def limit(domain: Domain) -> None:
    """Set the limits of the domain for good; a lower one that holds already stays. Raises OSError."""
    for which, value in limits(domain).items():
        hard = resource.getrlimit(which)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (least, least))


def no_dump() -> None:
    """No core file, and no look into this process's memory by others of the same user.

    It holds for this process and its forks. A program that is started with exec can be looked into again, and a
    handler of core files behind a pipe (kernel.core_pattern) gets its core: it decides itself about the limit.
    Raises ConfinementError where the kernel cannot do it.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    except OSError as error:
        raise ConfinementError(f"dumps of this process cannot be forbidden: {error.strerror}") from None


def first_to_end() -> None:
    """Have the kernel end this process, and what it starts, before others when memory runs out. Raises OSError.

    The file belongs to root while the process is not dumpable, so it is dumpable for this moment.
    """
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    finally:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def drop_capabilities() -> None:
    """Give up all capabilities, and the ways to get one back. Raises OSError.

    The bounding set and the secure bits need a capability themselves. A process without it (any user but root)
    cannot set them and need not: with no_new_privs no program that it starts gets a capability.
    """
    if kernel.capabilities()[0] >> SETPCAP & 1:
        for which in range(64):
            try:
                kernel.prctl(kernel.PR_CAPBSET_READ, which)
            except OSError:  # above the kernel's last one
                break
            kernel.prctl(kernel.PR_CAPBSET_DROP, which)
        kernel.prctl(kernel.PR_SET_SECUREBITS, SECUREBITS)
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    kernel.no_capabilities()
    if any(kernel.capabilities()):
        raise OSError(errno.EPERM, "capabilities remain")
