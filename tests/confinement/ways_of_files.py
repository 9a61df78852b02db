"""Ways to files: of the node, of the user, of the system, and what a folder that can be written may hold."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import socket
import stat
import struct
from pathlib import Path

from trials import World, raw, way

from confinement import kernel

SET_FLAGS, GET_FLAGS, SET_ATTRIBUTES, NO_DUMP = 0x40086602, 0x80086601, 0x401C5820, 0x40


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# ------------------------------------------------------------------ row 1: modes, owners, times, attributes


@way("1", "chmod of the key", harm=lambda w: mode(w.key) != 0o600)
def _(w: World) -> None:
    os.chmod(w.key, 0o644)


@way("1", "fchmod of the log", harm=lambda w: mode(w.log) == 0o666, before=lambda w: w.kept.add(w.log_file))
def _(w: World) -> None:
    os.fchmod(w.log_file, 0o666)


@way("1", "fchmodat2 of the key", harm=lambda w: mode(w.key) != 0o600)
def _(w: World) -> None:
    kernel.call("fchmodat2", -100, ctypes.create_string_buffer(bytes(w.key)), 0o644, 0)


@way("1", "chmod 0 of the node's folder", harm=lambda w: mode(w.node) == 0)
def _(w: World) -> None:
    os.chmod(w.node, 0)


@way("1", "utime of the log", harm=lambda w: w.log.stat().st_mtime == 0)
def _(w: World) -> None:
    os.utime(w.log, (0, 0))


@way("1", "chown of the key")
def _(w: World) -> None:
    os.chown(w.key, os.getuid(), os.getgid())


@way("1", "fchown of the log", before=lambda w: w.kept.add(w.log_file))
def _(w: World) -> None:
    os.fchown(w.log_file, os.getuid(), os.getgid())


@way("1", "lchown of the key")
def _(w: World) -> None:
    os.lchown(w.key, os.getuid(), os.getgid())


@way("1", "an extended attribute on the key", harm=lambda w: os.listxattr(w.key) != [])
def _(w: World) -> None:
    os.setxattr(w.key, "user.x", b"1")


@way("1", "an extended attribute on the data by descriptor", harm=lambda w: os.listxattr(w.data) != [])
def _(w: World) -> None:
    with w.data.open() as file:
        os.setxattr(file.fileno(), "user.x", b"1")


def with_an_attribute(w: World) -> None:
    os.setxattr(w.key, "user.x", b"1")


@way(
    "1",
    "removing an extended attribute of the key",
    outside=with_an_attribute,
    harm=lambda w: os.listxattr(w.key) == [],
)
def _(w: World) -> None:
    os.removexattr(w.key, "user.x")


@way("1", "reading an extended attribute of the key", outside=with_an_attribute)
def _(w: World) -> None:
    os.getxattr(w.key, "user.x")


@way("1", "the names of the key's extended attributes", outside=with_an_attribute)
def _(w: World) -> None:
    os.listxattr(w.key)


@way("1", "reading an extended attribute by a descriptor of the key's place", outside=with_an_attribute)
def _(w: World) -> None:
    os.getxattr(f"/proc/self/fd/{os.open(w.key, os.O_PATH)}", "user.x")


raw("1", "getxattrat", -100, None, 0, None, None, 0)
raw("1", "listxattrat", -100, None, 0, None, 0)
raw("1", "setxattrat", -100, None, 0, None, None, 0)
raw("1", "removexattrat", -100, None, 0, None)
raw("1", "file_setattr", -100, None, None, 0, 0)


def flags_of(path: Path) -> int:
    with path.open() as file:
        found = fcntl.ioctl(file, GET_FLAGS, bytes(8))
    return int(struct.unpack("=Q", found)[0])


@way("1", "inode flags of the data, which were opened to be read", harm=lambda w: bool(flags_of(w.data) & NO_DUMP))
def _(w: World) -> None:
    with w.data.open() as file:
        fcntl.ioctl(file, SET_FLAGS, struct.pack("=Q", flags_of_open(file.fileno()) | NO_DUMP))


def flags_of_open(descriptor: int) -> int:
    with contextlib.suppress(OSError):
        return int(struct.unpack("=Q", fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)))[0])
    return 0


@way("1", "extended inode flags of the data", reached=(errno.EFAULT,))
def _(w: World) -> None:
    with w.data.open() as file:
        kernel_ioctl(file.fileno(), SET_ATTRIBUTES)


@way("1", "fs-verity on the data, which cannot be undone", reached=(errno.EFAULT, errno.EOPNOTSUPP))
def _(w: World) -> None:
    with w.data.open() as file:
        kernel_ioctl(file.fileno(), 0x40806685)


def kernel_ioctl(descriptor: int, command: int) -> None:
    """An ioctl without an argument, which the kernel refuses after it has found the command."""
    kernel.call("ioctl", descriptor, command, None)


@way("1", "a lease on the data, which holds up whoever writes them")
def _(w: World) -> None:
    with w.data.open() as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)


# ------------------------------------------------------------------ row 4: emptying


@way("4", "truncate of the key", harm=lambda w: text(w.key) == "")
def _(w: World) -> None:
    os.truncate(w.key, 0)


@way("4", "opening the data to read and emptying them", harm=lambda w: text(w.data) == "")
def _(w: World) -> None:
    os.close(os.open(w.data, os.O_RDONLY | os.O_TRUNC))


@way("4", "opening the key with access mode 3 and emptying it", harm=lambda w: text(w.key) == "")
def _(w: World) -> None:
    os.close(os.open(w.key, 3 | os.O_TRUNC))


@way("4", "opening the key with access mode 3")
def _(w: World) -> None:
    os.close(os.open(w.key, 3))


@way("4", "openat2 of the data", harm=lambda w: text(w.data) == "")
def _(w: World) -> None:
    how = ctypes.create_string_buffer(struct.pack("=3Q", os.O_RDONLY | os.O_TRUNC, 0, 0), 24)
    kernel.call("openat2", -100, ctypes.create_string_buffer(bytes(w.data)), how, 24)


# ------------------------------------------------------------------ row 10: what is inherited


@way("10", "emptying the log by an inherited descriptor", harm=lambda w: text(w.log) == "")
def _(w: World) -> None:
    os.ftruncate(w.log_file, 0)


@way("10", "reading the log by /proc/self/fd", before=lambda w: w.kept.add(w.log_file))
def _(w: World) -> None:
    Path(f"/proc/self/fd/{w.log_file}").read_text()


# ------------------------------------------------------------------ rows 3 and 25: what is readable

for row, place in (
    ("3", "/etc/shadow"),
    ("3", "/dev/kmsg"),
    ("3", "/proc/sys/kernel/core_pattern"),
    ("25", "/etc/fstab"),
    ("25", "/etc/hostname"),
    ("25", "/proc/self/net/tcp"),
    ("25", "/proc/self/net/unix"),
    ("25", "/proc/self/mountinfo"),
    ("25", "/proc/self/environ"),
    ("25", "/proc/self/task/{pid}/net/tcp"),
    ("25", "/proc/self/task/{pid}/mountinfo"),
    ("25", "/proc/self/root/etc/hostname"),
    ("25", "/proc/mounts"),
    ("25", "/proc/version"),
):

    @way(row, f"reading {place}")
    def _(w: World, place: str = place) -> None:
        os.close(os.open(place.format(pid=os.getpid()), os.O_RDONLY | os.O_NONBLOCK))


@way("25", "listing /sys/fs/cgroup")
def _(w: World) -> None:
    os.listdir("/sys/fs/cgroup")


# ------------------------------------------------------------------ row 26: watching


@way("26", "inotify on the node's folder")
def _(w: World) -> None:
    watch = kernel.call("inotify_init1", 0)
    kernel.call("inotify_add_watch", watch, ctypes.create_string_buffer(bytes(w.node)), 0xFFF)


@way("26", "notes about a folder by fcntl (dnotify)")
def _(w: World) -> None:
    folder = os.open("/usr", os.O_RDONLY)
    fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE)


raw("26", "inotify_init")
raw("26", "inotify_rm_watch", -1, 0)
raw("26", "fanotify_init", 0x200, 0)
raw("26", "fanotify_mark", -1, 0, 0, -1, None)
raw("26", "name_to_handle_at", -100, b"/usr", bytes(8), bytes(8), 0, reached=(errno.EOVERFLOW,))
raw("26", "lookup_dcookie", 0, None, 0)


@way("+", "the key by a handle")
def _(w: World) -> None:
    handle, mount = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136), ctypes.create_string_buffer(4)
    kernel.call("name_to_handle_at", -100, ctypes.create_string_buffer(bytes(w.key)), handle, mount, 0)
    os.read(kernel.call("open_by_handle_at", os.open(w.scratch, os.O_RDONLY), handle, os.O_RDONLY), 1)


raw("+", "open_by_handle_at", -1, None, 0)


# ------------------------------------------------------------------ row 27: what a writable folder may hold


@way("27", "a pipe in scratch", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    os.mkfifo(w.scratch / "x")


@way("27", "a link in scratch to the key", harm=lambda w: (w.scratch / "x").is_symlink())
def _(w: World) -> None:
    (w.scratch / "x").symlink_to(w.key)


@way("27", "a socket in scratch", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].bind(str(w.scratch / "x"))


@way("27", "a socket in scratch by mknod", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    os.mknod(w.scratch / "x", stat.S_IFSOCK | 0o600)


def runs_as_the_node(w: World) -> bool:
    return any(path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) for path in w.scratch.iterdir())


@way("27", "a program in scratch that runs as the node's user (open)", harm=runs_as_the_node)
def _(w: World) -> None:
    os.close(os.open(w.scratch / "x", os.O_CREAT | os.O_WRONLY, 0o4755))


@way("27", "a program in scratch that runs as the node's user (creat)", harm=runs_as_the_node)
def _(w: World) -> None:
    kernel.call("creat", ctypes.create_string_buffer(bytes(w.scratch / "x")), 0o4755)


@way("27", "a program in scratch that runs as the node's user (chmod)", harm=runs_as_the_node)
def _(w: World) -> None:
    (w.scratch / "x").write_text("x")
    (w.scratch / "x").chmod(0o4755)


@way("27", "running a program from scratch")
def _(w: World) -> None:
    target = os.open(w.scratch / "x", os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(target, Path("/usr/bin/true").read_bytes())
    os.close(target)
    ended = os.fork()
    if ended == 0:
        with contextlib.suppress(OSError):
            os.execv(w.scratch / "x", ["true"])
        os._exit(1)
    if os.waitpid(ended, 0)[1]:
        raise PermissionError(errno.EACCES, "not executed")


# ------------------------------------------------------------------ row 3: devices


@way("3", "a block device of the disk in scratch", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    os.mknod(w.scratch / "x", stat.S_IFBLK | 0o600, os.stat("/").st_dev)


@way("3", "a character device in scratch", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    os.mknod(w.scratch / "x", stat.S_IFCHR | 0o600, os.makedev(1, 1))


@way("3", "reading the disk")
def _(w: World) -> None:
    disk = os.stat("/").st_dev
    os.mknod(w.scratch / "x", stat.S_IFBLK | 0o600, disk)
    os.read(os.open(w.scratch / "x", os.O_RDONLY), 16)


# ------------------------------------------------------------------ row 28: dumps


@way("28", "raising the limit of core files")
def _(w: World) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@way("28", "being dumpable again", harm=None)
def _(w: World) -> None:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


@way(
    "28",
    "a core file in scratch",
    before=lambda w: os.chdir(w.scratch),
    harm=lambda w: any(w.scratch.iterdir()),
)
def _(w: World) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    os.abort()


# ------------------------------------------------------------------ tried and closed before


@way("+", "reading the key")
def _(w: World) -> None:
    w.key.read_text()


@way("+", "listing the node's folder")
def _(w: World) -> None:
    os.listdir(w.node)


@way("+", "the key by a link in scratch", outside=lambda w: (w.scratch / "link").symlink_to(w.key))
def _(w: World) -> None:
    (w.scratch / "link").read_text()


@way("+", "a hard link of the key into scratch", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    os.link(w.key, w.scratch / "x")


@way("+", "a hard link of the data into scratch", harm=lambda w: (w.scratch / "x").exists())
def _(w: World) -> None:
    os.link(w.data, w.scratch / "x")


@way("+", "moving the data into scratch", harm=lambda w: not w.data.exists())
def _(w: World) -> None:
    os.rename(w.data, w.scratch / "x")


@way("+", "moving a file of scratch over the key", harm=lambda w: text(w.key) != "KEY")
def _(w: World) -> None:
    (w.scratch / "x").write_text("mine")
    os.rename(w.scratch / "x", w.key)


@way("+", "removing the key", harm=lambda w: not w.key.exists())
def _(w: World) -> None:
    w.key.unlink()


@way("+", "a file in the node's folder", harm=lambda w: (w.node / "x").exists())
def _(w: World) -> None:
    (w.node / "x").write_text("mine")


@way("+", "writing the data", harm=lambda w: text(w.data) == "mine")
def _(w: World) -> None:
    w.data.write_text("mine")


@way("+", "a line more in the log", harm=lambda w: "mine" in text(w.log))
def _(w: World) -> None:
    with w.log.open("a") as file:
        file.write("mine")


@way("+", "a file in /dev/shm")
def _(w: World) -> None:
    place = Path(f"/dev/shm/confinement-{os.getpid()}")
    place.write_text("mine")
    place.unlink()
