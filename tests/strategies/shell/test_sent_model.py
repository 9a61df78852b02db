"""Models that no rule can average are refused in one line, in whatever app."""

from __future__ import annotations

from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from all_strategies import ALL, make_model
from federation import OPEN
from flwr.app import ConfigRecord

from fedstride.arrays.named import to_record
from fedstride.errors import ConfigError
from strategies import LDAWA, FedAvg, FedLWS, FedMGDAPlus, NormAnalysis

W = np.ones(3, np.float32)

WITHOUT_PARAMETERS: dict[str, Any] = {
    "the bytes of trees": {"booster": np.frombuffer(b'{"learner": {}}', np.uint8)},
    "integers": {"counts": np.arange(4), "fc.mask": np.array([True, False])},
    "empty arrays": {"w": np.zeros((0, 3), np.float32), "b": np.zeros(0)},
    "no arrays": {},
    "statistics alone": {"bn.running_mean": np.zeros(2), "bn.num_batches_tracked": np.array(3)},
}
NOT_NUMBERS: dict[str, Any] = {
    "complex64": W.astype(np.complex64),
    "complex128": np.array(1j),
    "str160": np.array(["a tree"] * 2, "U5"),
    "bytes": np.array([b"abc"]),
}


def refused(strategy: Any, model: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        strategy.configure_train(1, to_record(model), ConfigRecord(), fed.MemoryGrid())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", WITHOUT_PARAMETERS)
@pytest.mark.parametrize("name", ["FedAvg", "FedLWS", "LDAWA", "FedMGDAPlus", "TwoDLRD", "FedLWS(Krum)"])
def test_a_model_without_parameters_is_refused(name: str, kind: str) -> None:
    text = refused(ALL[name](), WITHOUT_PARAMETERS[kind])
    assert text.startswith("the model has no floating-point parameters")
    assert all(repr(array) in text for array in list(WITHOUT_PARAMETERS[kind])[:3])


@pytest.mark.parametrize("kind", NOT_NUMBERS)
@pytest.mark.parametrize("make", [lambda: FedAvg(**OPEN), lambda: NormAnalysis(flwr.FedMedian(**OPEN))])
def test_an_array_of_other_things_than_real_numbers_is_refused(make: Any, kind: str) -> None:
    for place in ("layer.weight", "bn.running_mean", "table"):
        text = refused(make(), {"w": W, place: NOT_NUMBERS[kind]})
        assert f"{place!r} is {NOT_NUMBERS[kind].dtype.name}, which cannot be averaged" in text


@pytest.mark.parametrize("make", [LDAWA, FedMGDAPlus, lambda **o: FedLWS(FedAvg(**o))])
def test_integer_buffers_beside_parameters_are_averaged_as_ever(make: Any) -> None:
    done = fed.play(make(**OPEN), 1, make_model(), fed.noisy())
    assert done.returned is not None
    assert done.returned["bn1.num_batches_tracked"].dtype == np.int64
