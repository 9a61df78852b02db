"""Tries ways out of a confined process: each once unconfined, to see that it works, and once confined.

A way is a function that acts in a process of its own, on a world that is made for this trial: files, sockets and
processes of the test, which stand for a node and its user. `python trials.py UID LEVEL` runs all ways as that user
and at that version of Landlock, and prints what happened as JSON. Nothing acts on the machine: where a call would,
its arguments are such that the kernel refuses them after it has checked who asks (`reached`).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confinement import Domain, close_all_but, confine, kernel

CANARY = ctypes.create_string_buffer(b"a patient's row")
SYSTEM = tuple(path for path in map(Path, ("/usr", "/lib", "/lib64")) if path.exists())
SECONDS = 10.0


@dataclass
class World:
    """What one trial may touch. The actor may write `scratch`, read `data`, and nothing else here."""

    folder: Path
    victim: int = 0
    sibling: int = 0
    terminal: tuple[int, int] = (-1, -1)
    kept: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.scratch, self.node = self.folder / "scratch", self.folder / "node"
        self.key, self.log, self.data = self.node / "key", self.node / "log", self.folder / "data.csv"
        for each in (self.scratch, self.node):
            each.mkdir()
        self.key.write_text("KEY")
        self.key.chmod(0o600)
        self.log.write_text("an honest line\n")
        self.data.write_text("a,b\n1,2\n")
        self.log_file = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(self.folder / "datagrams"))
        self.stream = socket.create_server(str(self.folder / "stream"), family=socket.AF_UNIX)
        self.hidden = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.hidden.bind(f"\0{self.folder}")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.allowed = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.sockets = (self.datagrams, self.stream, self.hidden, self.tcp, self.allowed, self.udp)
        # asked for now, because a confined actor has none of these sockets
        self.tcp_at, self.allowed_at, self.udp_at, self.hidden_at = (
            each.getsockname() for each in (self.tcp, self.allowed, self.udp, self.hidden)
        )
        self.pair = socket.socketpair()
        for each in (*self.sockets, *self.pair):
            each.setblocking(False)
        self.victim = self.process()

    def process(self, before: Callable[[], None] = lambda: None) -> int:
        """A process of the same user, outside of the domain, that waits."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                before()
                os.write(writing, b"x")
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)
        return pid

    def ended(self, pid: int) -> bool:
        """Whether a signal ended the process, waiting a moment for it."""
        for _ in range(20):
            if pid in self.dead or os.waitpid(pid, os.WNOHANG) != (0, 0):
                self.dead.add(pid)
                return True
            time.sleep(0.002)
        return False

    def close(self) -> None:
        for pid in {self.victim, self.sibling} - {0} - self.dead:
            os.kill(pid, signal.SIGKILL)
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            pass
        for each in (*self.sockets, *self.pair):
            each.close()
        os.close(self.log_file)
        self.node.chmod(0o700)
        shutil.rmtree(self.folder)


def nothing(world: World) -> None:
    """The default of what is done before."""


@dataclass(frozen=True)
class Way:
    """A way out. It worked if `act` raised nothing, or only one of `reached`; with `harm`, if that is true."""

    row: str
    name: str
    act: Callable[[World], object]
    harm: Callable[[World], bool] | None = None
    outside: Callable[[World], None] = nothing
    before: Callable[[World], None] = nothing
    reached: tuple[int, ...] = ()
    ports: bool = False
    """Whether the domain has a port that may be connected to."""
    since: int = 1
    """The version of Landlock that closes the way; `Support.missing` says that older ones do not."""


WAYS: list[Way] = []


def way(
    row: str,
    name: str,
    *,
    harm: Callable[[World], bool] | None = None,
    outside: Callable[[World], None] = nothing,
    before: Callable[[World], None] = nothing,
    reached: Iterable[int] = (),
    ports: bool = False,
    since: int = 1,
) -> Callable[[Callable[[World], object]], Callable[[World], object]]:
    """The decorator that puts a function into the table of ways."""

    def add(act: Callable[[World], object]) -> Callable[[World], object]:
        WAYS.append(Way(row, name, act, harm, outside, before, tuple(reached), ports, since))
        return act

    return add


SEEN = (
    errno.EINVAL,
    errno.EFAULT,
    errno.EBADF,
    errno.ENOENT,
    errno.ENODEV,
    errno.ENOTTY,
    errno.ESRCH,
    errno.ENOEXEC,
)
"""Errors of a call that the kernel took and whose arguments make no sense."""


def raw(row: str, name: str, *arguments: int | bytes | None, reached: Iterable[int] = SEEN) -> None:
    """The way of a single system call with arguments that do nothing. The result, if it is one, is dropped."""

    def act(world: World) -> None:
        given = [ctypes.create_string_buffer(each) if isinstance(each, bytes) else each for each in arguments]
        kernel.call(name, *given)

    WAYS.append(Way(row, f"system call {name}", act, reached=tuple(reached)))


def trial(each: Way, held: bool, level: int) -> tuple[bool, str]:
    """Whether the way worked, and what the actor was told."""
    world = World(Path(tempfile.mkdtemp(dir=BASE[0])))
    try:
        each.outside(world)
        reading, writing = os.pipe()
        actor = os.fork()
        if actor == 0:
            _act(each, world, held, level, writing)
        os.close(writing)
        told = _heard(reading)
        if not told:
            os.kill(actor, signal.SIGKILL)
        os.close(reading)
        status = os.waitpid(actor, 0)[1]
        done, why = json.loads(told) if told else (False, f"ended with status {status}")
        if each.harm is not None:
            done = each.harm(world)
            why = "" if done else f"no harm; {why or 'answered as if done'}"
        return done, why
    finally:
        world.close()


BASE: list[str] = []
"""The folder of all worlds."""


def _heard(reading: int) -> bytes:
    ready = select.select([reading], [], [], SECONDS)[0]
    return os.read(reading, 4000) if ready else b""


def _act(each: Way, world: World, held: bool, level: int, report: int) -> None:
    told: tuple[bool, str] = (False, "not confined")
    try:
        each.before(world)
        if held:
            close_all_but({0, 1, 2, report} | world.kept)
            ports = (world.allowed_at[1],) if each.ports else ()
            confine(Domain(read=(*SYSTEM, world.data), write=(world.scratch,), ports=ports), level)
        told = _tried(each, world)
    except BaseException as error:
        told = (False, f"the trial itself failed: {type(error).__name__}: {error}")
    finally:
        os.write(report, json.dumps(told).encode())
        os._exit(0)


def _tried(each: Way, world: World) -> tuple[bool, str]:
    try:
        each.act(world)
    except OSError as error:
        return error.errno in each.reached, f"{error.strerror}"
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
    return True, ""


def become(uid: int) -> None:
    """Go on as that user, who can be traced like any user's process."""
    os.chown(BASE[0], uid, uid)
    if uid != os.getuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def main() -> None:
    uid, level = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="ways-") as base:
        BASE.append(base)
        runner = os.fork()
        if runner == 0:
            become(uid)
            found = [(each.row, each.name, trial(each, False, level), trial(each, True, level)) for each in WAYS]
            print(json.dumps(found), flush=True)
            os._exit(0)
        os.waitpid(runner, 0)
