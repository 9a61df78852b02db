"""Overrides as text: Flower's flat run config, wrappers in the papers' order, Hydra's grammar."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.settings import fields_of
from server_app.config.grammar import as_value, quote
from server_app.config.overrides import (
    NO_SETTINGS,
    Override,
    expand_wrappers,
    overrides_of,
    parse,
    parts_in,
    with_parts,
)
from server_app.config.schema import GROUPS, Config
from strategies.registry import STRATEGIES

ROOT = Path(__file__).parents[3]


def texts(overrides: list[Override]) -> list[str]:
    return [override.text for override in overrides]


KEYS = {*GROUPS, *fields_of(Config), "overrides"} - {"presets"}


# ---------------------------------------------------------------- Flower's run config


def test_empty_values_are_not_given() -> None:
    assert overrides_of(dict.fromkeys(KEYS, "")) == []
    assert overrides_of({}) == []
    assert overrides_of({"rounds": None}) == []


def test_who_submitted_is_no_setting() -> None:
    assert texts(overrides_of({wire.SUBMISSION: "anna@desk 3f", "rounds": 5})) == ["rounds=5"]


def test_the_declared_run_config_asks_for_the_quickstart() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert set(declared) <= {*KEYS, *NO_SETTINGS}
    assert texts(overrides_of(declared)) == ["experiment=quickstart"]


def test_named_keys_come_first_then_the_overrides() -> None:
    given_ = {"overrides": "rounds=9 client.lr=0.02", "strategy": "fedlws", "rounds": 5}
    assert texts(overrides_of(given_)) == ["strategy=fedlws", "rounds=5", "rounds=9", "client.lr=0.02"]


def test_zero_is_given() -> None:
    assert texts(overrides_of({"rounds": 0, "seed": 0})) == ["rounds=0", "seed=0"]


def test_numbers_and_wrappers_pass_as_they_are() -> None:
    given_ = {"strategy": "fednnnn+fedlws", "rounds": 7, "seed": 2**62}
    assert texts(overrides_of(given_)) == ["strategy=fednnnn+fedlws", "rounds=7", f"seed={2**62}"]


def test_quoted_overrides_may_contain_spaces() -> None:
    got = texts(overrides_of({"overrides": "out=\"'/tmp/my runs'\" strategy.fixed='[1, 0.9]'"}))
    assert got == ["out='/tmp/my runs'", "strategy.fixed=[1, 0.9]"]


@pytest.mark.parametrize("key", ["strateg", "round", "batch", "client.lr", "Seed"])
def test_an_unknown_run_config_key_is_rejected(key: str) -> None:
    with pytest.raises(
        ConfigError, match=f"unknown run-config key '{key}'.*Known: .*overrides, .*strategy, target, task"
    ):
        overrides_of({key: 1})


def test_every_known_key_is_named_once() -> None:
    with pytest.raises(ConfigError) as caught:
        overrides_of({"zzz": 1})
    assert str(caught.value) == f"unknown run-config key 'zzz'. Known: {', '.join(sorted(KEYS))}"


@pytest.mark.parametrize(
    ("key", "meant"), [("strateg", "strategy"), ("round", "rounds"), ("override", "overrides")]
)
def test_similar_keys_are_suggested_for_an_unknown_run_config_key(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
        overrides_of({key: ""})


@pytest.mark.parametrize("value", [3, 0.5, True])
def test_overrides_must_be_a_string(value: object) -> None:
    with pytest.raises(ConfigError, match=f"overrides = {value!r} is not allowed: it must be a string"):
        overrides_of({"overrides": value})


def test_overrides_with_an_open_quote() -> None:
    with pytest.raises(ConfigError, match="cannot be read: No closing quotation"):
        overrides_of({"overrides": "out='/tmp/a"})


# ---------------------------------------------------------------- quoting


def there_and_back(value: object) -> object:
    (override,) = parse([f"out={quote(value)}"])
    return as_value(override.value)


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/my runs",
        "/tmp/it's",
        'say "so"',
        "/data/run-1",
        "~/runs",
        "a,b",
        "a=b",
        "[x]",
        "{x: 1}",
        "(x)",
        "a:b",
        "#1",
        "100%",
        "/home/jürgen/läufe",
        " lead and trail ",
        "runs/2024.10",
        "*",
    ],
)
def test_a_path_is_read_back_unchanged(path: str) -> None:
    assert there_and_back(path) == path


SIGNS = st.text(alphabet="abcXYZ019 /_-'\"=,:;()[]{}*?!@#%&~äß.", min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(SIGNS)
@example("/'")
@example("''")
@example("\"'/")
def test_any_path_is_read_back_unchanged(text: str) -> None:
    assert there_and_back(f"/x/{text}") == f"/x/{text}"


@pytest.mark.parametrize(
    "text",
    ["1.10", "1e3", "1_000", "007", "true", "null", "NULL", "nan", "Müller", "日本", "C:\\Users\\x", "a\\", "\\'"],
)
def test_any_folder_name_is_read_back_unchanged(text: str) -> None:
    (override,) = parse([f"out={quote(text)}"])
    assert override.value == text


@pytest.mark.parametrize("value", [5, -3, 0.25, 1e-7, True, False])
def test_numbers_and_truth_keep_their_type(value: object) -> None:
    back = there_and_back(value)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("value", [None, [1.0, 0.9], [None, "a b", "it's"], []])
def test_lists_and_none_are_read_back_unchanged(value: object) -> None:
    assert there_and_back(value) == value


# ---------------------------------------------------------------- wrappers


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("strategy=fedavg", {"strategy": "fedavg"}),
        ("strategy=fednnnn+fedlws", {"strategy": "fedlws", "strategy.inner": "fednnnn"}),
        ("strategy='fednnnn+fedlws'", {"strategy": "fedlws", "strategy.inner": "fednnnn"}),
        (
            "strategy=fednnnn+fedlws+two_d_lrd",
            {"strategy": "two_d_lrd", "strategy.inner": "fedlws", "strategy.inner.inner": "fednnnn"},
        ),
        ("out=a+b", {"out": "a+b"}),
        ("client.lr=1", {"client.lr": "1"}),
    ],
)
def test_wrappers_are_written_from_the_outside_in(text: str, expanded: dict[str, str]) -> None:
    assert {each.place: each.name for each in expand_wrappers(parse([text]))} == expanded


@pytest.mark.parametrize(("text", "bad"), [("fedlws+fedavg", "fedavg"), ("a+fedlw", "fedlw"), ("fedavg+", "")])
def test_only_wrappers_are_allowed_after_a_plus(text: str, bad: str) -> None:
    wrappers = ", ".join(sorted(name for name in STRATEGIES if STRATEGIES.wraps(name)))
    with pytest.raises(ConfigError, match=rf"{bad!r} is not a wrapper; .* one of {wrappers}"):
        expand_wrappers(parse([f"strategy={text}"]))


# ---------------------------------------------------------------- grammar


@pytest.mark.parametrize("text", ["rounds", "", " ", "rounds:3", "client.lr", " rounds=3", "ründe=3"])
def test_text_that_is_not_an_override_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an override: expected key=value") as caught:
        parse([text])
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["rounds=1,2", "seed=range(1,3)", "client.lr=choice(1,2)", "client=sgd,fednlr"])
def test_an_override_with_several_values_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="has several values, but a single run needs exactly one"):
        parse([text])


@pytest.mark.parametrize("text", ["+rounds=1", "++rounds=1", "~rounds", "+strategy=fedavg", "~client.lr=0.05"])
def test_keys_are_neither_added_nor_removed(text: str) -> None:
    with pytest.raises(ConfigError, match="keys can be set, but not added or removed"):
        parse([text])


# ---------------------------------------------------------------- user-defined parts


@pytest.mark.parametrize(
    ("overrides", "file"),
    [
        ([], None),
        (["strategy=mine"], None),
        (["parts="], None),
        (["parts=null"], None),
        (["parts=mine.py", "strategy=mine"], "mine.py"),
        (["parts=mine.py", "parts='/tmp/my parts/it\\'s.py'"], "/tmp/my parts/it's.py"),
        (["partition=iid", "partsy=3"], None),
    ],
)
def test_the_last_parts_override_counts(overrides: list[str], file: str | None) -> None:
    assert parts_in(parse(overrides)) == file


def test_the_parts_override_is_replaced() -> None:
    given_ = parse(["parts=mine.py", "strategy=mine"])
    assert texts(with_parts(given_, None)) == ["strategy=mine"]
    assert parts_in(with_parts(given_, "/tmp/it's.py")) == "/tmp/it's.py"
