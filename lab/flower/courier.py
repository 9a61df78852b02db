"""The Flower app of `fedstride fetch`: prints the files of one folder into its log, in pieces with checksums.

It is a bundle of its own. It needs Flower and the standard library only, and knows nothing about runs.
"""

import base64
import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

MARK = "fedstride-courier"
PIECE = 96 * 1024  # bytes of a file in one line
BURST, PAUSE_SECONDS = 1 << 20, 0.25  # after so many characters, wait for Flower's thread that sends the log
LAST_SECONDS = 1.5  # Flower waits 3 seconds for the rest of the log

app = ServerApp()
client = ClientApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Print all files below `folder`, except those below `left-out`. Raises an error for a missing folder."""
    folder = Path(str(context.run_config["folder"]))
    left_out = set(json.loads(str(context.run_config["left-out"])))
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder on the SuperLink's machine")
    silence()
    written = 0
    for line in lines(folder, left_out):
        sys.stdout.write(f"{MARK} {line}\n")
        written += len(line)
        if written > BURST:
            time.sleep(PAUSE_SECONDS)
            written = 0
    time.sleep(LAST_SECONDS)


def silence() -> None:
    """Keep the pieces out of the SuperLink's own output; Flower takes the log from before it (1.39 to 1.42)."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def lines(folder: Path, left_out: set[str]) -> Iterator[str]:
    """For each file: `file PATH`, `data ...` (zlib, base 85), `sum SHA-256`; at last `end SHA-256 of the sums`."""
    sums = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_symlink() or not path.is_file() or name.parts[0] in left_out or name.name.startswith("."):
            continue
        yield f"file {json.dumps(str(name))}"
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                yield f"data {base64.b85encode(zlib.compress(piece, 1)).decode()}"
        sums.update(digest.hexdigest().encode())
        yield f"sum {digest.hexdigest()}"
    yield f"end {sums.hexdigest()}"
