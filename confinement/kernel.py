"""System calls through the C library. Each function raises OSError with the kernel's reason.

The library is loaded at the first call, so that importing this module is safe everywhere.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
import sys

from .call_numbers import MACHINES, number

PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_GET_SECCOMP, PR_SET_SECCOMP = 3, 4, 21, 22
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 23, 24, 28, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_MODE_FILTER = 2
RULE_PATH, RULE_PORT = 1, 2
VERSION = 1
CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)
"""The head of capget and capset: version 3, the calling thread."""


def machine() -> str:
    """The name of this machine if its system calls are known, else ''."""
    known = sys.platform == "linux" and platform.machine() in MACHINES and struct.calcsize("P") == 8
    return platform.machine() if known else ""


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    library.syscall.argtypes = [ctypes.c_long, *[ctypes.c_void_p] * 6]
    library.prctl.restype = ctypes.c_int
    library.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return library


def call(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    """Do the system call. An argument is a whole number, a buffer, or None for a null pointer."""
    value = number(name, machine()) if machine() else None
    if value is None:
        raise OSError(errno.ENOSYS, f"no system call {name} on this machine")
    given = [
        ctypes.addressof(argument) if isinstance(argument, ctypes.Array) else argument for argument in arguments
    ]
    return _checked(_library().syscall(value, *given, *[None] * (6 - len(given))))


def prctl(option: int, *arguments: int) -> int:
    """Do `prctl` with up to four arguments."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "only Linux has prctl")
    return _checked(_library().prctl(option, *arguments, *[0] * (4 - len(arguments))))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _buffer(content: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(content, len(content))


def landlock_version() -> int:
    """The version of the kernel's Landlock, 0 without it."""
    try:
        return call("landlock_create_ruleset", None, 0, VERSION)
    except OSError:
        return 0


def filters_calls() -> bool:
    """Whether the kernel takes filters of system calls."""
    try:
        call("seccomp", 2, 0, _buffer(struct.pack("=I", 0x80000000)))  # is the action "end the process" there?
    except OSError:
        return False
    return True


def create_ruleset(attribute: bytes) -> int:
    """A new set of Landlock's rules: its descriptor."""
    return call("landlock_create_ruleset", _buffer(attribute), len(attribute), 0)


def add_path(ruleset: int, rights: int, descriptor: int) -> None:
    """Allow the rights on what the descriptor names, and on all below it."""
    rule = struct.pack("=Qi", rights, descriptor)
    call("landlock_add_rule", ruleset, RULE_PATH, _buffer(rule), 0)


def add_port(ruleset: int, rights: int, port: int) -> None:
    """Allow the rights on the TCP port."""
    call("landlock_add_rule", ruleset, RULE_PORT, _buffer(struct.pack("=QQ", rights, port)), 0)


def restrict(ruleset: int) -> None:
    """Put the calling thread, and all that it will start, under the rules."""
    call("landlock_restrict_self", ruleset, 0)


def set_filter(program: bytes) -> None:
    """Put the calling thread, and all that it will start, under the filter."""
    code = _buffer(program)
    head = _buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(head))


def capabilities() -> tuple[int, int, int]:
    """The effective, permitted and inheritable capabilities of the calling thread, a bit each."""
    sets = ctypes.create_string_buffer(24)
    call("capget", _buffer(CAPABILITIES), sets)
    low = struct.unpack("=6I", sets.raw)
    return (low[0] | low[3] << 32, low[1] | low[4] << 32, low[2] | low[5] << 32)


def no_capabilities() -> None:
    """Empty all three sets."""
    call("capset", _buffer(CAPABILITIES), ctypes.create_string_buffer(24))


def close_range(first: int, last: int) -> None:
    """Close all descriptors from `first` to `last`."""
    call("close_range", first, last, 0)
