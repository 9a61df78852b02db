"""The bytes of a signed run: written in one way, read back exactly, and refused in any other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from fedstride.messages.signed_runs import (
    DOMAIN,
    MessageContent,
    MessageForm,
    SignedTerms,
    Terms,
    load,
    parse_body,
    same,
    to_sign,
)
from fedstride.messages.varying_values import Varies

NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
VALUES = NUMBERS | st.text() | st.lists(st.text()) | st.lists(st.floats(-1, 1)) | st.lists(st.integers(-9, 9))
FORM = MessageForm(
    "training",
    "train",
    {"lr": 0.1, "names": ["a"]},
    {"server-round": Varies("int", 1, 3, rises=True)},
    {"arrays": "0" * 64},
)
TERMS = Terms(
    app="0" * 64,
    run_config={"overrides": "rounds=3"},
    run="0" * 16,
    resumes=False,
    rounds=3,
    messages=4,
    forms=(FORM,),
    nodes=(),
    nonce="0" * 32,
    signed_at=1_000_000,
    expires=1_086_400,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(), VALUES), st.dictionaries(st.text(), VALUES))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_what_is_signed_is_read_back_with_the_same_types(one: dict[str, Any], other: dict[str, Any]) -> None:
    forms = (
        MessageForm("a", "query", one, {}, {}),
        MessageForm("b", "train", one | other, {}, {"x": "y"}, ("x",)),
    )
    found = parse_body(replace(TERMS, forms=forms).body())
    assert found.body() == replace(TERMS, forms=forms).body() and found.body().isascii()
    for form, read in zip(forms, found.forms, strict=True):
        assert read.fixed.keys() == form.fixed.keys()
        assert all(same(read.fixed[key], form.fixed[key]) for key in form.fixed)
        assert read.differences(MessageContent(form.kind, form.fixed, {})) == []


def test_the_bytes_that_are_signed_begin_with_a_word_of_their_own() -> None:
    assert to_sign("{}") == b"fedstride-run-v1\0{}" and DOMAIN.endswith(b"\0")


def altered(**change: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(TERMS.body())
    return values | change


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1}, {"app": "0"}, {"app": 1}, {"run": "x" * 16}, {"nonce": ""}, {"rounds": -1}, {"rounds": 1.0},
        {"rounds": True}, {"rounds": 10**9}, {"messages": -1}, {"resumes": 1}, {"run_config": {"a": 1}},
        {"run_config": []}, {"nodes": ["x"]}, {"nodes": "x"}, {"nodes": 1}, {"forms": []}, {"forms": {}},
        {"expires": 999_999}, {"expires": 1_000_000 + 31 * 86400}, {"signed_at": None},
        {"forms": {"all": {}, "each": []}}, {"forms": {"all": {}, "each": [{}]}},
        {"forms": {"all": [], "each": [1]}},
    ],
)  # fmt: skip
def test_other_values_are_refused_with_one_line(change: dict[str, Any]) -> None:
    text = json.dumps(altered(**change), sort_keys=True, separators=(",", ":"))
    with pytest.raises(ConfigError) as caught:
        parse_body(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["varies", "both", "twice", "optional", "infinite"])
def test_forms_that_are_none(change: str) -> None:
    values = json.loads(TERMS.body())
    form = values["forms"]["each"][0]
    if change == "varies":
        form["varies"]["server-round"]["kind"] = "text"
    elif change == "both":
        form["fixed"]["server-round"] = 1
    elif change == "twice":
        values["forms"]["each"].append(form)
    elif change == "optional":
        form["optional"] = ["more"]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    if change == "infinite":
        text = text.replace("0.1", "Infinity")
    with pytest.raises(ConfigError):
        parse_body(text)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(json.loads(TERMS.body())),  # with blanks
        TERMS.body().replace('"rounds":3', '"rounds":3,"rounds":3'),
        TERMS.body().replace("0.1", "0.10"),
        TERMS.body().replace("0.1", "1e-1"),
        TERMS.body() + " ",
        "[" * 10_000,
        "null",
        "1" * 10_000,
    ],
)
def test_another_text_of_the_same_values_is_refused(body: str) -> None:
    with pytest.raises(ConfigError):
        parse_body(body)


@pytest.mark.parametrize("text", ["", None, 1, "a b c d", "fedstride-run-2 a b c", "x" * 2**21])
def test_a_text_that_is_no_signed_run(text: object) -> None:
    with pytest.raises(ConfigError, match="not a signed run of the format fedstride-run-1"):
        load(text)


def test_a_signed_run_travels_as_one_line() -> None:
    found = SignedTerms(TERMS, f"fpk_{'0' * 32}", f"{'A' * 86}==", TERMS.body())
    assert load(found.dump()) == found and "\n" not in found.dump()
    for bad in (found._replace(key="fpk"), found._replace(signature="A")):
        with pytest.raises(ConfigError, match="another form"):
            load(bad.dump())


@pytest.mark.parametrize(
    ("varies", "allowed", "refused"),
    [
        (Varies("int", 1, 3), [1, 3], [0, 4, 1.0, True, [1], "1", None, 2**70]),
        (Varies("float", 0.0, 1.0), [0.0, 1.0, -0.0], [1, True, 1.1, float("nan"), float("inf"), [0.5]]),
        (Varies("float", 0.0, 1.0, most_values=2), [[], [0.5], [0.0, 1.0]], [0.5, [1], [0.5] * 3, (0.5,), [None]]),
    ],
)
def test_what_varies(varies: Varies, allowed: list[Any], refused: list[Any]) -> None:
    assert all(map(varies.allows, allowed)) and not any(map(varies.allows, refused))
    assert Varies.of(varies.plain()) == varies


@pytest.mark.parametrize(
    "change", [{"kind": "str"}, {"kind": []}, {"least": 1.0}, {"most_values": 0}, {"once": 1}]
)
def test_a_range_that_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Varies.of(Varies("int", 1, 3).plain() | change)
