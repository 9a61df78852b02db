"""Ways to other processes: signals, memory, limits, sockets, descendants and terminals."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pty
import resource
import signal
import socket
import struct
import termios
from pathlib import Path

from trials import CANARY, SYSTEM, World, raw, way

from confinement import Domain, confine, kernel

FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX = 0x8901, 0x8902, 0x5412, 0x541C
PTRACE_SEIZE = 0x4206
CLONE_PARENT, NEW_USER, NEW_NET, NEW_UTS = 0x8000, 0x10000000, 0x40000000, 0x04000000


def ended(w: World) -> bool:
    return w.ended(w.victim)


def keeps_pair(w: World) -> None:
    w.kept |= {each.fileno() for each in w.pair}


# ------------------------------------------------------------------ row 2: terminals


def on_a_terminal(w: World) -> None:
    """Both ends stay open: a terminal that hangs up would end the actor before it tries anything."""
    os.setsid()
    w.terminal = pty.openpty()
    fcntl.ioctl(w.terminal[1], termios.TIOCSCTTY, 0)
    w.kept |= set(w.terminal)


@way("2", "typing into the terminal (TIOCSTI)", before=on_a_terminal)
def _(w: World) -> None:
    fcntl.ioctl(w.terminal[1], TIOCSTI, b"x")


@way("2", "pasting into the console (TIOCLINUX)", before=on_a_terminal, reached=(errno.ENOTTY,))
def _(w: World) -> None:
    fcntl.ioctl(w.terminal[1], TIOCLINUX, b"\3")


@way("2", "opening the terminal of the session", before=on_a_terminal)
def _(w: World) -> None:
    os.close(os.open("/dev/tty", os.O_RDWR))


# ------------------------------------------------------------------ row 4: signals


@way("4", "kill", harm=ended)
def _(w: World) -> None:
    os.kill(w.victim, signal.SIGUSR1)


def confined_sibling(w: World) -> None:
    w.sibling = w.process(lambda: confine(Domain(read=SYSTEM)))


@way("4", "kill of another run's child", outside=confined_sibling, harm=lambda w: w.ended(w.sibling))
def _(w: World) -> None:
    os.kill(w.sibling, signal.SIGUSR1)


@way("4", "kill of a group", harm=ended)
def _(w: World) -> None:
    os.killpg(w.victim, signal.SIGUSR1)


def in_the_victims_group(w: World) -> None:
    os.setpgid(0, w.victim)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@way("4", "kill of the own group", before=in_the_victims_group, harm=ended)
def _(w: World) -> None:
    os.kill(0, signal.SIGUSR1)


@way("4", "tgkill", harm=ended)
def _(w: World) -> None:
    kernel.call("tgkill", w.victim, w.victim, signal.SIGUSR1)


@way("4", "tkill", harm=ended)
def _(w: World) -> None:
    kernel.call("tkill", w.victim, signal.SIGUSR1)


@way("4", "pidfd_send_signal", harm=ended)
def _(w: World) -> None:
    signal.pidfd_send_signal(os.pidfd_open(w.victim), signal.SIGUSR1)


QUEUED = ctypes.create_string_buffer(struct.pack("=iii", signal.SIGUSR1, 0, -1), 128)


@way("4", "rt_sigqueueinfo", harm=ended)
def _(w: World) -> None:
    kernel.call("rt_sigqueueinfo", w.victim, signal.SIGUSR1, QUEUED)


@way("4", "rt_tgsigqueueinfo", harm=ended)
def _(w: World) -> None:
    kernel.call("rt_tgsigqueueinfo", w.victim, w.victim, signal.SIGUSR1, QUEUED)


def ring(w: World) -> None:
    """A byte on a descriptor whose owner gets SIGIO."""
    fcntl.fcntl(w.pair[0], fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    w.pair[1].send(b"x")


@way("4", "SIGIO by F_SETOWN", before=keeps_pair, harm=ended)
def _(w: World) -> None:
    fcntl.fcntl(w.pair[0], fcntl.F_SETOWN, w.victim)
    ring(w)


@way("4", "SIGIO by F_SETOWN_EX", before=keeps_pair, harm=ended)
def _(w: World) -> None:
    fcntl.fcntl(w.pair[0], 15, struct.pack("=ii", 1, w.victim))
    ring(w)


@way("4", "SIGIO by ioctl FIOSETOWN", before=keeps_pair, harm=ended)
def _(w: World) -> None:
    fcntl.ioctl(w.pair[0], FIOSETOWN, struct.pack("=i", w.victim))
    ring(w)


@way("4", "SIGIO by ioctl SIOCSPGRP", before=keeps_pair, harm=ended)
def _(w: World) -> None:
    fcntl.ioctl(w.pair[0], SIOCSPGRP, struct.pack("=i", w.victim))
    ring(w)


# ------------------------------------------------------------------ row 8: limits and priorities


@way("8", "a limit of the node", harm=lambda w: resource.prlimit(w.victim, resource.RLIMIT_NOFILE)[0] == 7)
def _(w: World) -> None:
    resource.prlimit(w.victim, resource.RLIMIT_NOFILE, (7, 7))


@way("8", "the processors of the node", harm=lambda w: len(os.sched_getaffinity(w.victim)) == 1)
def _(w: World) -> None:
    os.sched_setaffinity(w.victim, {0})


@way("8", "the priority of the node", harm=lambda w: os.getpriority(os.PRIO_PROCESS, w.victim) == 19)
def _(w: World) -> None:
    os.setpriority(os.PRIO_PROCESS, w.victim, 19)


@way("8", "the scheduling of the node", harm=lambda w: os.sched_getscheduler(w.victim) == os.SCHED_IDLE)
def _(w: World) -> None:
    os.sched_setscheduler(w.victim, os.SCHED_IDLE, os.sched_param(0))


@way("8", "the scheduling's parameter")
def _(w: World) -> None:
    os.sched_setparam(w.victim, os.sched_param(0))


@way("8", "sched_setattr", harm=lambda w: os.sched_getscheduler(w.victim) == os.SCHED_BATCH)
def _(w: World) -> None:
    wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_BATCH, 0, 0, 0, 0, 0, 0)
    kernel.call("sched_setattr", w.victim, ctypes.create_string_buffer(wanted), 0)


@way("8", "the priority of the node's disk")
def _(w: World) -> None:
    kernel.call("ioprio_set", 1, w.victim, 3 << 13)


@way(
    "8", "who the kernel ends first", harm=lambda w: Path(f"/proc/{w.victim}/oom_score_adj").read_text() == "999\n"
)
def _(w: World) -> None:
    Path(f"/proc/{w.victim}/oom_score_adj").write_text("999")


@way("8", "the pages of the node (migrate_pages)", reached=(errno.EINVAL, errno.EFAULT))
def _(w: World) -> None:
    kernel.call("migrate_pages", w.victim, 0, None, None)


@way("8", "the pages of the node (move_pages)")
def _(w: World) -> None:
    kernel.call("move_pages", w.victim, 0, None, None, None, 0)


@way("8", "the pages of the node (process_madvise)")
def _(w: World) -> None:
    part = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(CANARY) & ~4095, 4096), 16)
    kernel.call("process_madvise", os.pidfd_open(w.victim), part, 1, 20, 0)


@way("8", "the memory of the node (process_mrelease)", reached=(errno.EINVAL,))
def _(w: World) -> None:
    kernel.call("process_mrelease", os.pidfd_open(w.victim), 0)


# ------------------------------------------------------------------ row 9 and the network


def received(listening: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return listening.recv(10) == b"mine"
    return False


def connected(listening: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        listening.accept()[0].close()
        return True
    return False


@way("9", "a datagram to a socket in the file system", harm=lambda w: received(w.datagrams))
def _(w: World) -> None:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].sendto(b"mine", str(w.folder / "datagrams"))


@way("9", "a datagram to an abstract socket", harm=lambda w: received(w.hidden))
def _(w: World) -> None:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].sendto(b"mine", w.hidden_at)


@way("9", "a datagram to an abstract socket of a new socket", harm=lambda w: received(w.hidden))
def _(w: World) -> None:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"mine", w.hidden_at)


@way("9", "pairs of packets")
def _(w: World) -> None:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@way("9", "a socket in the file system", harm=lambda w: connected(w.stream))
def _(w: World) -> None:
    socket.socket(socket.AF_UNIX).connect(str(w.folder / "stream"))


@way("9", "bind, with an inherited socket", before=keeps_pair)
def _(w: World) -> None:
    w.pair[0].bind(f"\0confinement-{os.getpid()}")


@way("9", "listen, with an inherited socket", before=lambda w: w.kept.add(w.tcp.fileno()))
def _(w: World) -> None:
    w.tcp.listen(1)


@way(
    "9", "accept4, with an inherited socket", before=lambda w: w.kept.add(w.tcp.fileno()), reached=(errno.EAGAIN,)
)
def _(w: World) -> None:
    w.tcp.accept()


@way("9", "accept, with an inherited socket", before=lambda w: w.kept.add(w.tcp.fileno()), reached=(errno.EAGAIN,))
def _(w: World) -> None:
    kernel.call("accept", w.tcp.fileno(), None, None)


@way("+", "TCP", harm=lambda w: connected(w.tcp))
def _(w: World) -> None:
    socket.socket().connect(w.tcp_at)


@way("+", "UDP", harm=lambda w: received(w.udp))
def _(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"mine", w.udp_at)


@way("+", "listening on TCP")
def _(w: World) -> None:
    socket.socket().bind(("127.0.0.1", 0))


@way("+", "netlink")
def _(w: World) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)


@way("+", "raw packets")
def _(w: World) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


# ------------------------------------------------------------------ row 21: out of a domain with one port

MULTIPATH, FAST_OPEN = 262, 0x20000000


@way("21", "TCP to another port", harm=lambda w: connected(w.tcp), ports=True, since=4)
def _(w: World) -> None:
    socket.socket().connect(w.tcp_at)


@way("21", "multipath TCP to another port", harm=lambda w: connected(w.tcp), ports=True)
def _(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, MULTIPATH).connect(w.tcp_at)


@way("21", "data before the connection to another port (sendto)", harm=lambda w: connected(w.tcp), ports=True)
def _(w: World) -> None:
    socket.socket().sendto(b"mine", FAST_OPEN, w.tcp_at)


@way("21", "data before the connection to another port (sendmsg)", harm=lambda w: connected(w.tcp), ports=True)
def _(w: World) -> None:
    socket.socket().sendmsg([b"mine"], [], FAST_OPEN, w.tcp_at)


@way("21", "data with the connection to another port", harm=lambda w: connected(w.tcp), ports=True, since=4)
def _(w: World) -> None:
    client = socket.socket()
    client.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
    client.connect(w.tcp_at)
    client.send(b"mine")


@way("21", "UDP beside TCP", harm=lambda w: received(w.udp), ports=True)
def _(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"mine", w.udp_at)


@way("21", "a socket in the file system beside TCP", harm=lambda w: connected(w.stream), ports=True)
def _(w: World) -> None:
    socket.socket(socket.AF_UNIX).connect(str(w.folder / "stream"))


@way("21", "a new listening socket", ports=True)
def _(w: World) -> None:
    socket.socket().listen(1)


@way("21", "an own address", ports=True)
def _(w: World) -> None:
    socket.socket().bind(("127.0.0.1", 0))


# ------------------------------------------------------------------ rows 14 and 17: new processes


def cloned(flags: int) -> None:
    """A process by a bare system call."""
    _ends(kernel.call("clone", flags | signal.SIGCHLD, None, None, None, None))


def _ends(pid: int) -> None:
    """The new process ends at once. One that is the runner's child is waited for there."""
    if pid == 0:
        os._exit(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


@way("14", "a child of the template (CLONE_PARENT)")
def _(w: World) -> None:
    cloned(CLONE_PARENT)


@way("17", "clone with a new user's namespace")
def _(w: World) -> None:
    cloned(NEW_USER)


@way("17", "clone with a new network and user")
def _(w: World) -> None:
    cloned(NEW_USER | NEW_NET)


@way("17", "clone3 with a new user's namespace")
def _(w: World) -> None:
    wanted = struct.pack("=8Q", NEW_USER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    _ends(kernel.call("clone3", ctypes.create_string_buffer(wanted, 64), 64))


@way("14", "unshare of the user's namespace")
def _(w: World) -> None:
    kernel.call("unshare", NEW_USER)


raw("17", "unshare", NEW_UTS)
raw("17", "setns", -1, 0)


# ------------------------------------------------------------------ tried and closed before: memory of others


@way("+", "the memory of the node (process_vm_readv)")
def _(w: World) -> None:
    mine = ctypes.create_string_buffer(len(CANARY))
    local = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(mine), len(mine)), 16)
    there = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(CANARY), len(mine)), 16)
    kernel.call("process_vm_readv", w.victim, local, 1, there, 1, 0)


@way("17", "the memory of the node (process_vm_writev)")
def _(w: World) -> None:
    local = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(CANARY), len(CANARY)), 16)
    kernel.call("process_vm_writev", w.victim, local, 1, local, 1, 0)


@way("+", "ptrace of the node")
def _(w: World) -> None:
    kernel.call("ptrace", PTRACE_SEIZE, w.victim, 0, 0)


for place in ("mem", "environ", "cmdline", "maps", "fd", "cwd", "root/etc/hostname"):

    @way("+", f"/proc/NODE/{place}")
    def _(w: World, place: str = place) -> None:
        os.close(os.open(f"/proc/{w.victim}/{place}", os.O_RDONLY))


@way("+", "where the node's program is")
def _(w: World) -> None:
    os.readlink(f"/proc/{w.victim}/exe")


@way("+", "a descriptor of the node (pidfd_getfd)")
def _(w: World) -> None:
    kernel.call("pidfd_getfd", os.pidfd_open(w.victim), 0, 0)


@way("+", "comparing with the node (kcmp)")
def _(w: World) -> None:
    kernel.call("kcmp", os.getpid(), w.victim, 1, 0, 0)
