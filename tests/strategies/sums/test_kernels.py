"""The innermost sums: the compiled ones have the bits of numpy's, and are used where they are worth it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.arrays.float64_sums import BLOCK, LANES
from strategies.sums import kernels
from strategies.sums.kernels import WORTH_COMPILING, Kernels, kernels_for

DTYPES = ["e", "f", "d", ">f4"]


@st.composite
def blocks_of_clients(draw: st.DrawFn) -> tuple[list[Any], Any, Any, list[float]]:
    """x of some clients, w, a vector and factors: of all sizes, dtypes and magnitudes, special values included."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([0, 1, 7, LANES - 1, LANES, LANES + 1, 5000, BLOCK]))
    dtype = draw(st.sampled_from(DTYPES))
    scale = draw(st.sampled_from([0.0, 1e-30, 1.0, 1e4]))
    xs = [(scale * rng.standard_normal(size)).astype(dtype) for _ in range(draw(st.integers(1, 9)))]
    for x in xs:
        if size and draw(st.integers(0, 4)) == 0:
            x[draw(st.integers(0, size - 1))] = draw(st.sampled_from([np.nan, np.inf, -0.0]))
    w = (scale * rng.standard_normal(size)).astype(dtype).astype(np.float64)
    return xs, w, rng.standard_normal(size), list(rng.standard_normal(len(xs)))


def everything(made: Kernels, xs: list[Any], w: Any, vector: Any, factors: list[float]) -> list[bytes]:
    """All results, as bits. The outputs hold numbers that must not count."""

    def clients() -> Iterator[Any]:
        return (x.view() for x in xs)

    out, other = np.full(w.size, 7.0), np.full(w.size, np.nan)
    with np.errstate(all="ignore"):
        numbers = [
            made.squares(clients, w),
            made.squares_and_summed(clients, w, factors, out),
            made.products(clients, w, vector),
            made.distances(clients, w, len(xs)),
        ]
        made.summed(clients, w, factors, other)
    return [np.array(found).tobytes() for found in numbers] + [out.tobytes(), other.tobytes()]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(blocks_of_clients())
def test_compiled_sums_have_the_bits_of_numpys(values: tuple[list[Any], Any, Any, list[float]]) -> None:
    compiled = pytest.importorskip("strategies.sums.compiled_kernels", exc_type=ImportError)
    assert everything(compiled.CompiledKernels(), *values) == everything(Kernels(), *values)


def test_compiled_code_runs() -> None:
    """Otherwise the test above compares numpy with itself."""
    compiled = pytest.importorskip("strategies.sums.compiled_kernels", exc_type=ImportError)
    xs = [np.ones(10, np.float32) for _ in range(compiled.GROUP)]
    compiled.CompiledKernels().squares(lambda: iter(xs), np.zeros(10))
    assert compiled._squares.signatures


def test_a_small_pass_needs_no_compiled_code() -> None:
    assert kernels_for(WORTH_COMPILING - 1) is Kernels


def test_a_large_pass_is_compiled_if_numba_is_installed() -> None:
    compiled = pytest.importorskip("strategies.sums.compiled_kernels", exc_type=ImportError)
    kernels._compiled.cache_clear()
    assert kernels_for(WORTH_COMPILING) is compiled.CompiledKernels


def test_without_numba_a_large_pass_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    kernels._compiled.cache_clear()
    assert kernels_for(WORTH_COMPILING) is Kernels
    kernels._compiled.cache_clear()


def test_a_numba_that_cannot_be_imported_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*where: str) -> None:
        raise ImportError("Numba needs NumPy 2.3 or less")

    monkeypatch.setattr(kernels, "find_spec", lambda name: object())
    monkeypatch.setattr(kernels, "import_module", broken)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    kernels._compiled.cache_clear()
    assert kernels_for(WORTH_COMPILING) is kernels_for(WORTH_COMPILING) is Kernels
    kernels._compiled.cache_clear()
    assert [record.getMessage() for record in caplog.records if "numba" in record.getMessage()] == [
        "numba cannot be used, so aggregation takes about twice as long: Numba needs NumPy 2.3 or less"
    ]
