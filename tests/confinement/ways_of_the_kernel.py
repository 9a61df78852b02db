"""Ways to the machine and into the kernel: mostly single system calls, with arguments that do nothing."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct

from trials import World, raw, way

from confinement import kernel

NOWHERE = b"/nowhere/confinement"
PRIVATE, CREATE = 0, 0o1600


@way("3", "capabilities")
def _(w: World) -> None:
    if not any(kernel.capabilities()):
        raise PermissionError(errno.EPERM, "no capabilities")


# ------------------------------------------------------------------ row 3: mounts, modules, the machine

raw("3", "mount", None, None, None, 0, None)
raw("3", "umount2", None, 0)
raw("3", "pivot_root", None, None)
raw("3", "chroot", b"/")
raw("3", "fsopen", b"tmpfs", 0)
raw("3", "fsconfig", -1, 0, None, None, 0)
raw("3", "fsmount", -1, 0, 0)
raw("3", "fspick", -1, None, 0)
raw("3", "open_tree", -100, b"/", 0)
raw("3", "open_tree_attr", -100, b"/", 0, None, 0)
raw("3", "move_mount", -1, None, -1, None, 0)
raw("3", "mount_setattr", -1, None, 0, None, 0)
raw("25", "statmount", None, None, 0, 0)
raw("25", "listmount", None, None, 0, 0)
raw("3", "init_module", None, 0, b"")
raw("3", "finit_module", -1, b"", 0)
raw("3", "delete_module", b"no_such_module", 0)
raw("3", "kexec_load", 0, 99999, None, 0)
raw("3", "kexec_file_load", -1, -1, 0, None, -1)
raw("3", "reboot", 0, 0, 0, None)
raw("3", "swapon", NOWHERE, 0)
raw("3", "swapoff", NOWHERE)
raw("3", "acct", NOWHERE)
raw("3", "iopl", 0)
raw("3", "ioperm", 0x80, 1, 0)
raw("3", "syslog", 10, None, 0)
raw("3", "sethostname", None, -1)
raw("3", "setdomainname", None, -1)
raw("3", "settimeofday", None, None)
raw("3", "clock_settime", 0, None)
raw("3", "clock_adjtime", 0, None)
raw("3", "adjtimex", None)
raw("3", "quotactl", 0, None, 0, None)
raw("3", "quotactl_fd", -1, 0, 0, None)
raw("3", "modify_ldt", 0, bytes(64), 64)
raw("3", "personality", 0xFFFFFFFF)
raw("3", "uselib", None)
raw("3", "nfsservctl", 0, None, None)


@way("3", "system call vhangup", before=lambda w: os.setsid())
def _(w: World) -> None:
    kernel.call("vhangup")


# ------------------------------------------------------------------ row 16: shared memory, queues, semaphores


@way("16", "shared memory of System V")
def _(w: World) -> None:
    kernel.call("shmctl", kernel.call("shmget", PRIVATE, 4096, CREATE), 0, None)


@way("16", "a queue of System V")
def _(w: World) -> None:
    kernel.call("msgctl", kernel.call("msgget", PRIVATE, CREATE), 0, None)


@way("16", "a semaphore of System V")
def _(w: World) -> None:
    kernel.call("semctl", kernel.call("semget", PRIVATE, 1, CREATE), 0, 0, None)


@way("16", "a queue of POSIX")
def _(w: World) -> None:
    name = ctypes.create_string_buffer(b"confinement-%d" % os.getpid())
    kernel.call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    kernel.call("mq_unlink", name)


raw("16", "shmat", -1, None, 0)
raw("16", "shmdt", 1)
raw("16", "shmctl", -1, 0, None)
raw("16", "msgsnd", -1, None, 0, 0)
raw("16", "msgrcv", -1, None, 0, 0, 0)
raw("16", "msgctl", -1, 0, None)
raw("16", "semop", -1, None, 0)
raw("16", "semtimedop", -1, None, 0, None)
raw("16", "semctl", -1, 0, 0, None)
raw("16", "mq_unlink", b"no-such-queue")
raw("16", "mq_timedsend", -1, None, 0, 0, None)
raw("16", "mq_timedreceive", -1, None, 0, None, None)
raw("16", "mq_notify", -1, None)
raw("16", "mq_getsetattr", -1, None, None)

# ------------------------------------------------------------------ row 17 and the list of what was closed before

raw("17", "io_uring_setup", 8, bytes(120))
raw("17", "io_uring_enter", -1, 0, 0, 0, None, 0)
raw("17", "io_uring_register", -1, 0, None, 0)
raw("17", "memfd_secret", 0)
raw("17", "lsm_set_self_attr", 0, None, 0, 0)
raw("+", "bpf", 0, None, 0, reached=(errno.EINVAL, errno.E2BIG, errno.EFAULT))
raw("+", "perf_event_open", None, 0, -1, -1, 0)
raw("+", "userfaultfd", 1)
raw("+", "keyctl", 0, -2, 1)
raw("+", "add_key", b"user", b"confinement", b"x", 1, -2)
raw("+", "request_key", b"user", b"no-such-key", None, 0, reached=(errno.ENOKEY,))


@way("17", "a call of the 32-bit kernel (int 0x80)")
def _(w: World) -> None:
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "only x86-64 has it")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # getpid of i386, and return
    ask = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    assert ask() == os.getpid()


@way("17", "io_uring, opening the key")
def _(w: World) -> None:
    ring = kernel.call("io_uring_setup", 1, ctypes.create_string_buffer(struct.pack("=30I", *[0] * 30), 120))
    os.close(ring)
