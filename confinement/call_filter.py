"""The filter of system calls: what an app's process may not ask of the kernel. Pure.

Landlock decides about files, and this about everything else: a list of refused calls, with arguments where only
some are dangerous. Every number above the newest known one does not exist, so that a new call is refused until
somebody has read what it does.
"""

from __future__ import annotations

import errno

from .assembler import (
    ALLOW,
    RETURN,
    Among,
    Condition,
    Instruction,
    NotAmong,
    OneOf,
    Without,
    always,
    answer,
    entry,
    exactly,
    when,
)
from .call_numbers import ARCHITECTURES, MACHINES, NEWEST, number
from .errors import ConfinementError

REFUSED = {
    "owner and attributes of files, which Landlock leaves open": "chown fchown lchown fchownat file_setattr",
    "watching files, and handles of files": """
        inotify_init inotify_init1 inotify_add_watch inotify_rm_watch fanotify_init fanotify_mark
        name_to_handle_at open_by_handle_at lookup_dcookie""",
    "devices, mounts and roots": """
        mknod mknodat mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr
        move_mount mount_setattr statmount listmount quotactl quotactl_fd nfsservctl""",
    "the machine": """
        init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct iopl ioperm
        syslog sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex vhangup""",
    "new namespaces": "unshare setns",
    "other processes of the same user": """
        ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd setpriority
        ioprio_set sched_setscheduler sched_setparam sched_setattr migrate_pages move_pages""",
    "memory and queues that outlive the process": """
        shmget shmat shmdt shmctl msgget msgsnd msgrcv msgctl semget semop semtimedop semctl mq_open mq_unlink
        mq_timedsend mq_timedreceive mq_notify mq_getsetattr""",
    "large parts of the kernel that no app needs": """
        io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd keyctl
        add_key request_key modify_ldt personality uselib lsm_set_self_attr""",
    "memory in files without a name, which no limit of memory counts": "memfd_create memfd_secret",
    "connections from outside": "bind listen accept accept4",
}
"""Reason -> names that are refused with EPERM, whatever the arguments."""

CONSTANT = tuple(name for part in REFUSED.values() for name in part.split())

NETWORK = ("socket", "connect")
"""Refused too, unless the domain has ports."""

NOT_SUPPORTED = tuple(
    f"{before}{act}xattr{after}"
    for act in ("get", "list", "set", "remove")
    for before, after in (("", ""), ("l", ""), ("f", ""), ("", "at"))
)
"""Extended attributes, of any file that the user can reach: answered as by a file system without them. Programs
that copy files go on then."""

AS_IF_DONE = ("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "utimensat", "futimesat")
"""Answered with success and not done: programs that copy files (shutil.copy2, numba) end if these fail."""

NOT_THERE = ("clone3", "openat2")
"""Answered as by an older kernel, because a filter cannot see their arguments. The libraries fall back."""

NEW_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
CLONE_PARENT = 0x8000
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE = 1, 5, 0xF
TCP = (0, 6)
MSG_FASTOPEN = 0x20000000
ACCESS_MODE, O_TRUNC = 0o3, 0o1000
OTHER_USER = 0o6000
"""The bits of a file's mode by which a program runs as its owner or group. chmod is not done, but a file can be
made with them: whoever could run it would be the node's user, and not confined."""
PR_SET_DUMPABLE = 4
FCNTLS = (*range(8), 36, 37, 38, 1027, 1028, *range(1030, 1035))
"""Copies, flags and locks of descriptors, sizes of pipes, seals. Not: owners (a signal to any process), leases
(hold up whoever opens the file), notes about a folder."""

IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x540F, 0x541B, 0x5421, 0x5450, 0x5451, 0x40049409, 0x4020940D)
"""Is it a terminal, its settings, size and group; bytes that wait; blocking; close on exec; copies that share
blocks, into a file that is open to be written. Not: typing into a terminal (TIOCSTI, TIOCLINUX), owners, and
attributes, snapshots and verity of file systems, which need no right to write and which Landlock does not see."""

CARD = ((0xFF00, 0x4600), (0xFFFFFF00, 0x00000000), (0xFFFFFF00, 0x30000000))
"""The ioctls of nvidia's driver as (mask, value): letter F, and the plain numbers of its unified memory."""

OF_CARD = ("bind", "listen")
"""CUDA makes a local socket of a name of its own and listens at it, and fails if it cannot ("OS call failed"; seen
with the driver 580). Nobody gets in: the connection would have to be accepted."""


def program(machine: str, landlock: int, pid: int, network: bool, devices: bool = False) -> list[Instruction]:
    """The filter for the process `pid` on a kernel with this version of Landlock.

    With `network`, TCP sockets may be made and connected. With `devices`, the ioctls of a graphics card are
    allowed, and a local socket of the kind that CUDA makes. Raises ConfinementError for a machine whose numbers
    are not known.
    """
    if machine not in MACHINES:
        raise ConfinementError(f"no system calls are known for {machine!r}, only for {' and '.join(MACHINES)}")
    conditional = conditions(landlock, pid, network, devices)
    eperm, enosys = answer(errno.EPERM), answer(errno.ENOSYS)
    made = entry(ARCHITECTURES[machine], NEWEST, enosys)
    made += always(_numbers(refused(landlock, network, devices), machine), eperm)
    made += always(_numbers(NOT_SUPPORTED, machine), answer(errno.EOPNOTSUPP))
    made += always(_numbers(AS_IF_DONE, machine), answer(0))
    made += always(_numbers(NOT_THERE, machine), enosys)
    for name, tests in conditional.items():
        for value in _numbers((name,), machine):
            made += when(value, tests, eperm)
    return [*made, Instruction(RETURN, 0, 0, ALLOW)]


def refused(landlock: int, network: bool, devices: bool = False) -> tuple[str, ...]:
    """The names that are refused whatever the arguments are."""
    names = [*CONSTANT, *(() if network else NETWORK)]
    names = [name for name in names if name not in (*OF_CARD, "socket")] if devices else names
    names += ["truncate"] if landlock < 3 else []
    names += ["tkill", "pidfd_send_signal"] if landlock < 6 else []
    return tuple(names)


def conditions(landlock: int, pid: int, network: bool, devices: bool = False) -> dict[str, tuple[Condition, ...]]:
    """The names that are allowed if all conditions on their arguments hold."""
    ioctls = (*((0xFFFFFFFF, value) for value in IOCTLS), *(CARD if devices else ()))
    made: dict[str, tuple[Condition, ...]] = {
        "open": _opened(1, landlock),
        "openat": _opened(2, landlock),
        "creat": (Without(1, OTHER_USER),),
        "clone": (Without(0, NEW_NAMESPACES | CLONE_PARENT),),
        "socketpair": (exactly(0, AF_UNIX), exactly(1, SOCK_STREAM, mask=SOCK_TYPE)),
        "fcntl": (exactly(1, *FCNTLS),),
        "ioctl": (Among(1, ioctls),),
        "prctl": (NotAmong(0, (PR_SET_DUMPABLE,)),),
        "prlimit64": (exactly(0, 0, pid),),
        "sched_setaffinity": (exactly(0, 0, pid),),
    }
    if network or devices:
        made["socket"] = (_sockets(network, devices),)
    if network:
        made |= _OF_TCP
    if landlock < 6:
        made |= {name: (exactly(0, pid),) for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")}
    return made


def _opened(flags: int, landlock: int) -> tuple[Condition, ...]:
    """Access mode 3 (neither read nor write, only ioctl) needs no right of Landlock, so nobody gets it.

    Before version 3, Landlock does not see that a file which is opened to be read is emptied. The mode is
    looked at without O_CREAT, too: the libraries pass 0 then.
    """
    made = (NotAmong(flags, (3,), ACCESS_MODE), Without(flags + 1, OTHER_USER))
    return made if landlock >= 3 else (*made, NotAmong(flags, (O_TRUNC,), ACCESS_MODE | O_TRUNC))


def _sockets(network: bool, devices: bool) -> OneOf:
    """TCP: Landlock limits the port of `connect` of it alone, not of multipath TCP. Of a card: see `OF_CARD`."""
    tcp = exactly(0, AF_INET, AF_INET6), exactly(1, SOCK_STREAM, mask=SOCK_TYPE), exactly(2, *TCP)
    local = exactly(0, AF_UNIX), exactly(1, SOCK_SEQPACKET, mask=SOCK_TYPE), exactly(2, 0)
    return OneOf((*((tcp,) if network else ()), *((local,) if devices else ())))


_OF_TCP: dict[str, tuple[Condition, ...]] = {
    "sendto": (Without(3, MSG_FASTOPEN),),
    "sendmsg": (Without(2, MSG_FASTOPEN),),
    "sendmmsg": (Without(3, MSG_FASTOPEN),),
}
"""Landlock does not see data that are sent before a connection."""


def _numbers(names: tuple[str, ...], machine: str) -> list[int]:
    return [value for name in names if (value := number(name, machine)) is not None]
