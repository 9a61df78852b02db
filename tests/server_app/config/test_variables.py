"""Environment variables and other interpolations in overrides: what is replaced where, and what is refused."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from server_app.config.compose import compose, from_yaml, to_yaml
from server_app.config.overrides import overrides_of, parse
from server_app.config.variables import ALLOWED, with_variables

ENVIRON = {"HOME": "/home/a b", "USER": "it's", "PATH": "/bin", "TOKEN": "secret"}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("out=${oc.env:HOME}", "out", "/home/a b"),
        ("out=${oc.env:HOME}/runs", "out", "/home/a b/runs"),
        ("out='${oc.env:HOME}/x=[1,2]'", "out", "/home/a b/x=[1,2]"),
        ("name=of-${oc.env:USER}-${oc.env:USER}", "name", "of-it's-it's"),
    ],
)
def test_a_variable_of_the_list_is_replaced_by_its_value_as_text(text: str, key: str, value: str) -> None:
    (override,) = with_variables(parse([text]), ENVIRON)
    assert (override.key, override.value) == (key, value)
    assert parse([override.text]) == [override]


def test_overrides_without_variables_stay_as_they_are() -> None:
    given = parse(["rounds=2", "seed=${rounds}", "track=[wandb]", "strategy=fednnnn+fedlws"])
    assert with_variables(given, ENVIRON) == given


@pytest.mark.parametrize(
    "text",
    [
        "name=${oc.env:TOKEN}",
        "name=${oc.env:PATH}",
        "name=${oc.env:HOME}-${oc.env:TOKEN}",
        "name=${oc.env:HOME,x}",
        "name=${oc.env:HOMER}",
        "name=${oc.env:${oc.env:HOME}}",
        "name=${oc.decode:${oc.env:HOME}}",
        "track=[${oc.env:HOME}]",
        "name=${oc.env:SCRATCH}",
    ],
)
def test_other_variables_and_other_uses_are_refused_without_the_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_variables(parse([text]), ENVIRON)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


RESOLVERS = [
    "name=${oc.env:HOME}",
    "name=${oc.env:TOKEN}",
    "name=${ oc.env : TOKEN }",
    "name=${oc.env:TOKEN,x}",
    "name=${${experiment}:TOKEN}",
    "name=x${oc.select:out}",
    "name=${oc.decode:'[1]'}",
    "name=${oc.deprecated:out}",
    "client.lr=${oc.decode:0.1}",
    "presets=${oc.create:{a:1}}",
    "track=${oc.dict.keys:client}",
    "name=${now:%Y}",
    "name=${hydra:runtime.cwd}",
    "name=${python_version:}",
    "strategy=${oc.env:TOKEN}",
    "resume=${oc.env:TOKEN}",
    "parts=${oc.env:TOKEN}",
    "name='\\${oc.env:TOKEN}'",
]


@pytest.mark.parametrize("text", RESOLVERS)
def test_a_configuration_on_a_server_resolves_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the ServerApp composes it."""
    monkeypatch.setenv("TOKEN", "secret")
    with pytest.raises(ConfigError) as caught:
        compose(overrides_of({"overrides": shlex.join([text])}))
    assert "secret" not in str(caught.value)
    assert all(name in str(caught.value) for name in ALLOWED)


def test_another_key_may_be_named() -> None:
    assert compose(["seed=${rounds}", "rounds=7"]).seed == 7


def test_the_page_of_the_commands_has_the_list() -> None:
    page = (Path(__file__).parents[3] / "docs/commands.md").read_text()
    assert ", ".join(f"`{name}`" for name in ALLOWED) in " ".join(page.split())


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize("extra", ["name: ${oc.env:TOKEN}\n", "seed: ${rounds}\n", BOMB])
def test_a_run_folder_with_interpolations_or_aliases_is_not_read(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    lines = to_yaml(compose()).splitlines(keepends=True)
    key = extra.partition(":")[0]
    text = "".join(line for line in lines if not line.startswith(f"{key}:")) + extra
    with pytest.raises(ConfigError, match="not a configuration that fedstride wrote") as caught:
        from_yaml(text, execute=False)
    assert "secret" not in str(caught.value)


def test_an_ampersand_in_a_value_is_no_alias() -> None:
    assert from_yaml(to_yaml(compose(["name='a&b'", "out='/x&y *z'"]))).name == "a&b"
