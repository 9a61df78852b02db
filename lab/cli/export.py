"""`fedstride export`: writes a run's model for other programs: ONNX, torch, or the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import line
from .predict import BEST, PARTS


def export(
    folder: Annotated[Path, typer.Argument(help="The run folder.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="The file to write.", show_default=False)],
    form: Annotated[
        str, typer.Option("--format", help="onnx (extra `export`), torch (a .pt2 file), or safetensors.")
    ] = "onnx",
    check: Annotated[
        Path | None,
        typer.Option(
            help="A table, or other examples, on which the file is compared with fedstride predict; by default "
            "1,000 examples that are made.",
            show_default=False,
        ),
    ] = None,
    best: Annotated[bool, BEST] = False,
    floats: Annotated[bool, typer.Option("--floats", help="Take images as float32, not as bytes.")] = False,
    parts: Annotated[Path | None, PARTS] = None,
) -> None:
    """Write a run's model with its preparation as one file that other programs load without fedstride.

    Its predictions are compared with those of fedstride predict first; if they differ, nothing is written.
    """
    from ..prediction.export import export as write
    from ..prediction.model import Which, folder_of, load
    from ..results.output_files import refuse_standard_output

    refuse_standard_output(to, "--to", "a model")
    which: Which = "best" if best else "last"
    folder = folder_of(folder, which)
    _check_ended(folder)
    model = load(folder, which, parts=parts)
    done = write(model, form, to, check, floats=floats)
    line(f"{to.resolve()}: takes {done.takes}; gives {done.gives}")
    if done.note:
        line(f"note: {done.note}")
    line(f"largest difference to fedstride predict: {done.difference:.1e} ({done.compared})")


def _check_ended(folder: Path) -> None:
    """Raise ConfigError if the run is not completed."""
    from fedstride.errors import ConfigError
    from server_app.file_names import STATUS

    from ..results.status import read_status

    try:
        status = read_status(folder / STATUS)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / STATUS} cannot be used: {error}") from error
    state = status.get("state", "completed")
    if state != "completed":
        raise ConfigError(
            f"the run in {folder} is not finished: it is {state} after round {status.get('rounds', 0)}; let it "
            f"end, or go on with: fedstride resume {folder}"
        )
