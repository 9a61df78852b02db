"""A model as an ONNX file: from the cells of a table, images or tokens to predictions, in one graph.

A table whose columns are named has an input for each column, with the column's name: float32 (n, 1), or strings
(n, 1) for categories. A word that is none of the categories, such as an empty one, is a missing cell.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from fedstride.errors import ConfigError
from fedstride.tasks.forms.columns import Column, alike

from .compared_examples import cells

EXTRA = "pip install 'fedstride[export]'"
CORE = "fedstride/"
"""The beginning of the names inside the graph, so that none is that of a column."""

MOST_BYTES = 2**31 - 1
"""Of one file of ONNX."""


def onnx_bytes(program: ExportedProgram, columns: Sequence[Column], gives: str, about: Mapping[str, str]) -> bytes:
    """The file. `columns`: of a table with names; `gives`: the name of the output; `about`: its metadata.

    Raises ConfigError if ONNX has no form for something in the network, or if the file is too large.
    """
    onnx = _package("onnx")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = torch.onnx.export(
                program, (), dynamo=True, verbose=False, input_names=["x"], output_names=[gives]
            )
    except Exception as error:  # of the exporter, of any kind
        raise cannot_be_exported("ONNX", error) from error
    assert made is not None
    graph = made.model_proto
    if graph.ByteSize() > MOST_BYTES - 2**20:
        raise ConfigError("the network is too large for one file of ONNX (2 GB); choose --format torch")
    graph = _with_columns(graph, columns, gives) if columns else graph
    onnx.helper.set_model_props(graph, dict(about))
    onnx.checker.check_model(graph)
    content: bytes = graph.SerializeToString()
    return content


def check_packages() -> None:
    """Raise ConfigError if a package of the extra is missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        _package(name)


def run(content: bytes, columns: Sequence[Column], x: np.ndarray) -> np.ndarray:
    """What onnxruntime computes for examples in the form of `WholeNetwork`, on the processor."""
    session = _package("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, feed(columns, x))
    predictions: np.ndarray = output
    return predictions


def feed(columns: Sequence[Column], x: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs of the graph for these examples."""
    if not columns:
        return {"x": x}
    by_column = cells(x, columns)
    return {
        column.name: np.array(by_column[column.name], object if column.categories else np.float32)[:, None]
        for column in columns
    }


def cannot_be_exported(form: str, error: Exception) -> ConfigError:
    """The line for a network that has no form of this name, with the exporter's reason."""
    reason = next((line for line in str(error).splitlines() if line.strip()), "")
    return ConfigError(
        f"the network cannot be exported as {form} ({type(error).__name__}: {reason[:300]}); choose --format "
        "safetensors for the weights alone, or change the network"
    )


def _with_columns(graph: Any, columns: Sequence[Column], gives: str) -> Any:
    """The graph with an input for each column in place of x."""
    onnx = _package("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    compose = _package("onnx.compose")
    graph = compose.add_prefix(graph, CORE)
    inputs, nodes, parts = [], [], []
    for at, column in enumerate(columns):
        kind = kinds.STRING if column.categories else kinds.FLOAT
        inputs.append(helper.make_tensor_value_info(column.name, kind, ["n", 1]))
        if not column.categories:
            parts.append(column.name)
            continue
        words = {text: at for at, name in enumerate(column.categories) for text in _spellings(name)}
        place, number = f"columns/{at}/place", f"columns/{at}/number"
        nodes.append(
            helper.make_node(
                "LabelEncoder", [column.name], [place], domain="ai.onnx.ml",
                keys_strings=list(words), values_int64s=list(words.values()), default_int64=-1,
            )
        )  # fmt: skip
        nodes.append(helper.make_node("Cast", [place], [number], to=kinds.FLOAT))
        parts.append(number)
    nodes.append(helper.make_node("Concat", parts, ["columns/x"], axis=1))
    output = helper.make_tensor_value_info("columns/x", kinds.FLOAT, ["n", len(columns)])
    opsets = [*graph.opset_import, helper.make_opsetid("ai.onnx.ml", 2)]
    before = helper.make_model(
        helper.make_graph(nodes, "columns", inputs, [output]), opset_imports=opsets, ir_version=graph.ir_version
    )
    merged = compose.merge_models(before, graph, io_map=[("columns/x", f"{CORE}x")])
    names = {column.name for column in columns}
    while gives in names:
        gives += "_"
    _rename(merged.graph, merged.graph.output[0].name, gives)
    return merged


def _rename(graph: Any, old: str, new: str) -> None:
    """Give the output of the graph another name."""
    graph.output[0].name = new
    for node in graph.node:
        node.output[:] = [new if name == old else name for name in node.output]
        node.input[:] = [new if name == old else name for name in node.input]


def _spellings(name: str) -> list[str]:
    """The usual ways to write a category, which may be a number: `1`, `1.0`."""
    short = alike(name)
    spellings = dict.fromkeys([short, name, f"{short}.0", f"{short}0"])
    return [text for text in spellings if alike(text) == short]


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"--format onnx needs the package {name} ({error}): {EXTRA}") from error
