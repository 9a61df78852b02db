"""What a site may say of its columns: nothing follows about too few rows, and hostile ones are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import ReplyError
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics.description import (
    BELOW,
    BESIDE,
    LACKS,
    NOT_SAID,
    DescribedColumn,
    Description,
    Told,
    asked_of,
    from_json,
    near,
    of_categories,
    of_numbers,
    scaled,
    to_json,
    withheld,
)

ASKED = [
    DescribedColumn("age"),
    DescribedColumn("stage", ("I", "II", "III")),
    DescribedColumn("ill", ("no", "yes"), True),
]
SAID = Description(
    5,
    False,
    100,
    True,
    2,
    (
        Told(missing=BELOW, mean=50.5, std=9.0, edges=(40.0, 60.0), counts=(30, 40, 30)),
        Told(missing=40, unknown=BELOW, counts=(50, BESIDE, BELOW)),
        Told(counts=(60, 40)),
    ),
)


def test_a_description_comes_back_from_a_message_and_from_json() -> None:
    assert Description.unflatten(ConfigRecord(SAID.flatten()), ASKED) == SAID
    assert Description.unflatten(json.loads(json.dumps(SAID.flatten())), ASKED) == SAID
    few = Description(20, few=True)
    assert few.flatten() == {"description.min_rows": 20, "description.few": True}
    assert Description.unflatten(few.flatten(), ASKED) == few
    assert all(from_json(json.loads(json.dumps(to_json(each)))) == each for each in SAID.columns)


WRONG: list[tuple[str, Any]] = [
    ("min_rows", 0),
    ("min_rows", True),
    ("min_rows", 2.0),
    ("few", 0),
    ("few", None),
    ("rows", -1),
    ("rows", 4),  # fewer than min_rows
    ("rows", 10**13),
    ("rows", float("nan")),
    ("readable", "yes"),
    ("unnamed", -3),
    ("unnamed", 10**9),
    ("state", [0, 0]),
    ("state", [0, 0, 3]),
    ("state", [LACKS, 0, 0]),  # a column that is not there, and has values
    ("missing", [0, 0, -2]),
    ("missing", [0, 0, 101]),
    ("missing", [0.0, 0.0, 0.0]),
    ("unknown", [0, 0, 0, 0]),
    ("mean", [float("nan"), 0.0, 0.0]),
    ("mean", [1, 2, 3]),
    ("std", [-0.5, NOT_SAID, NOT_SAID]),
    ("std", [float("inf"), NOT_SAID, NOT_SAID]),
    ("std", "abc"),
    ("sizes", [3, 3, 10**9]),
    ("sizes", [-3, 3, 2]),
    ("sizes", [3, 2, 2]),  # one category without a count
    ("edges", [40.0]),
    ("edges", [60.0, 40.0]),
    ("edges", [40.0, 40.0]),
    ("edges", [float("nan"), 60.0]),
    ("counts", [30, 40, 30, 50, BESIDE, BELOW, 60]),
    ("counts", [30, 40, 4, 50, BESIDE, BELOW, 60, 40]),  # a bin of fewer than min_rows
    ("counts", [30, 40, BELOW, 50, BESIDE, BELOW, 60, 40]),
    ("counts", [30, 40, 90, 50, BESIDE, BELOW, 60, 40]),  # more than there are rows
    ("counts", [30, 40, 30, 50, -3, BELOW, 60, 40]),
    ("counts", [30, 40, 30, 50, BESIDE, 1, 60, 40]),
    ("counts", [[30], 40, 30, 50, BESIDE, BELOW, 60, 40]),
    ("counts", {}),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_hostile_description_is_refused(name: str, value: Any) -> None:
    record = {**SAID.flatten(), f"description.{name}": value}
    with pytest.raises(ReplyError, match="cannot be used"):
        Description.unflatten(record, ASKED)


@pytest.mark.parametrize("name", ["min_rows", "few", "rows", "readable", "unnamed", "state", "mean", "counts"])
def test_a_description_without_a_key_is_refused(name: str) -> None:
    record = SAID.flatten()
    del record[f"description.{name}"]
    with pytest.raises(ReplyError, match="cannot be used"):
        Description.unflatten(record, ASKED)


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)), st.lists, max_leaves=8
)


@given(st.sampled_from(sorted(SAID.flatten())), ANY)
def test_whatever_is_said_is_refused_or_read(key: str, value: Any) -> None:
    try:
        found = Description.unflatten({**SAID.flatten(), key: value}, ASKED)
    except ReplyError:
        pass
    else:
        assert all(
            count >= found.min_rows or count in (BELOW, BESIDE) for told in found.columns for count in told.counts
        )


# ---------------------------------------------------------------- what may be said


@pytest.mark.slow
@given(st.lists(st.one_of(st.just(np.nan), st.floats(-1e3, 1e3)), min_size=20, max_size=200), st.integers(1, 30))
def test_of_numbers_no_few_rows_are_said(values: list[float], least: int) -> None:
    told, present = of_numbers(np.array(values), least), int(np.count_nonzero(~np.isnan(values)))
    gone = len(values) - present
    if present < least:
        assert told == Told(missing=len(values))
    else:
        assert told.missing == (BELOW if 0 < gone < least else gone)
        assert told.present == len(values) - max(told.missing, 0)
        assert min(told.counts) >= min(least, present)


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=200), st.integers(1, 30))
def test_of_categories_no_few_rows_are_said_and_none_follow(places: list[int], least: int) -> None:
    told = of_categories(np.array(places), 5, least)
    counts = np.bincount([place for place in places if place >= 0], minlength=5)
    if counts.sum() < least:
        assert told.counts == ()
        return
    for said, count in zip(told.counts, counts, strict=True):
        assert (said == BELOW) == (count < least)
        assert said in (BELOW, BESIDE) or said >= count >= least
    hidden = sum(count for said, count in zip(told.counts, counts, strict=True) if said < 0)
    assert hidden == 0 or hidden >= least


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9).filter(any), st.integers(0, 30))
def test_scaled_counts_are_whole_and_add_up(counts: list[int], more: int) -> None:
    total = sum(counts) + more
    found = scaled(counts, total)
    assert sum(found) == total
    assert all(
        after >= before and abs(after - before * total / sum(counts)) < 1
        for before, after in zip(counts, found, strict=True)
    )


@pytest.mark.parametrize(
    ("counts", "least", "said"),
    [
        ([164, 139], 20, [164, 139]),
        ([293, 7], 20, [BESIDE, BELOW]),  # 7 would follow from 300 - 293
        ([11, 106, 54, 123], 20, [BELOW, 106, BESIDE, 123]),
        ([12, 15, 100], 20, [BELOW, BELOW, 100]),  # 27 together
        ([0, 0, 100], 20, [BELOW, BELOW, 100]),
        ([3, 100], 1, [3, 100]),
    ],
)
def test_counts_of_categories_that_are_not_said(counts: list[int], least: int, said: list[int]) -> None:
    assert withheld(counts, least) == said


def test_percentiles_are_edges_with_rows_on_both_sides() -> None:
    told = of_numbers(np.arange(1000.0), 20)
    for wanted in (0.05, 0.95):
        edge, share = near(told, wanted)  # type: ignore[misc]
        assert share == pytest.approx(edge / 1000) and abs(share - wanted) < 0.03
        assert 20 <= edge <= 980
    assert near(of_numbers(np.ones(50), 20), 0.05) is None


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (
            Spec(
                Inputs(Kind.TABLE, (3,)),
                2,
                names=("n", "y"),
                reading=Reading(("age", "sex=f|m"), targets=("ill",)),
            ),
            ["age", "sex", "ill"],
        ),
        (Spec(Inputs(Kind.TABLE, (2,)), 3), ["0", "1", "label"]),
        (Spec.images((3, 4, 4), 2, (0.5,) * 3, (0.5,) * 3), ["channel 0", "channel 1", "channel 2", "label"]),
        (Spec(Inputs(Kind.TOKENS, (5,), 100), 2), ["label"]),
        (Spec(Inputs(Kind.TABLE, (1,)), 2, Target.LABELS, names=("a", "b")), ["0", "a", "b"]),
        (Spec(Inputs(Kind.TABLE, (1,)), 1, Target.VALUES, reading=Reading(("x",), targets=("y",))), ["x", "y"]),
    ],
)
def test_the_columns_that_are_described(spec: Spec, names: list[str]) -> None:
    assert [each.name for each in asked_of(spec)] == names
