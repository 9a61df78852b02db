"""Makes the bytecode of an unpacked app, in a process of its own that the kernel confines.

A compiler reads what it compiles, and takes much memory for some sources.

    python -m node.apps.compiling FOLDER
"""

from __future__ import annotations

import compileall
import resource
import sys
from pathlib import Path

from confinement import Domain, basics, confine, support

MEMORY = 2**31
"""Bytes of address space."""

SECONDS = 60
"""Of processor time."""


def main() -> None:
    """Compile the files in the folder. Errors are not shown: they are seen when the app is imported."""
    folder = Path(sys.argv[1])
    if support().possible:
        confine(Domain(basics(), (folder,), memory=MEMORY, cpu_seconds=SECONDS))
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    compileall.compile_dir(folder, quiet=2)


if __name__ == "__main__":
    main()
