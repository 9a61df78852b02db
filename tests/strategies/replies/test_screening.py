"""Screening: which replies of a round are used, in which order, and why the others are not."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import federation as fed
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import to_record, views
from strategies.replies.cohort import Cohort, Expected
from strategies.replies.reply_messages import messages_of
from strategies.replies.screening import screen
from strategies.replies.screening_settings import Screening

FACTOR, BURST = Screening().factor or 0.0, Screening().burst
"""The defaults, here and nowhere else in the tests."""

SENT: Model = {
    "a.weight": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "a.bias": np.array([0.5, -0.5], np.float32),
    "bn.running_var": np.array([1.0, 1.0], np.float32),
    "bn.num_batches_tracked": np.array([3]),
}
CLIENT = {name: array + array.dtype.type(1) for name, array in SENT.items()}
W = CLIENT["a.weight"]
BAD = 9  # the node whose reply is tampered with
GOOD = (4, 11)


def changed(**arrays: Any) -> Message:
    return fed.reply(BAD, CLIENT | {name.replace("__", "."): array for name, array in arrays.items()})


def counted(count: Any) -> Message:
    return fed.reply(BAD, CLIENT, count)


def with_array(array: Array) -> Message:
    record = ArrayRecord({**to_record(CLIENT), "a.weight": array})
    return fed.answer(BAD, {"arrays": record, "metrics": MetricRecord({"num-examples": 10})})


def with_bytes(data: bytes) -> Message:
    return with_array(Array("float64", (2, 2), "numpy.ndarray", data))


def npy(array: Any, version: tuple[int, int] = (1, 0), **options: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version, **options)
    return stream.getvalue()


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + W.tobytes()


def holding(value: float, name: str = "a.weight") -> Message:
    array = CLIENT[name].copy()
    array.flat[-1] = value
    return fed.reply(BAD, CLIENT | {name: array})


def without_content() -> Message:
    message = fed.reply(BAD, CLIENT)
    message.__dict__["_content"] = None
    return message


def records(arrays: int, metrics: int) -> Message:
    many: dict[str, Any] = {f"arrays{i}": to_record(CLIENT) for i in range(arrays)}
    many |= {f"metrics{i}": MetricRecord({"num-examples": 10}) for i in range(metrics)}
    return fed.answer(BAD, {**many, "config": ConfigRecord({"a": 1})})


BAD_REPLIES: dict[str, tuple[Callable[[], Message], str]] = {
    "error": (
        lambda: fed.failure(BAD, "Traceback\n  line 3\nValueError: boom\n", 2),
        "failed: ValueError: boom",
    ),
    "error without reason": (lambda: fed.failure(BAD, "", 7), "failed: no reason given (code 7)"),
    "error with a blank reason": (lambda: fed.failure(BAD, " \n ", 7), "failed: no reason given (code 7)"),
    "no content": (without_content, "the reply has no content"),
    "no records": (lambda: fed.answer(BAD, {}), "0 records of type MetricRecord"),
    "no arrays": (lambda: records(0, 1), "0 records of type ArrayRecord, expected one"),
    "two models": (lambda: records(2, 1), "2 records of type ArrayRecord, expected one"),
    "no metrics": (lambda: records(1, 0), "0 records of type MetricRecord, expected one"),
    "two metric records": (lambda: records(1, 2), "2 records of type MetricRecord, expected one"),
    "an empty model": (lambda: fed.reply(BAD, {}), "missing arrays: ['a.weight'"),
    "missing array": (
        lambda: fed.reply(BAD, {n: a for n, a in CLIENT.items() if n != "a.bias"}),
        "missing arrays: ['a.bias'], unexpected arrays: []",
    ),
    "extra array": (lambda: changed(extra=np.zeros(1)), "missing arrays: [], unexpected arrays: ['extra']"),
    "other shape": (
        lambda: changed(a__weight=np.zeros((4, 1))),
        "'a.weight' is float64(4, 1), the model has float64(2, 2)",
    ),
    "flat shape": (lambda: changed(a__weight=np.zeros(4)), "'a.weight' is float64(4,)"),
    "broadcastable shape": (lambda: changed(a__weight=np.zeros((1, 2))), "'a.weight' is float64(1, 2)"),
    "other dtype": (
        lambda: changed(a__weight=W.astype(np.float32)),
        "'a.weight' is float32(2, 2), the model has float64(2, 2)",
    ),
    "other byte order": (lambda: changed(a__weight=W.astype(">f8")), "'a.weight' is >f8(2, 2)"),
    "buffer of another dtype": (
        lambda: changed(bn__num_batches_tracked=np.array([3.0])),
        "'bn.num_batches_tracked' is float64(1,), the model has int64(1,)",
    ),
    "complex": (lambda: changed(a__weight=W.astype(np.complex128)), "'a.weight' is complex128"),
    "NaN": (lambda: holding(np.nan), "'a.weight' contains NaN, infinity or values too large to square"),
    "infinity": (lambda: holding(np.inf), "'a.weight' contains NaN, infinity or values too large to square"),
    "minus infinity": (
        lambda: holding(-np.inf, "a.bias"),
        "'a.bias' contains NaN, infinity or values too large to square",
    ),
    "absurd value": (lambda: holding(1e200), "'a.weight' contains NaN, infinity or values too large to square"),
    "NaN in a buffer": (lambda: holding(np.nan, "bn.running_var"), "'bn.running_var' contains NaN or infinity"),
    "infinity in a buffer": (
        lambda: holding(np.inf, "bn.running_var"),
        "'bn.running_var' contains NaN or infinity",
    ),
    "absurd norm": (
        lambda: holding(1e9),
        f"an update of norm 1e+09, more than {FACTOR:g} times 2.449, the largest median",
    ),
    "NaN examples": (lambda: counted(float("nan")), "num-examples = nan"),
    "infinite examples": (lambda: counted(float("inf")), "num-examples = inf"),
    "no examples": (lambda: counted(0), "num-examples = 0, expected 1e-09 to 1e+12 examples"),
    "hardly any examples": (lambda: counted(5e-324), "num-examples = 4.94066e-324, expected 1e-09"),
    "negative examples": (lambda: counted(-3), "num-examples = -3, expected 1e-09"),
    "absurd examples": (lambda: counted(10**13), "num-examples = 1e+13, expected 1e-09 to 1e+12"),
    "a list of examples": (lambda: counted([10, 20]), "num-examples = [10, 20], expected a number"),
    "examples not reported": (
        lambda: fed.answer(BAD, {"arrays": to_record(CLIENT), "metrics": MetricRecord({"loss": 1.0})}),
        "num-examples = None, expected a number of examples",
    ),
    "id that is no whole number": (lambda: fed.reply(BAD, CLIENT, 10, {"client-id": 1.5}), "client-id = 1.5"),
    "list of ids": (lambda: fed.reply(BAD, CLIENT, 10, {"client-id": [1]}), "client-id = [1]"),
    "no bytes": (lambda: with_bytes(b""), "arrays that cannot be read"),
    "garbage": (lambda: with_bytes(b"\x00garbage" * 40), "arrays that cannot be read"),
    "cut short": (lambda: with_bytes(npy(W)[:-5]), "arrays that cannot be read"),
    "cut in the header": (lambda: with_bytes(npy(W)[:20]), "arrays that cannot be read"),
    "too many bytes": (lambda: with_bytes(npy(W) + b"12345678"), "arrays that cannot be read"),
    "a pickle": (lambda: with_bytes(b"\x80\x04\x95cos\nsystem\n."), "arrays that cannot be read"),
    "an odd header": (lambda: with_bytes(header("{[]: 1}")), "arrays that cannot be read"),
    "a bottomless header": (lambda: with_bytes(header("-" * 5000 + "1")), "arrays that cannot be read"),
    "objects": (
        lambda: with_bytes(npy(np.array([[1, "a"], [None, 2]], object), allow_pickle=True)),
        "array of Python objects",
    ),
    "shape that lies": (
        lambda: with_bytes(npy(np.zeros((3, 3)))),
        "declared as float64(2, 2) holds float64(3, 3)",
    ),
    "dtype that lies": (
        lambda: with_bytes(npy(np.zeros((2, 2), np.int64))),
        "declared as float64(2, 2) holds int64",
    ),
    "other kind of array": (
        lambda: with_array(Array("float64", (2, 2), "torch.Tensor", npy(W))),
        "array of type 'torch.Tensor'",
    ),
    "other .npy version": (lambda: with_bytes(npy(W, (3, 0))), "array in .npy format (3, 0)"),
}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", BAD_REPLIES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_reply_is_rejected_with_its_reason_and_the_good_ones_are_used(name: str, place: int) -> None:
    make, reason = BAD_REPLIES[name]
    arrived = [fed.reply(node, CLIENT, node) for node in GOOD]
    arrived.insert(place, make())
    before = [fed.fingerprint(message) if message.__dict__["_content"] else None for message in arrived]
    cohort = screen(arrived, SENT)
    assert [reply.node_id for reply in cohort.replies] == list(GOOD)
    assert [item.node_id for item in cohort.rejected] == [BAD]
    assert reason in cohort.rejected[0].reason
    assert cohort.shares("examples") == pytest.approx([4 / 15, 11 / 15])
    assert [fed.bits(model) for model in cohort.models] == [fed.bits(CLIENT)] * 2
    after = [fed.fingerprint(message) if message.__dict__["_content"] else None for message in arrived]
    assert after == before


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_all_bad_replies_at_once() -> None:
    arrived = [make() for make, _ in BAD_REPLIES.values()]
    cohort = screen(arrived, SENT)
    assert len(cohort) + len(cohort.rejected) == len(arrived)
    assert len(cohort) == 0  # the absurd norm is measured by the model


def test_a_reason_stays_short() -> None:
    cohort = screen([fed.failure(1, "x" * 10_000)], SENT)
    assert len(cohort.rejected[0].reason) < 600


def test_what_is_rejected_is_sorted_by_node() -> None:
    cohort = screen([fed.failure(node) for node in (5, 2, 9)], SENT)
    assert [item.node_id for item in cohort.rejected] == [2, 5, 9]


def test_no_replies() -> None:
    cohort = screen([], SENT)
    assert (len(cohort), cohort.rejected, cohort.metrics()) == (0, (), {})


# ---------------------------------------------------------------- the length of updates


def moved(*lengths: float, factor: float | None = 1000.0) -> Cohort:
    sent = {"a": np.zeros(1)}
    return screen(
        [fed.reply(node, {"a": np.array([length])}) for node, length in enumerate(lengths, 1)],
        sent,
        screening=Screening(factor=factor),
    )


@pytest.mark.parametrize(
    ("lengths", "used"),
    [
        ((1.0, 1.0, 1000.0), 3),
        ((1.0, 1.0, 1000.1), 2),
        ((1.0, 1.0, -1000.1), 2),
        ((1.0, 2.0, 3.0, 1999.0), 4),  # of four, the smaller of the two in the middle
        ((1.0, 2.0, 3.0, 2001.0), 3),
        ((1e-9, 1e-9, 1e-5), 2),
        ((0.0, 0.0, 1e9), 3),  # median 0: nothing is known
        ((0.0, 1.0, 999.0), 3),
        ((1.0, 1e9), 1),
        ((1e9,), 1),  # alone, and the model is 0: nothing is known
    ],
)
def test_an_update_beyond_1000_medians_is_rejected(lengths: tuple[float, ...], used: int) -> None:
    cohort = moved(*lengths)
    assert (len(cohort), len(cohort.rejected)) == (used, len(lengths) - used)


def among(learnt: Mapping[str, float], *lengths: float, clip: float | None = None) -> Cohort:
    """A round in which client 0 makes a step of each length, among two others of length 1."""
    replies = [fed.reply(n, {"a": np.array([x])}) for n, x in enumerate((*lengths, 1.0, 1.0))]
    return screen(replies, {"a": np.zeros(1)}, learnt=learnt, screening=Screening(clip=clip))


def longest(learnt: Mapping[str, float]) -> float:
    """The longest step of client 0 that is used."""
    return max(
        (x for x in (1.0, FACTOR, FACTOR + 0.01, BURST, BURST + 0.01) if len(among(learnt, x)) == 3), default=0.0
    )


def test_a_client_whose_last_three_updates_were_within_the_factor_may_have_a_longer_one() -> None:
    learnt: Mapping[str, float] = {}
    bounds = []
    for step in (FACTOR, FACTOR, FACTOR + 1.0, *[1.0] * 4, BURST, 1.0):
        bounds.append(longest(learnt))
        learnt = among(learnt, step).learnt
    # The rejected step ends the row; so does the accepted long one.
    assert bounds == [FACTOR] * 6 + [BURST] * 2 + [FACTOR]
    assert learnt == {"the model": 1.0, "within/0": 1, "within/1": 3, "within/2": 3}
    rejected = among({"the model": 1.0, "within/0": 3.0}, BURST + 1.0).rejected
    assert (
        f"more than {BURST:g} times 1, the largest median of a round so far (screening.burst)"
        in rejected[0].reason
    )


def test_only_replies_of_the_client_itself_count() -> None:
    learnt = {"the model": 1.0, "within/0": 2.0, "within/1": 3.0}
    assert longest(learnt) == FACTOR
    away = screen([fed.reply(n, {"a": np.ones(1)}) for n in (1, 2)], {"a": np.zeros(1)}, learnt=learnt)
    assert away.learnt == {"the model": 1.0, "within/0": 2.0, "within/1": 3.0, "within/2": 1.0}


def test_a_burst_below_the_factor_allows_nothing_more() -> None:
    replies = [fed.reply(n, {"a": np.array([x])}) for n, x in enumerate((19.0, 1.0, 1.0))]
    learnt = {"the model": 1.0, "within/0": 3.0}
    for factor, used in ((20.0, 3), (18.0, 2), (None, 3)):
        cohort = screen(replies, {"a": np.zeros(1)}, learnt=learnt, screening=Screening(factor=factor, burst=2.0))
        assert len(cohort) == used


def test_with_clip_the_row_is_counted_too() -> None:
    learnt: Mapping[str, float] = {}
    for _ in range(4):
        learnt = among(learnt, 1.0, clip=1.0).learnt
    cohort = among(learnt, 1e9, clip=1.0)
    assert cohort.replies[0].length == pytest.approx(10.0)
    assert cohort.learnt == {"the model": 1.0, "within/1": 3, "within/2": 3}


def test_the_default_holds_in_the_first_round() -> None:
    sent = {"a": np.zeros(1)}
    replies = [
        fed.reply(node, {"a": np.array([x])}) for node, x in enumerate((1.0, 1.0, FACTOR, 1.0, -FACTOR - 0.01), 1)
    ]
    cohort = screen(replies, sent)
    assert [item.node_id for item in cohort.rejected] == [5]
    assert cohort.learnt == {"the model": 1.0, "within/1": 1, "within/2": 1, "within/3": 1, "within/4": 1}


def test_what_was_learnt_holds_with_two_clients_and_with_one() -> None:
    sent = {"a": np.zeros(1)}
    learnt = screen([fed.reply(n, {"a": np.ones(1)}) for n in (1, 2)], sent).learnt
    for hostile in (1e30, -100.0, 10.1, 1e-12):
        replies = [fed.reply(1, {"a": np.array([1.5])}), fed.reply(2, {"a": np.array([hostile])})]
        used = screen(replies, sent, learnt=learnt)
        assert [reply.node_id for reply in used.replies] == ([1] if abs(hostile) > 1 else [1, 2])
        assert used.learnt["the model"] == (1.5 if abs(hostile) > 1 else 1.0)
    assert len(screen([fed.reply(2, {"a": np.array([1e30])})], sent, learnt=learnt)) == 0


def test_in_the_first_round_with_two_clients_the_model_itself_is_the_measure() -> None:
    sent = {"a": np.full(4, 5.0)}  # of norm 10
    honest = {"a": sent["a"] + np.array([1.0, 0.0, 0.0, 0.0])}
    for factor, used in ((1e30, [1]), (-900.0, [1]), (-10.0, [1]), (1e-9, [1, 2]), (1.0, [1, 2])):
        hostile = {"a": sent["a"] + factor * (honest["a"] - sent["a"])}
        cohort = screen([fed.reply(1, honest), fed.reply(2, hostile)], sent)
        assert [reply.node_id for reply in cohort.replies] == used, factor


def test_the_factor_may_be_chosen() -> None:
    assert len(moved(1.0, 1.0, 11.0, factor=10.0)) == 2
    assert len(moved(1.0, 1.0, 9.0, factor=10.0)) == 3
    assert len(moved(1.0, 1.0, 1e15, factor=None)) == 3


def test_a_reply_rejected_for_another_reason_does_not_shift_the_median() -> None:
    sent = {"a": np.zeros(1)}
    replies = [fed.reply(n, {"a": np.array([x])}, 10) for n, x in enumerate((1.0, 1.0, 4.0), 1)]
    broken = [fed.reply(n, {"a": np.array([1e-6])}, 0) for n in (4, 5, 6, 7)]
    assert len(screen(replies + broken, sent)) == 3


def test_lengths_are_over_parameters_only() -> None:
    other = CLIENT | {"bn.num_batches_tracked": np.array([10**9]), "bn.running_var": np.full(2, 3.0, np.float32)}
    cohort = screen([fed.reply(1, CLIENT), fed.reply(2, CLIENT), fed.reply(3, other)], SENT)
    assert [reply.length for reply in cohort.replies] == pytest.approx([6.0**0.5] * 3)


def test_buffers_have_a_bound_of_their_own() -> None:
    """BatchNorm's statistics are in no norm of the papers, but one client could destroy a model with them."""
    far = CLIENT | {"bn.running_var": np.full(2, 1e9, np.float32)}
    cohort = screen([fed.reply(1, CLIENT), fed.reply(2, CLIENT), fed.reply(3, far)], SENT)
    assert [item.node_id for item in cohort.rejected] == [3]
    assert (
        f"a change of the buffers of norm 1.414e+09, more than {FACTOR:g} times 1.414" in cohort.rejected[0].reason
    )


# ---------------------------------------------------------------- shorter updates, lower counts

LINE = {"a": np.zeros(2), "running_var": np.array([1.0, 1.0])}


def stepping(*lengths: float, buffers: float = 1.0) -> list[Message]:
    return [
        fed.reply(n, {"a": np.array([0.6, -0.8]) * x, "running_var": np.array([1.0, 1.0 + buffers])}, n)
        for n, x in enumerate(lengths, 1)
    ]


@pytest.mark.parametrize(("clip", "want"), [(0.5, [1.0, 2.0, 2.0]), (0.3, [1.0] * 3), (1.0, [1.0, 2.0, 10.0])])
def test_long_updates_are_shortened_to_a_quantile(clip: float, want: list[float]) -> None:
    """And to the bound at most: here 5 times the median 2."""
    cohort = screen(stepping(1.0, 2.0, 1e9), LINE, screening=Screening(clip=clip))
    assert [reply.length for reply in cohort.replies] == pytest.approx(want)
    for reply, length in zip(cohort.replies, want, strict=True):
        np.testing.assert_allclose(reply.model["a"], np.array([0.6, -0.8]) * length)
        np.testing.assert_array_equal(reply.model["running_var"], [1.0, 2.0])
    changed = sum(length < 1e9 and length != before for length, before in zip(want, (1.0, 2.0, 1e9), strict=True))
    assert cohort.counts() == {"screening/rejected": 0, "screening/changed": changed}
    assert cohort.replies[2].notes == (f"an update of norm 1e+09 was shortened to {want[2]:g} (screening.clip)",)
    assert cohort.replies[0].notes == ()


def test_a_strategy_inside_sees_the_shortened_update() -> None:
    cohort = screen(stepping(1.0, 2.0, 1e9), LINE, screening=Screening(clip=0.5))
    inside = [views(message.content["arrays"]) for message in messages_of(cohort)]
    np.testing.assert_allclose([np.linalg.norm(model["a"]) for model in inside], [1.0, 2.0, 2.0])


def test_what_is_not_finite_is_rejected_with_clip_too() -> None:
    cohort = screen(stepping(1.0, 2.0, math.inf), LINE, screening=Screening(clip=0.5))
    assert [item.node_id for item in cohort.rejected] == [3]


def test_a_share_of_weight_has_a_bound() -> None:
    model = {"a": np.ones(2), "running_var": np.ones(2)}
    replies = [fed.reply(n, model, count) for n, count in ((1, 1), (2, 3), (3, 10**12))]
    cohort = screen(replies, LINE, screening=Screening(max_share=0.5))
    assert cohort.shares("examples") == pytest.approx([1 / 8, 3 / 8, 1 / 2])
    assert cohort.replies[2].notes == ("1e+12 examples count as 4 (screening.max_share)",)
    metrics = [message.content["metrics"]["num-examples"] for message in messages_of(cohort)]
    assert metrics == [1, 3, pytest.approx(4.0)]
    assert screen(replies, LINE).shares("examples")[2] == pytest.approx(1.0)


def test_large_but_honest_float32_values_are_used() -> None:
    sent = {"a": np.zeros(2, np.float32)}
    assert len(screen([fed.reply(1, {"a": np.full(2, 3e38, np.float32)})], sent)) == 1


def test_absurd_values_raise_nowhere_even_where_numpy_is_told_to() -> None:
    sent = {"a": np.zeros(2)}
    replies = [fed.reply(1, {"a": np.array([1e200, 1.0])}), fed.reply(2, {"a": np.array([np.inf, 1.0])})]
    with np.errstate(all="raise"):
        assert len(screen(replies, sent)) == 0


# ---------------------------------------------------------------- order, names, counts


def test_replies_are_ordered_by_client_id_and_then_by_node() -> None:
    ids = {1: 30, 2: 10, 3: 20, 4: 20}
    arrived = [fed.reply(node, CLIENT, 10, {"client-id": ids[node]}) for node in (4, 1, 3, 2)]
    cohort = screen(arrived, SENT)
    assert [(reply.client_id, reply.node_id) for reply in cohort.replies] == [(10, 2), (20, 3), (20, 4), (30, 1)]


def test_a_client_without_an_id_is_known_by_its_node() -> None:
    arrived = [fed.reply(5, CLIENT), fed.reply(2, CLIENT, 10, {"client-id": 9}), fed.reply(7, CLIENT)]
    assert [reply.client_id for reply in screen(arrived, SENT).replies] == [5, 7, 9]


def test_arrays_in_another_order_are_put_into_the_models() -> None:
    shuffled = dict(reversed(CLIENT.items()))
    (model,) = screen([fed.reply(1, shuffled)], SENT).models
    assert fed.bits(model) == fed.bits(CLIENT)


def test_fortran_order_is_read_right() -> None:
    (model,) = screen([changed(a__weight=np.asfortranarray(W))], SENT).models
    np.testing.assert_array_equal(model["a.weight"], W)


def test_views_are_read_only() -> None:
    (model,) = screen([fed.reply(1, CLIENT)], SENT).models
    with pytest.raises(ValueError, match="read-only"):
        model["a.weight"][0, 0] = 1.0


def test_records_may_have_any_name() -> None:
    reported = {"weights": to_record(CLIENT), "facts": MetricRecord({"num-examples": 10})}
    assert len(screen([fed.answer(1, reported)], SENT)) == 1


def test_the_count_may_have_another_name() -> None:
    reported = {"arrays": to_record(CLIENT), "metrics": MetricRecord({"pixels": 7.5})}
    (reply,) = screen([fed.answer(1, reported)], SENT, weighted_by_key="pixels").replies
    assert reply.num_examples == 7.5
    assert len(screen([fed.reply(1, CLIENT)], SENT, weighted_by_key="pixels")) == 0


@pytest.mark.parametrize("count", [1, 10**12, 0.25, 1e12])
def test_plausible_counts_are_used(count: float) -> None:
    assert len(screen([counted(count)], SENT)) == 1


# ---------------------------------------------------------------- metrics


def test_metrics_are_put_together_by_name() -> None:
    reported = [
        {"train/loss": 1.0, "fednlr/rate_min/fc": 0.1, "fednlr/rate_max/fc": 1.0, "curve": [1.0, 2.0]},
        {"train/loss": 2.0, "fednlr/rate_min/fc": 0.2, "fednlr/rate_max/fc": 3, "curve": [3.0, 4.0]},
    ]
    cohort = screen(
        [fed.reply(n, CLIENT, 10 * n, {"client-id": n, **one}) for n, one in enumerate(reported, 1)], SENT
    )
    assert cohort.metrics() == {
        "train/loss": pytest.approx(5 / 3),
        "fednlr/rate_min/fc": 0.1,
        "fednlr/rate_max/fc": 3.0,
        "curve": pytest.approx([7 / 3, 10 / 3]),
    }
    assert cohort.metrics("uniform")["train/loss"] == pytest.approx(1.5)


def test_only_metrics_that_most_report_in_one_form_are_used() -> None:
    reported: list[dict[str, Any]] = [
        {"both": 1.0, "one": 1.0, "form": [1.0], "length": [1.0, 2.0], "kind": 1},
        {"both": 2.0, "two": 1.0, "form": 1.0, "length": [1.0], "kind": 2.0},
    ]
    cohort = screen([fed.reply(n, CLIENT, 10, metrics) for n, metrics in enumerate(reported, 1)], SENT)
    assert all(
        list(message.content["metrics"]) == ["num-examples", "both", "kind"] for message in messages_of(cohort)
    )
    assert list(cohort.metrics()) == ["both", "kind"]


def test_metrics_that_are_not_finite_never_raise() -> None:
    values = (math.inf, -math.inf, math.nan)
    cohort = screen([fed.reply(n, CLIENT, 10, {"loss": x}) for n, x in enumerate(values, 1)], SENT)
    assert cohort.metrics() == {}
    cohort = screen([fed.reply(n, CLIENT, 10, {"loss": x}) for n, x in enumerate((10**400, 1), 1)], SENT)
    assert cohort.metrics() == {}
    assert len(screen([fed.reply(1, CLIENT, 10**5000)], SENT)) == 0


# ---------------------------------------------------------------- for the strategy inside a wrapper


def test_accepted_messages_agree_in_keys_and_order_and_are_copies() -> None:
    arrived = [
        fed.reply(2, dict(reversed(CLIENT.items())), 20, {"extra": 1.0, "loss": 2.0}),
        fed.reply(1, CLIENT, 10, {"loss": 1.0}),
    ]
    before = [fed.fingerprint(message) for message in arrived]
    cohort = screen(arrived, SENT)
    accepted = messages_of(cohort)
    assert [message.metadata.src_node_id for message in accepted] == [1, 2]
    for message, loss in zip(accepted, (1.0, 2.0), strict=True):
        assert dict(message.content["metrics"]) == {"num-examples": 10 * loss, "loss": loss}
        assert list(message.content["arrays"]) == list(SENT)
        message.content["arrays"].pop("a.weight")
        message.content["metrics"]["loss"] = 7.0
        message.content["new"] = ConfigRecord()
    assert [fed.fingerprint(message) for message in arrived] == before


def test_of_no_reply_there_is_no_message() -> None:
    assert messages_of(screen([], SENT)) == []


# ---------------------------------------------------------------- whatever a client sends


@pytest.mark.filterwarnings("ignore::UserWarning")  # numpy's reader of odd headers
@fed.PROPERTY
@given(st.tuples(*(fed.anything(node, CLIENT) for node in (1, 2, 3))))
def test_screening_never_raises_and_lets_only_usable_replies_through(arrived: tuple[Message, ...]) -> None:
    before = [fed.fingerprint(message) for message in arrived]
    with np.errstate(all="ignore"):
        cohort = screen(arrived, SENT)
    nodes = [reply.node_id for reply in cohort.replies] + [item.node_id for item in cohort.rejected]
    assert sorted(nodes) == [1, 2, 3]
    for reply in cohort.replies:
        assert 0 < reply.num_examples <= 10**12
        assert list(reply.model) == list(SENT)
        for name, array in reply.model.items():
            assert (array.dtype, array.shape) == (SENT[name].dtype, SENT[name].shape)
            assert np.isfinite(array).all()
    assert all(item.reason for item in cohort.rejected)
    assert [fed.fingerprint(message) for message in arrived] == before


# ---------------------------------------------------------------- what was asked for in addition to the model


ASKED = Expected(("scaffold",), {"scaffold.delta": {"w": np.zeros(2)}})


def reply_with_delta(node: int, delta: Any, **metrics: Any) -> Message:
    reported = MetricRecord({"num-examples": 10, "done/scaffold": 1, **metrics})
    more = {} if delta is None else {"scaffold.delta": to_record({"w": np.asarray(delta)})}
    return fed.answer(node, {"arrays": to_record(CLIENT), **more, "metrics": reported})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (reply_with_delta(BAD, None), "the requested record 'scaffold.delta' is missing"),
        (reply_with_delta(BAD, [1.0, math.nan]), "scaffold.delta: 'w' contains NaN"),
        (reply_with_delta(BAD, [1.0]), "'w' is float64(1,), the model has float64(2,)"),
        (reply_with_delta(BAD, [1e9, 0.0]), "a record 'scaffold.delta' of norm 1e+09"),
    ],
)
def test_a_record_that_was_asked_for_is_screened(message: Message, said: str) -> None:
    good = [reply_with_delta(node, [1.0, 1.0]) for node in GOOD]
    cohort = screen([*good, message], SENT, expected=ASKED)
    assert [reply.node_id for reply in cohort.replies] == list(GOOD)
    assert [item.node_id for item in cohort.rejected] == [BAD] and said in cohort.rejected[0].reason


def test_all_arrays_of_a_record_count_in_its_length() -> None:
    """Also those that would be buffers in a model, by their name or dtype."""
    asked = Expected((), {"more": {"w": np.zeros(2), "n": np.zeros(2, np.int64), "running_mean": np.zeros(2)}})

    def answer(node: int, name: str = "w", value: float = 1.0) -> Message:
        record = {key: array + 1 for key, array in asked.returns["more"].items()}
        record[name] = np.full(2, value).astype(record[name].dtype)
        reported = MetricRecord({"num-examples": 10})
        return fed.answer(node, {"arrays": to_record(CLIENT), "more": to_record(record), "metrics": reported})

    for name in asked.returns["more"]:
        cohort = screen([*map(answer, GOOD), answer(BAD, name, 1e6)], SENT, expected=asked)
        assert [item.node_id for item in cohort.rejected] == [BAD]
        assert cohort.replies[0].extra_lengths == {"more": pytest.approx(6**0.5)}
    assert screen([*map(answer, GOOD), answer(BAD)], SENT, expected=asked).rejected == ()


def test_thousands_of_records_are_rejected_in_one_line() -> None:
    many = {f"x/{i}/../scaffold.delta": to_record(CLIENT) for i in range(5000)}
    message = fed.answer(BAD, {"metrics": MetricRecord({"num-examples": 10}), "arrays": to_record(CLIENT), **many})
    cohort = screen([reply_with_delta(GOOD[0], [1.0, 1.0]), message], SENT, expected=ASKED)
    assert len(cohort) == 1 and len(cohort.rejected[0].reason) < 600


@pytest.mark.parametrize("said", [math.nan, math.inf, 0, 2, -1, 1.5, [1], [1.0, 1.0], None])
def test_done_is_one_and_nothing_else(said: Any) -> None:
    odd = {"done/scaffold": said} if said is not None else {}
    replies = [reply_with_delta(GOOD[0], [1.0, 1.0]), reply_with_delta(GOOD[1], [1.0, 1.0], **odd)]
    if said is None:
        del replies[1].content["metrics"]["done/scaffold"]
    cohort = screen(replies, SENT, expected=ASKED)
    assert cohort.not_done == {"scaffold": [GOOD[1]]}
    assert cohort.counts() == {"screening/rejected": 0, "screening/not_done": 1}
    assert "done/scaffold" not in cohort.metrics()


def test_the_screens_own_figures_are_not_for_clients_to_say() -> None:
    """All of them report that nobody left out anything, under a rule that asks for nothing."""
    lies = {"screening/not_done": 7, "screening/odd": 1.0, "mood": 2.0}
    cohort = screen([fed.reply(node, CLIENT, metrics=lies) for node in GOOD], SENT)
    assert cohort.metrics() == {"mood": 2.0}
    assert all(list(m.content["metrics"]) == ["num-examples", "mood"] for m in messages_of(cohort))
