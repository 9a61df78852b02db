"""Writes a run's model for other programs, compared with our own predictions before it has its name."""

from __future__ import annotations

import copy
import io
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from fedstride.errors import ConfigError, RunError, unknown
from fedstride.files import atomic
from fedstride.tasks.inputs import Kind
from fedstride.tasks.models import numerics
from fedstride.tasks.models.tensors import load_arrays, to_arrays
from fedstride.tasks.spec import Target
from server_app.records.versions import versions

from . import compared_examples, onnx_file
from .compared_examples import Compared
from .model import BATCH, Model
from .network_with_preparation import WholeNetwork, columns_of, dtype_of, example

MOST = 1e-5
"""The largest difference to our own predictions; of values, in their standard deviations."""

MOST_NAMES = 20
"""Names of what is predicted that are printed."""

ABOUT = "fedstride.json"
"""In a .pt2 file: the metadata."""


@dataclass(frozen=True)
class Exported:
    """What was written, in words: what it takes and gives, and what is not in the file (`note`).

    `difference` is the largest one to our own predictions of what is `compared`.
    """

    difference: float
    compared: str
    takes: str
    gives: str
    note: str


@dataclass(frozen=True)
class Content:
    """A file's bytes, what computes with them, and what it does not contain."""

    made: bytes
    run: Callable[[np.ndarray], np.ndarray]
    note: str = ""


def export(model: Model, form: str, to: Path, source: Path | None = None, *, floats: bool = False) -> Exported:
    """Write the model as `form` (onnx, torch or safetensors) to a new file.

    `source`: a user's examples, on which it is compared with our own predictions; None: examples that are made.
    `floats`: images are given as float32. Raises ConfigError for a form that is unknown or that the network cannot
    have, and if `to` exists; RunError if the predictions differ by more than `MOST`. Nothing is written then.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if to.exists():
        raise ConfigError(f"{to} exists and is not overwritten: choose another file with --to")
    if not to.parent.is_dir():
        raise ConfigError(f"{to.parent} is not a folder: choose another file with --to")
    compared = compared_examples.made(model.spec) if source is None else compared_examples.read(source, model.spec)
    with numerics.older_switches():
        content = FORMATS[form](model, about(model, floats=floats), floats)
    difference = _difference(model, content, compared, floats)
    if not difference <= MOST:
        raise RunError(
            f"the exported model differs from our own predictions by {difference:.1e} on {compared.what}, and at "
            f"most {MOST:g} is allowed: {to} is not written"
        )
    try:
        atomic.create(to, content.made)
    except OSError as error:
        raise ConfigError(f"{to} cannot be written ({error.strerror}): choose another file with --to") from error
    gives = "its outputs" if form == "safetensors" else f"{model.gives} of {', '.join(model.names[:MOST_NAMES])}"
    return Exported(difference, compared.what, takes(model, form, floats=floats), gives, content.note)


def _difference(model: Model, content: Content, compared: Compared, floats: bool) -> float:
    dtype = dtype_of(model.spec, floats=floats)
    x = (
        compared_examples.as_bytes(compared.x)
        if dtype is torch.uint8
        else compared.x.astype(str(dtype).removeprefix("torch."))
    )
    ours, theirs = model.given(model.outputs(compared.stored)), content.run(x)
    apart = np.abs(theirs - ours)
    if model.spec.target is Target.VALUES:
        apart = apart / (model.spec.target_std or np.maximum(1.0, np.abs(ours)))
    return float(apart.max())


def takes(model: Model, form: str, *, floats: bool = False) -> str:
    """What the file's model takes, in words."""
    columns, spec = columns_of(model.spec), model.spec
    dtype = str(dtype_of(spec, floats=floats)).removeprefix("torch.")
    if form == "safetensors":
        return f"prepared examples: {spec.inputs}"
    if not columns:
        return f"x, {dtype} (n, {', '.join(map(str, spec.inputs.shape))}): {_unit(model, dtype)}"
    categories = "strings" if form == "onnx" else "the number of the category, from 0"
    missing = "NaN for a missing number" if spec.reading.may_be_missing else "no missing cell is allowed"
    shape = f"{len(columns)} inputs (n, 1), named as the columns" if form == "onnx" else f"x (n, {len(columns)})"
    others = "words" if form == "onnx" else "numbers"
    unknown_ones = f"; other {others} are unknown categories" if spec.reading.may_be_missing else ""
    return f"{shape}: float32, and for categories {categories}; {missing}{unknown_ones}"


def _unit(model: Model, dtype: str) -> str:
    if model.spec.inputs.kind is Kind.TOKENS:
        return "numbers of words, 0 after the end of the text"
    return f"as stored, from 0 to {model.spec.scale:g}" if model.spec.scale > 1 else "in the unit of the data"


def about(model: Model, *, floats: bool = False) -> dict[str, str]:
    """The metadata of a file: all that a reader without the run's folder needs."""
    spec = model.spec
    metadata = {
        "fedstride": versions()["fedstride"],
        "run": model.folder.name,
        "task": model.config.task.name,
        "model": model.config.model.name,
        "gives": model.gives,
        "names": json.dumps(model.names),
        "prepared": json.dumps(spec.flatten()),
    }
    if spec.inputs.kind is Kind.TOKENS:
        metadata["tokens"] = TOKENS.format(words=spec.inputs.shape[0], last=spec.inputs.vocabulary - 1)
    return metadata


TOKENS = (
    "the first {words} longest sequences of letters and digits of the lower-cased text in Unicode's form NFC; the "
    "number of one is 1 + crc32(its UTF-8) % {last}; 0 after the end"
)
"""How a text becomes numbers (`fedstride/tasks/forms/tokens.py`), which no graph does."""


# ---------------------------------------------------------------- the forms


def _program(model: Model, floats: bool) -> ExportedProgram:
    x = example(model.spec, 2, floats=floats)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(WholeNetwork(model).eval(), (x,), dynamic_shapes=({0: Dim("n")},))
    except Exception as error:  # of torch's exporter, of any kind, and of a user's network
        raise onnx_file.cannot_be_exported("a graph", error) from error


def _onnx(model: Model, said: Mapping[str, str], floats: bool) -> Content:
    columns = columns_of(model.spec)
    onnx_file.check_packages()
    told = {**said, "takes": takes(model, "onnx", floats=floats)}
    made = onnx_file.onnx_bytes(_program(model, floats), columns, model.gives, told)
    return Content(made, lambda x: onnx_file.run(made, columns, x), _outside(model))


def _torch(model: Model, said: Mapping[str, str], floats: bool) -> Content:
    told = {**said, "takes": takes(model, "torch", floats=floats)}
    buffer = io.BytesIO()
    torch.export.save(_program(model, floats), buffer, extra_files={ABOUT: json.dumps(told, indent=2)})
    made = buffer.getvalue()
    return Content(made, _runner(torch.export.load(io.BytesIO(made)).module()), _outside(model))


def _safetensors(model: Model, said: Mapping[str, str], floats: bool) -> Content:
    from safetensors.numpy import load, save

    made = save(to_arrays(model.network), {**said, "takes": takes(model, "safetensors")})
    network = copy.deepcopy(model.network)
    load_arrays(network, load(made))
    note = "the network and the preparation are not in the file: the metadata say how an example is prepared"
    return Content(made, _runner(WholeNetwork(replace(model, network=network)).eval()), note)


def _runner(whole: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            parts = [whole(torch.from_numpy(x[at : at + BATCH])) for at in range(0, len(x), BATCH)]
        outputs: np.ndarray = torch.cat(parts).numpy()
        return outputs

    return run


def _outside(model: Model) -> str:
    """What the graph does not do."""
    if model.spec.inputs.kind is Kind.TOKENS:
        return "the words of a text are numbered outside of the graph: the rule is in the metadata, as `tokens`"
    return ""


FORMATS: Mapping[str, Callable[[Model, Mapping[str, str], bool], Content]] = {
    "onnx": _onnx,
    "torch": _torch,
    "safetensors": _safetensors,
}
