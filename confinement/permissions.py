"""What a confined process may use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import ConfinementError


@dataclass(frozen=True)
class Domain:
    """What a confined process may use: files, ports and limits. What is not named is refused.

    `confine` adds /dev/null, the kernel's random numbers and six entries of the process's own folder in /proc.
    """

    read: tuple[Path, ...] = ()
    """Files and folders with all that is in them, to read, list and execute."""
    write: tuple[Path, ...] = ()
    """Folders in which regular files and folders may be made, read, written and removed; files to read and write.
    No links, pipes, sockets or devices can be made in them, and the kernel starts no program from them."""
    listed: tuple[Path, ...] = ()
    """Folders of which names can be listed, also in the folders below, and nothing be read. To import a package,
    Python lists the folder that holds it: a clone, whose other files are not to be read."""
    ports: tuple[int, ...] = ()
    """TCP ports, of any address, that may be connected to. Without one there is no socket but `socketpair`."""
    devices: tuple[Path, ...] = ()
    """Device files of a graphics card, to read, write and control. They widen the domain by the card's driver, and
    by the entries in /proc of the process's own threads, to write."""
    memory: int | None = None
    """Bytes of address space (RLIMIT_AS). None: no limit; a card's driver reserves more than the machine has."""
    open_files: int = 256
    """Descriptors of each process."""
    processes: int | None = None
    """Processes and threads of the user, those outside of the domain included. The kernel ignores it for root."""
    file_bytes: int | None = None
    """Bytes of each file."""
    cpu_seconds: int | None = None
    """Seconds of processor time of each process; then the kernel ends it."""

    def __post_init__(self) -> None:
        """Raise ConfinementError for a port or a limit that the kernel would not take."""
        for port in self.ports:
            if not 0 < port < 2**16:
                raise ConfinementError(f"port {port} is not allowed: a TCP port is 1 to 65535")
        for name in ("memory", "open_files", "processes", "file_bytes", "cpu_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 2**63:
                raise ConfinementError(f"{name} = {value} is not allowed: a limit is a whole number above 0")
