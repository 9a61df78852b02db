"""The files of the system that every program in Python needs."""

from __future__ import annotations

import sys
from pathlib import Path

SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl/certs",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
)
"""Programs, libraries, names, certificates, and how large the machine is. Not the rest of /etc, which may hold
passwords."""

OWN_LIMITS = (
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
)
"""A container's limits. joblib opens them wherever they exist, and ends if it may not. The tree above them is not
readable: it has the names of all services of the host."""

NAMES = "/etc/resolv.conf"


def basics(*, network: bool = False) -> tuple[Path, ...]:
    """The paths to read that exist on this machine, the environment of this Python included.

    With `network` the addresses of name servers are among them. An environment inside of a clone (.venv) makes the
    environment readable, not the clone: to import a package of a clone, its folder must be in `Domain.read`, and
    the clone in `Domain.listed`.
    """
    environment = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    wanted = [*(Path(name) for name in (*SYSTEM, *OWN_LIMITS, *([NAMES] if network else []))), *environment]
    return tuple(dict.fromkeys(path for path in wanted if path.exists()))
