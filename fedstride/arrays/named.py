"""Models as named arrays: ArrayRecord <-> read-only views; parameters, buffers, layers.

docs/methods.md defines what is a parameter, a buffer and a layer. Works on numpy arrays and torch tensors.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from flwr.app import Array, ArrayRecord

from ..errors import ConfigError
from .dtypes import BFLOAT16, TWO_BYTES, bfloat16, is_bfloat16

Arrays = dict[str, Any]
"""A model: array by name, in model order. Arrays are numpy's or torch's."""

LONGEST_HEADER = 10_012
"""Bytes of a `.npy` header, its length field included; numpy reads no longer one."""

HEADER_ERRORS = (TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError)
"""What numpy lets through for a bad header. The last two mean that Python's parser found it nested too deeply."""

BUFFER_NAMES = frozenset({"running_mean", "running_var", "num_batches_tracked"})


class Held(NamedTuple):
    """The values of an array that are not finite (`finite.py`)."""

    places: Any  # boolean, of the array's shape
    values: Any  # of these places, in C order


class Declared(Arrays):
    """A model that also names buffers which neither the array's name nor its dtype shows.

    `held`: what was taken out of the model that was sent, by array (`finite.py`).
    """

    buffers: frozenset[str] = frozenset()
    held: Mapping[str, Held] = {}


# ---------------------------------------------------------------- records


def view(array: Array) -> np.ndarray:
    """A read-only view of the bytes of a Flower array: no copy.

    Raises ValueError if the bytes are not a `.npy` file of version 1.0 or 2.0, if they disagree with the
    declared shape or dtype, or if they contain Python objects.
    """
    if array.stype != "numpy.ndarray":
        raise ValueError(f"array of type {array.stype!r}, expected 'numpy.ndarray'")
    header = _header(array.data[: _header_size(array.data)])
    is_bfloat16 = array.dtype == BFLOAT16 and header.dtype == TWO_BYTES
    if tuple(array.shape) != header.shape or not (is_bfloat16 or array.dtype == header.name):
        raise ValueError(f"array declared as {array.dtype}{tuple(array.shape)} holds {header.name}{header.shape}")
    flat = np.frombuffer(array.data, bfloat16() if is_bfloat16 else header.dtype, offset=header.size)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


class _Header(NamedTuple):
    """What the header of a `.npy` file says."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    name: str  # of the dtype
    size: int  # bytes before the values


def _header_size(data: bytes) -> int:
    """How many bytes to read as a header; numpy refuses one that is longer."""
    version_1 = data[6:7] == b"\x01"
    size = 10 + int.from_bytes(data[8:10], "little") if version_1 else 12 + int.from_bytes(data[8:12], "little")
    return min(size, LONGEST_HEADER)


@lru_cache(maxsize=4096)  # all clients have the same headers, and numpy parses one as Python source
def _header(data: bytes) -> _Header:
    """The header of a `.npy` file from its first bytes; raises ValueError for any other."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"array in .npy format {version}, expected 1.0 or 2.0")
    try:
        shape, fortran, dtype = read(stream)
    except HEADER_ERRORS as error:
        raise ValueError(f"a damaged .npy header: {str(error) or type(error).__name__}") from error
    if dtype.hasobject:
        raise ValueError("array of Python objects")
    return _Header(tuple(shape), fortran, dtype, str(dtype), stream.tell())


def views(record: ArrayRecord) -> Arrays:
    """Read-only views of all arrays of a record, in its order."""
    return {name: view(array) for name, array in record.items()}


def to_record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """A record of these arrays, in their order; torch tensors are copied to the host first."""
    return ArrayRecord({name: packed(host(value)) for name, value in arrays.items()})


def packed(array: np.ndarray) -> Array:
    """What `Array(array)` is, with one copy of the values in place of three."""
    if not array.flags.c_contiguous or array.dtype.hasobject:
        return Array(array)
    header = npy_header(array.dtype, array.shape)
    return Array(str(array.dtype), array.shape, "numpy.ndarray", b"".join((header, plain_bytes(array))))


def plain_bytes(array: np.ndarray) -> memoryview:
    """The values of an array in C order, without a copy; numpy gives none of another package's dtype."""
    return (array.reshape(-1).view(np.uint16) if is_bfloat16(array.dtype) else array).data


@lru_cache(maxsize=4096)
def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What a `.npy` file of this dtype and shape begins with."""
    stream = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def host(value: Any) -> np.ndarray:
    """The values in the host's memory: of a torch tensor a copy, unless it is there already."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    near = value.detach().cpu()
    if is_bfloat16(near.dtype):
        return near.view(namespace(near).int16).numpy().view(bfloat16())  # type: ignore[no-any-return]
    return near.numpy()  # type: ignore[no-any-return]


# ---------------------------------------------------------------- parameters, buffers, layers


def namespace(array: Any) -> Any:
    """The array API functions of an array's library; for numpy without looking at other libraries."""
    return _numpy() if isinstance(array, np.ndarray) else array_namespace(array)


@lru_cache(maxsize=1)
def _numpy() -> Any:
    # From 2.1 on numpy has these functions itself; the import of the other module takes as long as numpy's own.
    return np if hasattr(np, "astype") else import_module("array_api_compat.numpy")


@lru_cache(maxsize=256)
def is_kind(xp: Any, dtype: Any, *kinds: str) -> bool:
    """Whether a dtype is of one of these kinds of the array API, such as "integral"."""
    if isinstance(dtype, np.dtype) and dtype.kind == "V":  # numpy's function refuses those of other packages
        return "real floating" in kinds and is_bfloat16(dtype)
    return bool(xp.isdtype(dtype, kinds))


def is_floating(array: Any) -> bool:
    """True for real floating point arrays, half precision included."""
    return is_kind(namespace(array), array.dtype, "real floating")


def is_boolean(array: Any) -> bool:
    """True for boolean arrays."""
    return is_kind(namespace(array), array.dtype, "bool")


def is_buffer(name: str, array: Any) -> bool:
    """Whether an array is a buffer: averaged, but never part of a norm, a shrinking or a normalisation.

    By the last part of the dotted name (BatchNorm's statistics), or by an integer or boolean dtype.
    """
    return name.rsplit(".", 1)[-1] in BUFFER_NAMES or not is_floating(array)


def declare(model: Arrays, buffers: Sequence[str]) -> Arrays:
    """The model with further buffers, given by names or patterns (`*.positions`; see `fnmatch`).

    Raises ConfigError for a name or pattern that fits no array.
    """
    if not buffers:
        return model
    fitting = {
        pattern: [name for name in model if name == pattern or fnmatchcase(name, pattern)] for pattern in buffers
    }
    for pattern, names in fitting.items():
        if not names:
            raise ConfigError(
                f"buffers = {pattern!r} is not allowed: no array of the model has this name; it has "
                f"{', '.join(list(model)[:20])}{' ...' if len(model) > 20 else ''}"
            )
    declared = Declared(model)
    declared.buffers = frozenset(name for names in fitting.values() for name in names)
    return declared


def layer_of(name: str) -> str:
    """The layer of a parameter: its name up to the last dot; a name without a dot is its own layer."""
    return name.rsplit(".", 1)[0]


@dataclass(frozen=True)
class Layout:
    """Which arrays of a model are parameters, which are buffers, and which layer holds what.

    `layers` maps a layer to its parameters' names, in order of first appearance.
    """

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    layers: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> Layout:
        """The layout of a model given as named arrays; see `is_buffer` and `declare`."""
        declared = model.buffers if isinstance(model, Declared) else ()
        buffers = tuple(name for name, array in model.items() if name in declared or is_buffer(name, array))
        parameters = tuple(name for name in model if name not in set(buffers))
        layers: dict[str, tuple[str, ...]] = {}
        for name in parameters:
            layer = layer_of(name)
            layers[layer] = (*layers.get(layer, ()), name)
        return cls(parameters, buffers, layers)


# ---------------------------------------------------------------- dtypes


def epsilon(array: Any) -> float:
    """The machine epsilon of an array's dtype: 1.2e-7 for float32."""
    return (
        2.0**-7 if getattr(array.dtype, "name", "") == BFLOAT16 else float(namespace(array).finfo(array.dtype).eps)
    )


def _whole(array: Any, original: Any, xp: Any) -> Any:
    """In an integer dtype; the largest number of 64 bits is none of float64, which has the next one, beyond it."""
    limits = xp.iinfo(original.dtype)
    rounded = xp.round(array)
    low, high = rounded <= limits.min, rounded >= limits.max
    inside = xp.astype(xp.where(low | high, xp.zeros_like(rounded), rounded), original.dtype)
    ends = (xp.full_like(inside, limits.min), xp.full_like(inside, limits.max))
    return xp.asarray(xp.where(low, ends[0], xp.where(high, ends[1], inside)))


def like(array: Any, original: Any) -> Any:
    """`array` in the dtype of `original`; integers are rounded half to even, and are never beyond their dtype."""
    xp = namespace(original)
    if is_kind(xp, original.dtype, "integral"):
        return _whole(array, original, xp)
    # numpy makes scalars of arrays without dimensions; they stay arrays here
    return xp.asarray(xp.astype(array, original.dtype, copy=False))
