"""Arrays of a record are read in place; parameters, buffers and layers; sums in float64."""

from __future__ import annotations

import contextlib
import io
import math

import numpy as np
import pytest
import reference as ref
import torch
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedstride.arrays import float64_sums
from fedstride.arrays.float64_sums import inner, total
from fedstride.arrays.named import (
    Layout,
    is_boolean,
    is_buffer,
    is_floating,
    layer_of,
    like,
    to_record,
    view,
    views,
)

KINDS = ["float16", "float32", "float64", "int8", "int64", "uint8", "bool", ">f4", "complex64"]


def npy(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0,), (2, 0)])
def test_a_view_holds_what_was_packed(dtype: str, shape: tuple[int, ...]) -> None:
    original = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    seen = view(Array(original))
    assert seen.dtype == original.dtype
    assert seen.shape == shape
    np.testing.assert_array_equal(seen, original)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float16, np.int64, np.bool_]), hnp.array_shapes(min_dims=0, max_dims=4)
    )
)
def test_any_array_is_restored_bit_identically(original: np.ndarray) -> None:
    seen = view(Array(original))
    assert (seen.dtype, seen.shape, seen.tobytes()) == (original.dtype, original.shape, original.tobytes())


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0,), (2, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_record_has_the_bytes_of_numpys_own_format(dtype: str, shape: tuple[int, ...], order: str) -> None:
    array = np.asarray(np.arange(math.prod(shape)).reshape(shape).astype(dtype), order=order)  # type: ignore[call-overload]
    (packed,) = to_record({"a": array}).values()
    assert packed == Array(array)
    assert packed.data == npy(array)


def test_a_header_of_another_array_is_not_believed() -> None:
    """Headers that were read once are remembered; the values after them are not."""
    first, second = Array(np.arange(6.0)), Array(np.arange(6.0)[::-1].copy())
    assert view(first).tolist() == view(second).tolist()[::-1]
    damaged = first.data[:20] + b"x" + first.data[21:]
    for _ in range(2):
        with pytest.raises(ValueError):
            view(Array("float64", (6,), "numpy.ndarray", damaged))


def test_a_header_that_claims_to_be_long_is_refused() -> None:
    data = b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b" " * 100_000
    with pytest.raises(ValueError):
        view(Array("float64", (6,), "numpy.ndarray", data))


@pytest.mark.parametrize("text", ["-" * 9_000 + "1", "(" * 9_000, "[" * 90 + "]" * 90, "{'shape': " + "9" * 9_000])
def test_a_header_that_is_nested_deeply_is_refused(text: str) -> None:
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    with pytest.raises(ValueError):
        view(Array("float64", (6,), "numpy.ndarray", data))


def test_a_view_is_no_copy() -> None:
    packed = Array(np.arange(12.0).reshape(3, 4))
    assert np.shares_memory(view(packed), np.frombuffer(packed.data, np.uint8))


def test_a_view_cannot_be_written() -> None:
    seen = view(Array(np.zeros(3)))
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.flags.writeable = True


def test_fortran_order_is_understood_without_a_copy() -> None:
    original = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    packed = Array(original)
    seen = view(packed)
    np.testing.assert_array_equal(seen, original)
    assert seen.flags.f_contiguous
    assert np.shares_memory(seen, np.frombuffer(packed.data, np.uint8))


def test_strided_arrays_travel_by_value() -> None:
    original = np.arange(20.0)[::3]
    np.testing.assert_array_equal(view(Array(original)), original)


def test_version_2_of_the_format_is_understood() -> None:
    original = np.arange(4.0)
    np.testing.assert_array_equal(view(Array("float64", (4,), "numpy.ndarray", npy(original, (2, 0)))), original)


def test_views_keep_the_order_of_a_record() -> None:
    names = ["z", "a.b", "m"]
    record = ArrayRecord({name: Array(np.zeros(1)) for name in names})
    assert list(views(record)) == names


GOOD = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (Array("float32", (6,), "torch.Tensor", npy(GOOD)), "type 'torch.Tensor'"),
        (Array("float32", (2, 3), "numpy.ndarray", npy(GOOD)), r"declared as float32\(2, 3\) holds float32\(6,\)"),
        (Array("float64", (6,), "numpy.ndarray", npy(GOOD)), r"declared as float64\(6,\) holds float32\(6,\)"),
        (Array("float32", (6,), "numpy.ndarray", npy(GOOD)[:-1]), "buffer size"),
        (Array("float32", (6,), "numpy.ndarray", npy(GOOD)[:-4]), "reshape"),
        (Array("float32", (6,), "numpy.ndarray", npy(GOOD) + bytes(4)), "reshape"),
        (Array("float32", (6,), "numpy.ndarray", b""), "EOF"),
        (Array("float32", (6,), "numpy.ndarray", b"not an array at all"), "magic"),
        (Array("float32", (6,), "numpy.ndarray", npy(GOOD, (3, 0))), r"format \(3, 0\)"),
    ],
)
def test_bytes_that_disagree_are_refused(packed: Array, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        view(packed)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(8, 127), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_torn_header_is_read_or_refused_with_a_value_error(changes: list[tuple[int, int]]) -> None:
    whole = Array(np.arange(12, dtype=np.float32).reshape(3, 4))
    data = bytearray(whole.data)
    for place, value in changes:
        data[place] = value
    with contextlib.suppress(ValueError):
        view(Array(whole.dtype, whole.shape, whole.stype, bytes(data)))


def test_objects_are_never_unpickled() -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return (pytest.fail, ("unpickled",))

    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        view(Array("object", (1,), "numpy.ndarray", stream.getvalue()))


def test_to_record_takes_numpy_and_torch() -> None:
    given = {
        "b": torch.ones(2, requires_grad=True),
        "a": np.float16([1, 2]),
        "steps": torch.tensor(7),
        "mask": torch.tensor([True, False]),
    }
    record = to_record(given)
    back = views(record)
    assert list(back) == ["b", "a", "steps", "mask"]
    assert [array.dtype for array in back.values()] == [np.float32, np.float16, np.int64, np.bool_]
    assert back["steps"].shape == () and back["steps"] == 7


@pytest.mark.parametrize("value", [np.int64(7), np.float32(0.5), np.bool_(True)])
def test_to_record_takes_numpy_scalars(value: np.generic) -> None:
    """Arithmetic on 0-d arrays (num_batches_tracked) returns numpy scalars."""
    back = views(to_record({"a": value}))["a"]
    assert (back.shape, back.dtype, back[()]) == ((), value.dtype, value)


# ---------------------------------------------------------------- parameters, buffers, layers


@pytest.mark.parametrize(
    ("array", "floating", "boolean"),
    [
        (np.zeros(1, np.float16), True, False),
        (np.zeros(1, np.float64), True, False),
        (torch.zeros(1, dtype=torch.bfloat16), True, False),
        (torch.zeros(1, dtype=torch.float16), True, False),
        (np.zeros(1, np.int64), False, False),
        (torch.zeros(1, dtype=torch.uint8), False, False),
        (np.zeros(1, np.bool_), False, True),
        (torch.zeros(1, dtype=torch.bool), False, True),
        (np.zeros(1, np.complex64), False, False),
    ],
)
def test_kinds_of_arrays(array: object, floating: bool, boolean: bool) -> None:
    assert (is_floating(array), is_boolean(array)) == (floating, boolean)


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("bn.running_mean", np.float32, True),
        ("layer.0.bn.running_var", np.float64, True),
        ("running_var", np.float32, True),
        ("bn.num_batches_tracked", np.int64, True),
        ("bn.num_batches_tracked", np.float32, True),
        ("bn.weight", np.float32, False),
        ("running_mean.weight", np.float32, False),
        ("bn.my_running_mean", np.float32, False),
        ("mask", np.bool_, True),
        ("table", np.int32, True),
        ("half", np.float16, False),
    ],
)
def test_buffers_by_name_or_dtype(name: str, dtype: type, expected: bool) -> None:
    assert is_buffer(name, np.zeros(2, dtype)) is expected
    assert is_buffer(name, torch.from_numpy(np.zeros(2, dtype))) is expected
    assert ref.is_buffer(name, np.zeros(2, dtype)) is expected


@pytest.mark.parametrize(("name", "layer"), [("conv1.weight", "conv1"), ("a.b.c", "a.b"), ("scale", "scale")])
def test_a_layers_name_is_the_parameters_name_up_to_the_last_dot(name: str, layer: str) -> None:
    assert layer_of(name) == layer


def test_layout_in_order_of_first_appearance() -> None:
    model = ref.make_model(np.random.default_rng(0)) | {"conv1.late": np.zeros(2, np.float32)}
    layout = Layout.of(model)
    assert layout.parameters == tuple(ref.parameters(model))
    assert layout.buffers == ("bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked")
    assert {name: list(found) for name, found in layout.layers.items()} == ref.layers(model)
    assert list(layout.layers) == ["conv1", "bn1", "fc", "scale"]
    assert layout.layers["conv1"] == ("conv1.weight", "conv1.bias", "conv1.late")


# ---------------------------------------------------------------- float64 sums


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_sums_run_in_float64(make: object) -> None:
    """In float32 the ones would be lost next to 1e8."""
    a = make([1e8, 1.0, 1.0, -1e8], dtype=np.float32 if make is np.array else torch.float32)
    ones = make([1.0, 1.0, 1.0, 1.0], dtype=a.dtype)
    assert inner(a, ones) == 2.0
    assert isinstance(inner(a, ones), float)
    assert float64_sums.squared_norm(make([3.0, 4.0])) == 25.0
    assert float64_sums.norm({"a": make([3.0, 0.0]), "b": make([[4.0]])}) == 5.0


def test_float64_returns_a_float64_array_itself() -> None:
    array, tensor = np.zeros(2), torch.zeros(2, dtype=torch.float64)
    assert float64_sums.float64(array) is array
    assert float64_sums.float64(tensor) is tensor
    assert float64_sums.float64(np.zeros(2, np.float16)).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_integers_are_rounded_half_to_even(dtype: type) -> None:
    got = like(np.array([0.5, 1.5, 2.5, 3.4999]), np.zeros(4, dtype))
    assert got.dtype == dtype
    assert got.tolist() == [0, 2, 2, 3]
    tensor = like(torch.tensor([0.5, 1.5, 2.5, 3.4999]), torch.zeros(4, dtype=torch.int64))
    assert tensor.dtype == torch.int64
    assert tensor.tolist() == [0, 2, 2, 3]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "uint64"])
def test_like_stays_within_the_dtype(kind: str) -> None:
    limits = np.iinfo(kind)
    beyond = np.array([float(limits.max), limits.max * 2.0, float(limits.min), limits.min - 1e20, 1.4])
    found = like(beyond, np.zeros(5, kind))
    assert found.dtype == kind and found.tolist() == [limits.max, limits.max, limits.min, limits.min, 1]
    single = like(np.array(3.0), np.array(1, kind))
    assert single.shape == () and single == 3


def test_like_keeps_floats_and_booleans() -> None:
    assert like(np.array([0.1]), np.zeros(1, np.float32)).tolist() == [float(np.float32(0.1))]
    assert like(np.array([True, False]), np.zeros(2, np.bool_)).dtype == np.bool_


def test_difference_is_exact_in_float64() -> None:
    new, old = {"a": np.float32([1.1]), "b": np.float32([2])}, {"a": np.float32([1.0]), "b": np.float32([1])}
    got = float64_sums.difference(new, old, ["a"])
    assert list(got) == ["a"]
    assert got["a"].dtype == np.float64
    assert got["a"][0] == float(np.float32(1.1)) - 1.0


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_mean_weighs_in_the_order_given(make: object) -> None:
    got = float64_sums.mean([make([1.0, 2.0]), make([3.0, 6.0])], [0.25, 0.75])
    assert got.tolist() == [2.5, 5.0]
    with pytest.raises(ValueError):
        float64_sums.mean([make([1.0]), make([2.0])], [1.0])


def test_a_total_is_not_compensated() -> None:
    """Python's `sum` is compensated from 3.12 on, but the bits of a run must not depend on the version."""
    assert total([1e16, 1.0, -1e16]) == 0.0
    assert total([]) == 0.0
