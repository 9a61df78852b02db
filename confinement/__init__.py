"""What the kernel allows a process: files by Landlock, everything else by a filter of system calls and by limits.

A program that is not trusted gets a process of its own: `confine` in a fork with one thread, before anything of
the program is imported. It holds for the process and for all that it starts, and nothing takes it back. Only
Linux on x86-64 and aarch64 can do it; elsewhere the package can be imported, and `support()` says what is missing.
"""

from __future__ import annotations

from .confine_process import confine, scope_signals
from .descriptors import close_all_but
from .errors import ConfinementError
from .landlock_rights import KNOWN
from .permissions import Domain
from .process_limits import first_to_end, no_dump
from .support import Support, level, support
from .system_files import basics

__all__ = [
    "KNOWN",
    "ConfinementError",
    "Domain",
    "Support",
    "basics",
    "close_all_but",
    "confine",
    "first_to_end",
    "level",
    "no_dump",
    "scope_signals",
    "support",
]
