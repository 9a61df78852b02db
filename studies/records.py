"""Keeps the records of runs in small files, and gives them back as run folders, without models and checkpoints.

    uv run python studies/records.py pack runs/reproduce-fednnnn-table2 docs/records/fednnnn-table2
    uv run python studies/records.py pack runs/fig2 docs/records/two_d_lrd-fig2 20
    uv run python studies/records.py pack runs/together docs/records/together.tar.xz
    uv run python studies/records.py unpack docs/records/fednnnn-table2 runs/records

A run becomes NAME.tar.xz with its configuration, its metrics and how it ended; folders of the machine on which it
ran are left out. Where the second name ends with .tar.xz, all runs together become this file: many short runs are
small then. The same runs give the same bytes. With a number, of a run of thousands of rounds, the rows of every
20th round and of the last one are kept. What is unpacked is read by `fedstride table`, `plot` and `report`.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fedstride.files.chained_lines import chained
from lab.results.run_folders import Run, find_runs
from server_app.config.compose import to_yaml
from server_app.file_names import CONFIG, METRICS, STATUS

FILES = (CONFIG, METRICS, STATUS)
SUFFIX = ".tar.xz"


def files_of(run: Run, every: int) -> dict[str, bytes]:
    """The content of each file that is kept of a completed run, with the rows of every so many rounds."""
    initial = run.config.initial and Path(run.config.initial).name  # its digest is in the configuration
    config = replace(run.config, out=None, resume=None, initial=initial)
    rows = [row for row in run.rows[:-1] if row["round"] % every == 0] + list(run.rows[-1:])
    status = {**run.status, "hardware": {**run.status.get("hardware", {})}}
    status["hardware"].pop("system", None)
    contents = (
        to_yaml(config).encode(),
        "".join(f"{line}\n" for line in chained(rows)).encode(),
        json.dumps(status, indent=1, sort_keys=True).encode(),
    )
    return dict(zip(FILES, contents, strict=True))


def pack(runs: Path, to: Path, every: int = 1) -> list[Path]:
    """Write the records of all completed runs below a folder; what is there already is left as it is."""
    completed = [run for run in find_runs([runs])[0] if run.completed]
    if to.name.endswith(SUFFIX):
        archives = {to: {str(run.folder.resolve().relative_to(runs.resolve())): run for run in completed}}
    else:
        archives = {to / f"{run.folder.name}{SUFFIX}": {"": run} for run in completed}
    new = {path: runs_of for path, runs_of in archives.items() if not path.exists()}
    for path, runs_of in new.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, runs_of, every)
    return list(new)


def _write(path: Path, runs: Mapping[str, Run], every: int) -> None:
    """Each run in its folder of the archive; the same files of all runs follow each other, so it becomes small."""
    contents = {folder: files_of(run, every) for folder, run in sorted(runs.items())}
    with tarfile.open(path, "x:xz", preset=9) as archive:
        for name in FILES:
            for folder, files in contents.items():
                entry = tarfile.TarInfo(str(PurePosixPath(folder, name)))
                entry.size, entry.mode = len(files[name]), 0o644
                archive.addfile(entry, io.BytesIO(files[name]))


def unpack(records: Path, to: Path) -> list[Path]:
    """Write each run of these records as a run folder below `to`. Raises FileExistsError if there is one."""
    folders = []
    for path in sorted(records.rglob(f"*{SUFFIX}")):
        below = to / path.relative_to(records).parent / path.name.removesuffix(SUFFIX)
        with tarfile.open(path) as archive:
            for entry in archive:  # in their order: a step back means to decompress all again
                file, content = below / entry.name, archive.extractfile(entry)
                assert content is not None
                if file.name == CONFIG:  # the first file of a run
                    file.parent.mkdir(parents=True)
                    folders.append(file.parent)
                file.write_bytes(content.read())
    return folders


if __name__ == "__main__":
    what, source, target, *numbers = sys.argv[1:]
    for new_path in {"pack": pack, "unpack": unpack}[what](Path(source), Path(target), *map(int, numbers)):
        print(new_path)
