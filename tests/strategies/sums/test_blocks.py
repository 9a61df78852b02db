"""Work on all values of a model in blocks: the results are those of whole arrays, and errors are not lost."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
from reference import Model

from fedstride.arrays import float64_sums
from fedstride.arrays.float64_sums import BLOCK
from strategies.sums import blocks
from strategies.sums.blocks import blockwise, difference, inner_products, norm, squared_norms


@pytest.fixture(params=[1, 2, 3])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "cores", lambda: request.param)
    monkeypatch.setattr(blocks, "VALUES_A_THREAD", 1)


def model(seed: int) -> Model:
    rng = np.random.default_rng(seed)
    return {
        "body.weight": rng.standard_normal((13, BLOCK), np.float32),
        "turned.weight": np.asfortranarray(rng.standard_normal((40, 1000))),
        "half.weight": rng.standard_normal(BLOCK + 3).astype(np.float16),
        "scale": np.array(rng.standard_normal()),
        "nothing": np.zeros((0, 3)),
    }


@pytest.mark.usefixtures("_threads")
def test_an_expression_in_blocks_has_the_bits_of_the_expression() -> None:
    a, b = model(0), model(1)
    got = blockwise(lambda x, y: 0.7 * x + y / 3.0, a, b)
    assert fed.bits(got) == fed.bits({name: np.asarray(0.7 * a[name] + b[name] / 3.0) for name in a})


@pytest.mark.usefixtures("_threads")
def test_sums_in_blocks_have_the_bits_of_the_plain_ones() -> None:
    a, b = model(0), model(1)
    assert inner_products(a, b, a) == {name: float64_sums.inner(a[name], b[name]) for name in a}
    assert squared_norms(a, ["scale", "half.weight"]) == {
        name: float64_sums.squared_norm(a[name]) for name in ("scale", "half.weight")
    }
    assert norm(a) == float64_sums.norm(a)
    assert fed.bits(difference(a, b, a)) == fed.bits(
        {name: np.asarray(array) for name, array in float64_sums.difference(a, b, a).items()}
    )


def test_torch_tensors_are_computed_as_a_whole() -> None:
    a, b = ({name: np.asarray(array, np.float64) for name, array in model(k).items()} for k in (0, 1))
    ours, theirs = fed.to_torch(a), fed.to_torch(b)
    fed.assert_same_numbers(
        blockwise(lambda x, y: 2.0 * x + y, ours, theirs), blockwise(lambda x, y: 2.0 * x + y, a, b)
    )
    assert inner_products(ours, theirs, a) == pytest.approx(inner_products(a, b, a), rel=1e-10)
    assert norm(ours) == pytest.approx(norm(a), rel=1e-12)


@pytest.mark.usefixtures("_threads")
def test_an_error_in_a_block_is_raised() -> None:
    def fails(x: Any) -> Any:
        if x.size == 3:  # the last block of an array
            raise ZeroDivisionError("here")
        return x

    with pytest.raises(ZeroDivisionError, match="here"):
        blockwise(fails, model(0))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("over", ["raise", "ignore"])
def test_what_numpy_does_with_overflow_is_the_callers_choice(over: Any) -> None:
    large = {"body.weight": np.full((13, BLOCK), 1e300)}
    with np.errstate(over=over):
        if over == "ignore":
            assert np.isinf(blockwise(lambda x: x * x, large)["body.weight"]).all()
        else:
            with pytest.raises(FloatingPointError):
                blockwise(lambda x: x * x, large)
