"""Hypothesis strategies for replies that a server must reject, and for unexpected replies that are valid.

A malformed reply is malformed for every draw. A flaw belongs to one part of a reply (its arrays, its metrics, its
records, the message), and each part gets at most one kind of flaw, so that no flaw removes another.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import strategies as st
from world import failed

from fedstride.arrays.named import is_buffer, views
from fedstride.messages import wire

FLOATS = ("float16", "float32", "float64")
DTYPES = (*FLOATS, "int8", "int64", "uint16", "bool", "complex64", ">f4", ">f8", "S3", "U2", "datetime64[s]")
HUGE = st.integers(2**31, 2**62)
NOT_FINITE = st.sampled_from([np.nan, np.inf, -np.inf])
TEXT = st.text(st.characters(codec=None), max_size=8)  # lone surrogates and control characters too
NAMES = st.one_of(TEXT, st.sampled_from(["fc.weight\n", " ", "../../x", "ﬁ", "a" * 5000, "\x1b[31mred"]))

Content = dict[str, Any]


# ---------------------------------------------------------------- one array


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def header(text: str, version: tuple[int, int] = (1, 0), claimed: int | None = None) -> bytes:
    """The header of an .npy file with this text, whose length field says `claimed` bytes."""
    content = text.encode("latin1", "replace")
    size = len(content) if claimed is None else claimed
    length = size.to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + length + content


def other_dtype(draw: st.DrawFn, good: np.ndarray) -> Array:
    names = [name for name in DTYPES if np.dtype(name) != good.dtype]
    return Array(np.zeros(good.shape, draw(st.sampled_from(names))))


def other_shape(draw: st.DrawFn, good: np.ndarray) -> Array:
    shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
    near = st.sampled_from([(), (good.size,), (1,) * good.ndim, (1, *good.shape), good.shape[::-1], (0,)])
    shape = draw(st.one_of(shapes, near).filter(lambda shape: shape != good.shape))
    return Array(np.ones(shape, good.dtype))


def not_finite(draw: st.DrawFn, good: np.ndarray) -> Array:
    """NaN or infinity in the whole array or in one element; an integer array is replaced by a float array."""
    if good.dtype.kind != "f":
        return Array(np.full(good.shape, draw(NOT_FINITE), np.float32))
    array = good.copy()
    array.flat[draw(st.integers(0, good.size - 1)) if draw(st.booleans()) else slice(None)] = draw(NOT_FINITE)
    return Array(array)


def absurd_norm(draw: st.DrawFn, good: np.ndarray) -> Array:
    """One element of a parameter between far larger than those of other clients and the largest float."""
    array = good.copy()
    most = float(np.finfo(good.dtype).max)
    size = most ** draw(st.floats(0.2, 1.0))
    array.flat[draw(st.integers(0, good.size - 1))] = draw(st.sampled_from([size, -size]))
    return Array(array)


def garbage(draw: st.DrawFn, good: np.ndarray) -> Array:
    data = draw(st.one_of(st.binary(max_size=300), st.binary(max_size=40).map(lambda tail: b"\x93NUMPY" + tail)))
    return _as(good, data)


def cut_short(draw: st.DrawFn, good: np.ndarray) -> Array:
    data = npy(good)
    return _as(good, data[: draw(st.integers(0, len(data) - 1))])


def too_long(draw: st.DrawFn, good: np.ndarray) -> Array:
    return _as(good, npy(good) + draw(st.binary(min_size=1, max_size=64)))


def other_kind(draw: st.DrawFn, good: np.ndarray) -> Array:
    stype = draw(st.one_of(st.sampled_from(["torch.Tensor", "", "numpy.ndarray "]), TEXT))
    return Array(str(good.dtype), good.shape, stype, npy(good))


def lying(draw: st.DrawFn, good: np.ndarray) -> Array:
    """The declared dtype or shape differs from that of the bytes."""
    shape = draw(
        st.lists(st.one_of(st.integers(-3, 3), HUGE), max_size=3).map(tuple).filter(lambda s: s != good.shape)
    )
    dtype = draw(st.one_of(st.sampled_from(["object", "", "V8", "float128"]), TEXT))
    declared = draw(st.sampled_from([(dtype, good.shape), (str(good.dtype), shape), (dtype, shape)]))
    return Array(*declared, "numpy.ndarray", npy(good))


def enormous(draw: st.DrawFn, good: np.ndarray) -> Array:
    """A header with a size that is larger than any memory, and the same declared shape."""
    shape = tuple(draw(st.lists(st.one_of(HUGE, st.integers(0, 9)), min_size=1, max_size=4)))
    shape = (*shape, draw(HUGE))
    descr = draw(st.sampled_from(["<f4", "<f8", "|V0", "|S0", "|V2147483647", "<U536870911", "|b1"]))
    text = f"{{'descr': '{descr}', 'fortran_order': {draw(st.booleans())}, 'shape': {shape}, }}\n"
    dtype = draw(st.sampled_from([str(good.dtype), descr]))
    return Array(dtype, shape, "numpy.ndarray", header(text) + good.tobytes())


def odd_header(draw: st.DrawFn, good: np.ndarray) -> Array:
    """Headers with text that could make numpy's parser fail, or with wrong lengths."""
    depth = draw(st.integers(1, 3000))
    text = draw(
        st.one_of(
            st.sampled_from(["(" * depth, "-" * depth + "1", "{[]: 1}", "[" * depth + "]" * depth, "9" * depth]),
            st.sampled_from(
                ["{'descr': 'O', 'fortran_order': False, 'shape': (2,)}", "__import__('os')", "\x00", ""]
            ),
            st.text(max_size=80),
        )
    )
    version = draw(st.sampled_from([(1, 0), (2, 0), (3, 0), (0, 0), (255, 255)]))
    claimed = draw(st.sampled_from([None, 0, 2**16 - 1, 2**32 - 1]))
    if version == (1, 0) and claimed is not None:
        claimed = min(claimed, 2**16 - 1)
    return _as(good, header(text, version, claimed) + good.tobytes())


def pickled(draw: st.DrawFn, good: np.ndarray) -> Array:
    """An .npy file of Python objects, which only a pickle could read."""
    stream = io.BytesIO()
    np.save(stream, np.full(good.shape, print, dtype=object), allow_pickle=True)
    return Array(
        draw(st.sampled_from([str(good.dtype), "object"])), good.shape, "numpy.ndarray", stream.getvalue()
    )


def _as(good: np.ndarray, data: bytes) -> Array:
    return Array(str(good.dtype), good.shape, "numpy.ndarray", data)


ARRAY_FLAWS: tuple[Callable[[st.DrawFn, np.ndarray], Array], ...] = (
    other_dtype,
    other_shape,
    not_finite,
    garbage,
    cut_short,
    too_long,
    other_kind,
    lying,
    enormous,
    odd_header,
    pickled,
)


# ---------------------------------------------------------------- the parts of a reply


def flawed_arrays(draw: st.DrawFn, content: Content) -> None:
    """Damaged, missing, renamed or additional arrays, in the model or in another record of arrays."""
    key = draw(st.sampled_from(sorted(k for k, each in content.items() if isinstance(each, ArrayRecord))))
    record = dict(content[key])
    model = views(content[key])
    strangers = NAMES.filter(lambda name: name not in model)
    if draw(st.booleans()):  # often only this flaw, also in buffers, which a check of parameters does not find
        name = draw(st.sampled_from([name for name in sorted(model) if model[name].dtype.kind == "f"]))
        record[name] = not_finite(draw, model[name])
    elif draw(st.integers(0, 9)) == 0:
        record[draw(strangers)] = record[draw(st.sampled_from(sorted(model)))]
    else:
        for name in draw(st.lists(st.sampled_from(sorted(model)), min_size=1, max_size=3, unique=True)):
            how = draw(st.sampled_from((*ARRAY_FLAWS, "gone", "renamed", "absurd")))
            if how in ("gone", "renamed"):
                array = record.pop(name)
                if how == "renamed":
                    record[draw(strangers)] = array
            elif how == "absurd":
                flaw = other_shape if is_buffer(name, model[name]) else absurd_norm
                record[name] = flaw(draw, model[name])
            else:
                record[name] = how(draw, model[name])
    content[key] = ArrayRecord(record)


BAD_COUNTS = st.one_of(
    st.integers(max_value=0),
    st.integers(min_value=10**12 + 1),
    st.just(10**400),
    st.floats(max_value=0.0),
    st.floats(min_value=1.1e12),
    st.just(float("nan")),
    st.lists(st.integers(1, 50), max_size=3),
    st.lists(st.floats(1.0, 50.0), max_size=3),
    st.just([1.0] * 100_000),
)
BAD_IDS = st.one_of(st.floats(), st.lists(st.integers(0, 9), max_size=3), st.just([0.0] * 100_000))


def flawed_metrics(draw: st.DrawFn, content: Content) -> None:
    """An invalid or missing number of examples, or an invalid client id."""
    metrics = dict(content[wire.METRICS])
    how = draw(st.sampled_from(["count", "no count", "id", "another name"]))
    if how == "count":
        metrics[wire.NUM_EXAMPLES] = draw(BAD_COUNTS)
    elif how == "id":
        metrics[wire.CLIENT_ID] = draw(BAD_IDS)
    else:
        count = metrics.pop(wire.NUM_EXAMPLES)
        if how == "another name":
            metrics[draw(NAMES)] = count
    content[wire.METRICS] = MetricRecord(metrics)


def flawed_records(draw: st.DrawFn, content: Content) -> None:
    """Not exactly one model, or not exactly one set of metrics."""
    key = draw(st.sampled_from([wire.ARRAYS, wire.METRICS]))
    how = draw(st.sampled_from(["gone", "twice", "empty and twice", "of another kind", "nothing at all"]))
    if how == "nothing at all":
        content.clear()
    elif how == "gone":
        del content[key]
    elif how == "of another kind":
        content[key] = ConfigRecord({"weights": b"\x00" * 9})
    else:
        another = draw(NAMES.filter(lambda name: name not in content))
        content[another] = content[key] if how == "twice" else type(content[key])()


FLAWS = (flawed_arrays, flawed_metrics, flawed_records)


# ---------------------------------------------------------------- unexpected, but valid

PLAIN = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.lists(st.floats(), max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
)
OURS = (  # names that the server writes to the records itself
    *("round", "client", "clients", "status", "reason", "norm", "bytes/up", "bytes/down", "note"),
    *("screening/rejected", "screening/missing", "test/accuracy", "test/loss", "norms/N", "fednnnn/N"),
    *("seconds/train", "seconds/evaluate", "seconds/aggregate", wire.TRAIN_LOSS),
)
WORDS = st.one_of(
    PLAIN,
    st.booleans(),
    st.binary(max_size=20),
    TEXT,
    st.just("x" * 3_000_000),
    st.just(b"x" * 3_000_000),
    st.just([0.5] * 300_000),
    st.lists(TEXT, max_size=3),
    st.lists(st.binary(max_size=3), max_size=3),
)


def odd_metrics(draw: st.DrawFn, content: Content) -> None:
    """Any metrics in addition to the number of examples and the client id."""
    drawn = draw(st.dictionaries(st.one_of(st.sampled_from(OURS), NAMES), PLAIN, max_size=4))
    kept = (wire.NUM_EXAMPLES, wire.CLIENT_ID)
    content[wire.METRICS] = MetricRecord(
        {**content[wire.METRICS], **{key: value for key, value in drawn.items() if key not in kept}}
    )


def odd_record(draw: st.DrawFn, content: Content) -> None:
    """An additional record of plain values, which the server must neither save nor send back."""
    said = draw(st.dictionaries(st.one_of(st.sampled_from(["cursor"]), NAMES), WORDS, max_size=3))
    content[draw(st.sampled_from(["state", "config", "two_d_lrd.rate_factors"]))] = ConfigRecord(said)


# ---------------------------------------------------------------- whole replies


@st.composite
def odd(draw: st.DrawFn, good: Message) -> Message:
    """A valid reply with unexpected metrics and an unexpected record."""
    content = dict(good.content)
    odd_metrics(draw, content)
    odd_record(draw, content)
    return carrying(good, content)


@st.composite
def malformed(draw: st.DrawFn, good: Message) -> Message:
    """The reply `good` with at least one flaw."""
    if draw(st.integers(0, 14)) == 0:
        return failed(good, draw(st.integers(-5, 2**31 - 1)), draw(st.one_of(NAMES, st.just("x\n" * 9999))))
    content = dict(good.content)
    odd_metrics(draw, content)
    for flaw in draw(st.lists(st.sampled_from(FLAWS), min_size=1, max_size=2, unique=True).map(_in_order)):
        flaw(draw, content)
    reply = carrying(good, content)
    if draw(st.integers(0, 19)) == 0:
        reply.__dict__["_content"] = None
    return reply


def _in_order(flaws: list[Any]) -> list[Any]:
    return sorted(flaws, key=FLAWS.index)  # flaws of records last, because they can remove the records


def carrying(message: Message, content: Content) -> Message:
    """A copy of the message with this content."""
    copy = object.__new__(Message)
    copy.__dict__.update(message.__dict__)
    copy.content = RecordDict(content)
    return copy
