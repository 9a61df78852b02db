"""Records with tensors: whoever reads bytes notices nothing, and whoever can work with tensors gets them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord

from fedstride.arrays.named import Declared, to_record, view, views
from fedstride.arrays.on_device import TensorArray, device_in, placed, record_of, records_bytes, size_of, values

ARRAYS = {
    "float": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "half": np.ones((2, 1), np.float16),
    "count": np.array(7),
    "flag": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float64),
}


def tensors() -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array) for name, array in ARRAYS.items()}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_tensor_has_the_bytes_of_its_array(name: str) -> None:
    kept, plain = TensorArray(torch.tensor(ARRAYS[name])), Array(ARRAYS[name])
    assert size_of(kept) == size_of(plain) == len(plain.data)
    assert kept._data is None
    assert (kept.dtype, kept.shape, kept.stype, kept.data) == (plain.dtype, plain.shape, plain.stype, plain.data)
    assert kept.data is kept.data
    np.testing.assert_array_equal(kept.numpy(), ARRAYS[name])
    np.testing.assert_array_equal(view(kept), ARRAYS[name])


def test_values_that_are_not_in_order_in_memory() -> None:
    turned = torch.tensor(ARRAYS["float"]).t()
    np.testing.assert_array_equal(TensorArray(turned).numpy(), ARRAYS["float"].T)


def test_a_record_keeps_tensors_and_their_order() -> None:
    mixed = {**tensors(), "host": np.arange(3)}
    record = record_of(mixed)
    assert list(record) == list(mixed)
    found = values(record)
    assert all(found[name] is mixed[name] or found[name].data_ptr() == mixed[name].data_ptr() for name in ARRAYS)
    assert isinstance(found["host"], np.ndarray)
    assert all(isinstance(array, np.ndarray) for array in views(record).values())


def test_the_size_of_a_record_is_known_without_its_bytes() -> None:
    record = record_of(tensors())
    assert records_bytes(record) == records_bytes(to_record(ARRAYS))
    assert all(isinstance(array, TensorArray) and array._data is None for array in record.values())


def test_without_tensors_a_record_is_the_usual_one() -> None:
    record = record_of(ARRAYS)
    assert [type(array) for array in record.values()] == [Array] * len(ARRAYS)
    assert {name: array.data for name, array in record.items()} == {
        name: array.data for name, array in to_record(ARRAYS).items()
    }


def test_the_gradient_of_a_parameter_is_not_kept() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not TensorArray(parameter * 2).tensor.requires_grad


def test_where_arrays_are() -> None:
    cpu = torch.device("cpu")
    assert device_in(ARRAYS.values()) is None
    assert device_in([]) is None
    assert device_in([ARRAYS["float"], *tensors().values()]) == cpu
    assert device_in(record_of(tensors()).values()) == cpu
    assert device_in(to_record(ARRAYS).values()) is None


def test_arrays_are_moved_and_keep_what_they_declare() -> None:
    model = Declared(ARRAYS)
    model.buffers = frozenset({"half"})
    there = placed(model, torch.device("cpu"))
    assert isinstance(there, Declared)
    assert there.buffers == {"half"}
    back = placed(there, None)
    assert isinstance(back, Declared)
    assert back.buffers == {"half"}
    for name, array in ARRAYS.items():
        assert isinstance(there[name], torch.Tensor)
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(back[name], array)


def test_arrays_that_are_there_are_not_copied() -> None:
    there = tensors()
    assert all(
        new is old for new, old in zip(placed(there, torch.device("cpu")).values(), there.values(), strict=True)
    )
    assert all(new is old for new, old in zip(placed(ARRAYS, None).values(), ARRAYS.values(), strict=True))


def test_a_read_only_view_becomes_a_tensor_of_its_own() -> None:
    record = to_record({"a": np.zeros(3, np.float32)})
    moved = placed(views(record), torch.device("cpu"))
    moved["a"] += 1.0
    assert views(record)["a"].tolist() == [0.0, 0.0, 0.0]


def test_bytes_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(ValueError):
        values(ArrayRecord({"a": Array("float32", (2,), "numpy.ndarray", b"no array")}))
