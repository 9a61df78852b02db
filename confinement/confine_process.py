"""The steps that confine the calling process, in their order."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from . import kernel
from .assembler import packed
from .call_filter import program
from .errors import ConfinementError
from .landlock_rights import CONNECT_TCP, PathRule, own, own_threads, rights, ruleset, ruleset_of_signals
from .permissions import Domain
from .process_limits import drop_capabilities, limit, no_dump
from .support import Support, support


def confine(domain: Domain, landlock: int | None = None) -> None:
    """Confine the calling process, and all that it starts, to the domain. Nothing takes it back.

    Call it in a fork with one thread, before anything of a program that is not trusted is imported. `landlock`
    lowers the version of Landlock that is used. Raises ConfinementError, one line, if a step fails or a path is
    missing: the process is then partly confined, and must end.
    """
    here = _possible(support(), landlock)
    _step("threads", _one_thread)
    _step("no_new_privs", lambda: kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1))
    _step("capabilities", drop_capabilities)
    _step("limits", lambda: limit(domain))
    # Others of the same user cannot look into the process then. Its entries in /proc belong to root, but those
    # that it needs (files.own) can be read by everybody or, as maps and fd, by the process itself.
    _step("dumps", no_dump)
    _step("Landlock", lambda: _restrict_files(domain, here.landlock))
    code = program(here.machine, here.landlock, os.getpid(), bool(domain.ports), bool(domain.devices))
    _step("filter", lambda: kernel.set_filter(packed(code)))


def scope_signals(outside: int) -> None:
    """Put the calling process, and all that it starts, where a signal reaches only what it started from now on.

    Nothing else changes. `os.kill(-1, SIGKILL)` then ends all of this and nothing outside; this is tried with a
    harmless signal to `outside`, a process of the same user that is not of it, before the function returns. Raises
    ConfinementError, without Landlock 6 too.
    """
    if support().landlock < 6:
        raise ConfinementError("signals cannot be scoped: it needs Landlock ABI 6, Linux 6.12 or newer")
    _step("threads", _one_thread)
    _step("no_new_privs", lambda: kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1))
    _step("Landlock", lambda: _restricted(kernel.create_ruleset(ruleset_of_signals())))
    _step("signals", lambda: _unreachable(outside))


def _possible(available: Support, landlock: int | None) -> Support:
    """What is used of what was found. Raises ConfinementError if it is not enough."""
    level = available.landlock if landlock is None else min(available.landlock, landlock)
    used = Support(available.machine, level, available.filter)
    if not used.possible:
        raise ConfinementError(f"this process cannot be confined; missing: {', '.join(used.missing())}")
    return used


def _step(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except OSError as error:
        raise ConfinementError(f"the process cannot be confined ({name}): {error.strerror or error}") from None


def _one_thread() -> None:
    """Landlock and the filter hold for the calling thread: another one would stay free."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise ConfinementError(f"the process has {threads} threads, and only one can be confined")


def _restrict_files(domain: Domain, landlock: int) -> None:
    descriptor = kernel.create_ruleset(ruleset(landlock))
    for rule in _rules(domain, os.getpid()):
        _allow(descriptor, rule, landlock)
    for port in domain.ports if landlock >= 4 else ():
        kernel.add_port(descriptor, CONNECT_TCP, port)
    _restricted(descriptor)


def _rules(domain: Domain, pid: int) -> Iterable[PathRule]:
    yield from own(pid)
    yield from (PathRule(path, "read") for path in domain.read)
    yield from (PathRule(path, "write") for path in domain.write)
    yield from (PathRule(path, "list") for path in domain.listed)
    yield from (PathRule(path, "device") for path in domain.devices)
    if domain.devices:  # CUDA names its threads, and ends if it may not
        yield own_threads(pid)


def _allow(ruleset: int, rule: PathRule, landlock: int) -> None:
    descriptor = _named(rule.path)
    try:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        kernel.add_path(ruleset, rights(rule.kind, folder, landlock), descriptor)
    finally:
        os.close(descriptor)


def _named(path: Path) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise ConfinementError(f"{path} cannot be made readable or writable: {error.strerror}") from None


def _restricted(ruleset: int) -> None:
    try:
        kernel.restrict(ruleset)
    finally:
        os.close(ruleset)


def _unreachable(outside: int) -> None:
    try:
        os.kill(outside, 0)
    except PermissionError:
        return
    raise ConfinementError("signals cannot be scoped: one reached a process outside of the domain")
