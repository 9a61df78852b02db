"""bfloat16, which numpy itself does not have: averaged in float64, and rounded to bfloat16."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
from all_strategies import ALL, make_model
from federation import NODES, OPEN
from flwr.app import Array, ArrayRecord, ConfigRecord

from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from strategies import FedAvg

ml_dtypes = pytest.importorskip("ml_dtypes")

W = np.ones(3, np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "int4"])
def test_an_array_of_another_packages_dtype_is_refused(kind: str) -> None:
    record = ArrayRecord({"w": Array(W), "small": Array(np.ones(2, np.dtype(getattr(ml_dtypes, kind))))})
    with pytest.raises(ConfigError, match="the model's array 'small' cannot be used"):
        FedAvg(**OPEN).configure_train(1, record, ConfigRecord(), fed.MemoryGrid())


def in_bfloat16(model: Any) -> Any:
    return {name: a.astype(BF16) if a.dtype.kind == "f" else a for name, a in model.items()}


def train(sent: Any, server_round: int) -> list[Any]:
    wide = {name: a.astype(np.float32) if a.dtype == BF16 else a for name, a in sent.items()}
    return [in_bfloat16(model) for model in fed.noisy()(wide, server_round)]


@pytest.mark.parametrize("name", ALL)
def test_every_strategy_averages_bfloat16_in_float64(name: str) -> None:
    """As the same numbers in float32, but for the rounding, of a rule and of each wrapper."""
    start = in_bfloat16(make_model())
    done = fed.play(ALL[name](), 1, start, train)
    assert done.returned is not None
    assert [a.dtype for a in done.returned.values()] == [a.dtype for a in start.values()]
    wide = {n: a.astype(np.float32) if a.dtype == BF16 else a for n, a in start.items()}
    want = fed.play(
        ALL[name](),
        1,
        wide,
        lambda sent, t: [
            {n: a.astype(np.float32) if a.dtype == BF16 else a for n, a in model.items()}
            for model in train(start, t)
        ],
    )
    assert want.returned is not None
    for key, array in done.returned.items():
        expected = want.returned[key]
        if array.dtype == BF16:
            np.testing.assert_allclose(array.astype(np.float64), expected, rtol=2**-6, atol=2**-7, err_msg=key)
        else:
            assert array.tobytes() == expected.tobytes()


def test_the_mean_of_bfloat16_is_that_of_float64_rounded_once() -> None:
    values = [0.1, 1.0, 3.0]
    start = {"w": np.zeros(1, BF16)}
    models = [{"w": np.array([v]).astype(BF16)} for v in values]
    done = fed.play(FedAvg(**OPEN, screening=None), 1, start, lambda sent, t: models)
    want = sum(p * m["w"].astype(np.float64) for p, m in zip(fed.SHARES, models, strict=True))
    assert done.returned is not None
    assert done.returned["w"].tobytes() == want.astype(BF16).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_a_reply_in_another_dtype_than_bfloat16_is_rejected(dtype: Any) -> None:
    strategy = FedAvg(**OPEN)
    fed.configure(strategy, 1, {"w": np.zeros(2, BF16)})
    record, _ = strategy.aggregate_train(1, [fed.reply(NODES[0], {"w": np.ones(2, dtype)})])
    assert record is None


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
def test_bfloat16_on_the_wire_is_as_flower_writes_it(shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape)).astype(BF16)
    record = to_record({"w": array})
    assert record["w"].data == Array(array).data
    assert (record["w"].dtype, record["w"].shape) == ("bfloat16", shape)
    assert fed.bits(views(record)) == fed.bits({"w": array})
    masked = in_bfloat16({"mask": np.array([0.0, -np.inf])})
    done = fed.play(
        FedAvg(**OPEN, buffers=["mask"]), 1, {"w": W, **masked}, lambda sent, t: [{"w": W + 1, **masked}] * 3
    )
    assert done.returned is not None and fed.bits({"mask": done.returned["mask"]}) == fed.bits(masked)
