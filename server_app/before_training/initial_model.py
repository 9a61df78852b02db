"""Reads a model of the user's, `initial=PATH` or `against=PATH`, and checks that it fits the run's network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from fedstride.arrays.finite import first_changed, first_not_finite, held_in, taken_out
from fedstride.arrays.named import Arrays
from fedstride.errors import ConfigError

from ..config.schema import Config

DIGITS = 16
"""Hexadecimal digits of `initial_digest`."""

SHOWN = 3
"""Arrays that an error message names."""

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
"""Names of dtypes in a safetensors file, and numpy's names. Others are shown as they are."""


class ArrayForm(NamedTuple):
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def pinned(config: Config) -> Config:
    """The configuration with the digest of `initial`.

    Raises ConfigError if a file cannot be read, if `initial` has another digest than `initial_digest`, or there is
    a digest without a file.
    """
    if config.against is not None:
        digest_of(Path(config.against), "against")
    if config.initial is None:
        if config.initial_digest is not None:
            raise ConfigError(
                f"initial_digest = {config.initial_digest!r} is not allowed without initial; set "
                "initial=PATH/model.safetensors, or omit it"
            )
        return config
    path = Path(config.initial)
    digest = digest_of(path)
    if config.initial_digest not in (None, digest):
        raise ConfigError(
            f"initial = {str(path)!r} has the digest {digest}, but initial_digest = {config.initial_digest}: it "
            "is not the file with which the run began; give the original one, initial=PATH"
        )
    return replace(config, initial_digest=digest)


def digest_of(path: Path, key: str = "initial") -> str:
    """The first digits of the SHA-256 of a file. Raises ConfigError, with this key, if it cannot be read."""
    try:
        if not path.is_file():
            raise ConfigError(
                f"{key} = {str(path)!r} is not a file; give a safetensors file, such as model.safetensors of a "
                "run's folder, as it is named on the server's machine"
            )
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]
    except OSError as error:
        raise ConfigError(f"{key} = {str(path)!r} cannot be read ({error.strerror}); make it readable") from error


def read(path: str, network: Arrays, key: str = "initial") -> Arrays:
    """The arrays in the file that this key names, in the order of `network`, the run's own initial model.

    Raises ConfigError for a file that is not complete, for names, shapes or dtypes that differ from those of
    `network`, and for values that are not finite, unless `network` has the same ones in the same places.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            forms = {name: _form(file.get_slice(name)) for name in file.keys()}  # noqa: SIM118  not a mapping
            _check_forms(path, forms, network, key)
            arrays = {name: file.get_tensor(name) for name in network}
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{key} = {path!r} is not a complete safetensors file ({reason}); give model.safetensors of a run's "
            "folder, or write one with safetensors.numpy.save_file"
        ) from error
    held = held_in(network)  # a mask, say: the run's own network has it too
    other = first_changed(arrays, held)
    if other is not None:
        raise ConfigError(
            f"{key} = {path!r}: {other!r} has other values than the network where those are not finite; give a "
            "model of this network"
        )
    bad = first_not_finite(taken_out(arrays, held))
    if bad is not None:
        raise ConfigError(f"{key} = {path!r}: {bad!r} contains NaN or infinity; give a model that did not diverge")
    return arrays


def _form(part: Any) -> ArrayForm:
    code = part.get_dtype()
    return ArrayForm(tuple(part.get_shape()), DTYPES.get(code, str(code)))


def _check_forms(path: str, forms: Mapping[str, ArrayForm], network: Mapping[str, np.ndarray], key: str) -> None:
    expected = {name: ArrayForm(array.shape, str(array.dtype)) for name, array in network.items()}
    names = [*expected, *sorted(set(forms) - set(expected))]
    different = [name for name in names if forms.get(name) != expected.get(name)]
    if different:
        differ = "1 array differs" if len(different) == 1 else f"{len(different)} arrays differ"
        shown = "; ".join(_difference(name, forms.get(name), expected.get(name)) for name in different[:SHOWN])
        raise ConfigError(
            f"{key} = {path!r} does not fit the network: {differ}: {shown}"
            f"{'; ...' if len(different) > SHOWN else ''}; choose the model, its settings and the task with which "
            "the file was made"
        )


def _difference(name: str, form: ArrayForm | None, expected: ArrayForm | None) -> str:
    if form is None:
        return f"{name!r} is missing"
    return f"{name!r} is {form}" + (
        ", and the network has no such array" if expected is None else f" instead of {expected}"
    )
