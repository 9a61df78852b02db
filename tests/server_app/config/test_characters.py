"""Signs that people have in overrides: a value is the text that was typed, or the error shows how to write it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from server_app.config import experiments
from server_app.config.compose import compose, from_yaml, to_yaml
from server_app.config.conf import conf_dir
from server_app.config.grammar import as_typed_text
from server_app.config.overrides import overrides_of, parse, values_of
from superlink.serverapp_access import settings as settings_of

TABLE = ["task=own_table", "model=mlp", "partition=own"]


def corrected(error: ConfigError) -> str:
    """The override that the message shows, as a shell reads it."""
    text = str(error)
    assert "\n" not in text
    found = re.search(r"(?:as in|as text:) (.*)$", text)
    assert found is not None, text
    (word,) = shlex.split(found[1])
    return word


def value_of(key: str, text: str, *others: str) -> object:
    config = compose([*others, f"{key}={text}"])
    group, _, name = key.rpartition(".")
    return getattr(getattr(config, group) if group else config, name)


# ---------------------------------------------------------------- works, or is shown so that it works


WORK = [
    "/home/jörg/runs", "~/runs", "a b", "größe #1", "a&b;c", "日本語/データ", "C:\\Users\\Jörg Müller",
    "C:\\data\\", "x|y", "a!b^c<d>`e`", "a@b", "a$b", "12:30", "2024-01-01", "1_000", "0x10", "007", "true",
    "False", "1e3", "-5", ".5", "nan", "1.2.3", "int(3)", "*", "?", "e\u0301", "\U0001f600", "yes", "#", "~",
]  # fmt: skip
SHOWN = [
    "/tmp/runs (1)", "(1)", "f(x)", "a,b", "a=b", "it's", 'say "so"', "[x]", "[a", "a]", "[a,b]", "[]", "{x",
    "{a:1}", "'", '"', "a='b'", "\\\\server\\share", "C:\\(x86)\\runs", "a\\,b", "a\\ b", "\\\\", "\\'", "=",
    "größe (cm)", "choice(a,b)", "range(1,2)", "glob(*)", "sort(b,a)", "1" * 5000 + ",", "[" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("text", WORK)
@pytest.mark.parametrize("key", ["out", "initial"])
def test_a_text_that_is_read_as_it_is(key: str, text: str) -> None:
    assert value_of(key, text) == text


@pytest.mark.slow
@pytest.mark.parametrize("text", SHOWN)
@pytest.mark.parametrize("key", ["out", "initial"])
def test_a_text_that_is_refused_with_how_to_write_it(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        value_of(key, text)
    shown = corrected(caught.value)
    assert shown.startswith(f"{key}=")
    assert getattr(compose([shown]), key) == text


LISTS = [
    ("[gutartig,bösartig]", ["gutartig", "bösartig"], True),
    ("[1e3,007,0x10,1_000,true,null]", ["1e3", "007", "0x10", "1_000", "true", "null"], True),
    ("[x|y,a#b,c;d,~a]", ["x|y", "a#b", "c;d", "~a"], True),
    ("[age,sex=f|m]", ["age", "sex=f|m"], False),
    ("[größe,Müller (1)]", ["größe", "Müller (1)"], False),
    ("[a(b,c),d]", ["a(b,c)", "d"], False),
    ("[it's]", ["it's"], False),
    ("[[a],b]", ["[a]", "b"], False),
    ("[\"c,d=\",e (f)]", ["c,d=", "e (f)"], False),
    ("a,b", ["a", "b"], False),
    ("größe", ["größe"], False),
    ("a=b", ["a=b"], False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "items", "is_read"), LISTS)
def test_the_items_of_a_list(text: str, items: list[str], is_read: bool) -> None:
    others = [*TABLE, "task.target=t"]
    if not is_read:
        with pytest.raises(ConfigError) as caught:
            value_of("task.columns", text, *others)
        text = corrected(caught.value).partition("=")[2]
    assert value_of("task.columns", text, *others) == items


def test_a_setting_that_is_text_or_a_list() -> None:
    assert value_of("task.target", "1e3", *TABLE, "task.columns=[a]") == "1e3"
    assert value_of("task.target", "[1e3,x]", *TABLE, "task.columns=[a]") == ["1e3", "x"]
    with pytest.raises(ConfigError) as caught:
        value_of("task.target", "[a,b=c]", *TABLE, "task.columns=[a]")
    assert corrected(caught.value) == 'task.target=[a,"b=c"]'


def test_numbers_stay_numbers_where_the_setting_is_one() -> None:
    config = compose(["rounds=1_000", "client.lr=1e-3", "target=1", "evaluate_clients=True", "seed=007"])
    assert (config.rounds, config.client.lr, config.target) == (1000, 0.001, 1.0)
    assert (config.evaluate_clients, config.seed) == (True, 7)


def test_a_long_range_is_refused_without_listing_it() -> None:
    with pytest.raises(ConfigError, match="has several values"):
        parse(["seed=range(1,1000000000000)"])


def test_null_is_no_value_and_in_quotation_marks_it_is_text() -> None:
    assert value_of("name", "null") is None
    assert value_of("name", "'null'") == "null"


@pytest.mark.parametrize("text", ["${", "${x", "a${now:}"])
def test_references_are_refused_in_every_form(text: str) -> None:
    for written in (f"out={text}", f"out='{text}'"):
        with pytest.raises(ConfigError, match="may only name another key"):
            compose([written])


# ---------------------------------------------------------------- any text


PRINTABLE = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]) | st.sampled_from(" ,=[](){}'\"\\:~#$"), min_size=1
)


@pytest.mark.slow
@given(PRINTABLE)
@example("\\")
@example("a\\'")
@example('"\\"')
@example("null")
def test_any_printable_text_can_be_given_as_the_message_shows_it(text: str) -> None:
    """To a command, in Flower's run config, to the SuperLink's guard, and back from the file of a run.

    `${` and the mark of OmegaConf for a missing value are refused in every form.
    """
    assume("${" not in text and text != "???")
    shown = as_typed_text("initial", text, listed=False)
    (word,) = shlex.split(shown)
    assert [each.value for each in parse([word])] == [text]
    assert [each.value for each in overrides_of({"overrides": shown})] == [text]
    assert [each.value for each in values_of(word)] == [text]
    assert settings_of({"overrides": shown}) == {"initial": text} or text == "null"
    config = compose([word])
    assert config.initial == text
    assert from_yaml(to_yaml(config)).initial == text


@pytest.mark.slow
@given(PRINTABLE)
def test_any_printable_text_is_kept_or_refused(text: str) -> None:
    """Never another value. Hydra leaves out spaces around a value; quotation marks and null have their meaning."""
    try:
        (read,) = parse([f"initial={text}"])
    except ConfigError:
        return
    has_marks = text.strip()[:1] in ("'", '"')
    if has_marks or text.strip().lower() == "null" or not isinstance(read.value, str):
        return
    assert read.value == text.strip(" \t")


@pytest.mark.slow
@given(st.lists(PRINTABLE, min_size=1))
def test_any_texts_can_be_the_items_of_a_list(items: list[str]) -> None:
    assume(not any("${" in item or item == "???" for item in items))
    marked = [as_typed_text("x", item, listed=False) for item in items]
    listed = ",".join(shlex.split(each)[0].partition("=")[2] for each in marked)
    assert compose([f"client.exclude=[{listed}]", "client=fednlr"]).client.exclude == items  # type: ignore[attr-defined]


# ---------------------------------------------------------------- other ways in


@pytest.mark.parametrize("text", ["1e3", "1_000", "0x10", "007", "true", "größe (1)", "it's", "no", "2024-01-01"])
def test_an_experiment_in_a_file_keeps_the_text(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "config.yaml").write_text((conf_dir() / "config.yaml").read_text())
    (tmp_path / "experiment/mine.yaml").write_text(
        "# @package _global_\n# Mine.\ndefaults:\n  - override /task: own_table\n  - override /model: mlp\n"
        "  - override /partition: own\n"
        f"name: {text}\npresets:\n  task:\n    own_table: {{columns: [{text}], target: {text}}}\n"
    )
    monkeypatch.setattr(experiments, "conf_dir", lambda: tmp_path)
    config = compose(["experiment=mine"])
    assert (config.name, config.task.columns, config.task.target) == (text, [text], text)  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [1000.0, 16, 7])
def test_a_number_of_toml_is_refused_for_a_text_with_how_to_write_it(value: float) -> None:
    """TOML does not keep how it was typed: 1e3, 0x10, 1_000."""
    with pytest.raises(ConfigError, match=r"is a number, but name is text: write it .* as in name=\"(.*)\"$"):
        overrides_of({"name": value})
    assert compose(overrides_of({"name": repr(value)})).name == repr(value)


@pytest.mark.parametrize(("value", "text"), [(True, "true"), ("1e3", "1e3"), ("größe (1), #2", "größe (1), #2")])
def test_text_and_truth_values_of_toml_are_kept(value: object, text: str) -> None:
    assert compose(overrides_of({"name": value})).name == text


def test_a_message_in_the_overrides_of_the_run_config_shows_what_works_there() -> None:
    with pytest.raises(ConfigError) as caught:
        overrides_of({"overrides": "rounds=3 'out=/tmp/a (1)'"})
    shown = str(caught.value).rpartition("as in ")[2]
    assert compose(overrides_of({"overrides": f"rounds=3 {shown}"})).out == "/tmp/a (1)"
