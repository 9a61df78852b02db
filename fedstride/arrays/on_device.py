"""Arrays that stay on a device: within one process a model need not pass through the host's memory.

A record's array can be a torch tensor (`TensorArray`). Code that reads bytes or numpy arrays notices nothing;
code that can work with tensors asks for them with `values`. torch is imported only to make tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from .dtypes import dtype_named, is_bfloat16
from .named import Arrays, Declared, Held, host, npy_header, packed, view

Device = Any
"""A torch device; None stands for numpy arrays in the host's memory."""


class TensorArray(Array):
    """A Flower array whose values are a torch tensor, which must not be changed afterwards.

    Its bytes are made when they are first read, and kept. The dtype must be one that numpy has.
    """

    tensor: Any
    _data: bytes | None

    def __init__(self, tensor: Any) -> None:
        # Not by assignment, which Flower's class makes slow; a round has some hundred of these.
        vars(self).update(
            tensor=tensor.detach() if tensor.requires_grad else tensor,
            dtype=_name_of(tensor.dtype),
            shape=tuple(tensor.shape),
            stype="numpy.ndarray",
            _data=None,
        )

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The values as a `.npy` file in the host's memory."""
        if self._data is None:
            self._data = packed(host(self.tensor)).data
        return self._data


@lru_cache(maxsize=32)
def _name_of(dtype: Any) -> str:
    """numpy's name of one of torch's dtypes."""
    return str(dtype).removeprefix("torch.")


def size_of(array: Array) -> int:
    """The number of bytes of an array; those of a tensor are not made for it."""
    if not isinstance(array, TensorArray):
        return len(array.data)
    return len(npy_header(dtype_named(array.dtype), array.shape)) + int(array.tensor.nbytes)


def records_bytes(record: ArrayRecord) -> int:
    """Bytes of a record's serialised arrays, headers included."""
    return sum(map(size_of, record.values()))


def is_tensor(array: Any) -> bool:
    """Whether the array is a torch tensor."""
    return hasattr(array, "detach")


def values(record: ArrayRecord) -> Arrays:
    """The arrays of a record, in its order: tensors where it has them, else read-only views of the bytes.

    Raises ValueError for arrays that cannot be read, as `arrays.view` does.
    """
    return {name: value(array) for name, array in record.items()}


def value(array: Array) -> Any:
    """The tensor of an array that has one, else a read-only view of its bytes. Raises ValueError as `values`."""
    return array.tensor if isinstance(array, TensorArray) else view(array)


def record_of(arrays: Mapping[str, Any]) -> ArrayRecord:
    """A record of these arrays, in their order, in which tensors stay tensors."""
    record = ArrayRecord()  # its constructor would copy the bytes of a tensor
    for name, array in arrays.items():
        record[name] = TensorArray(array) if is_tensor(array) else packed(host(array))
    return record


def device_in(arrays: Iterable[Any]) -> Device:
    """The device of the first of these arrays that is a tensor, alone or in a record; None if there is none."""
    for array in arrays:
        tensor = array.tensor if isinstance(array, TensorArray) else array
        if is_tensor(tensor):
            return tensor.device
    return None


def placed(arrays: Arrays, device: Device) -> Arrays:
    """The same arrays as tensors on this device, or as numpy arrays if it is None, copied only where needed."""
    moved = {name: _moved(array, device) for name, array in arrays.items()}
    if not isinstance(arrays, Declared):
        return moved
    declared = Declared(moved)
    declared.buffers = arrays.buffers
    declared.held = {
        name: Held(_moved(nonfinite.places, device), _moved(nonfinite.values, device))
        for name, nonfinite in arrays.held.items()
    }
    return declared


def _moved(array: Any, device: Device) -> Any:
    if device is None:
        return host(array)
    if is_tensor(array):
        return array.to(device)
    return tensor_of(array, device)


def plain(array: Any) -> np.ndarray:
    """The values on the host, in a dtype that numpy itself has: bfloat16 in float32."""
    near = host(array)
    return near.astype(np.float32) if is_bfloat16(near.dtype) else near


def tensor_of(array: Any, device: Device = None) -> Any:
    """A torch tensor with a copy of a numpy array's values; torch does not know read-only arrays."""
    import torch

    near = np.asarray(array)
    if is_bfloat16(near.dtype):
        return torch.tensor(near.view(np.int16), device=device).view(torch.bfloat16)
    return torch.tensor(near, device=device)
