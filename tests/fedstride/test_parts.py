"""Tables of parts: every part with its settings, its configuration, and the conversion for messages."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Annotated, Any

import pytest
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from fedstride.messages import app_signatures, signed_runs, wire
from fedstride.parts import Choice, Part, Table, part
from fedstride.settings import REQUIRED, Field, Setting, fields_of
from server_app.config.schema import GROUPS, TABLES, Config

ROOT = Path(__file__).parents[2]
PROPERTY = settings(max_examples=25, deadline=None, database=None, derandomize=True)
ALL = [(group, name) for group, table in TABLES.items() for name in table]
every = pytest.mark.parametrize(("group", "name"), ALL, ids=lambda value: value)
RULES, OBJECTIVES, PARTITIONS = (TABLES[group] for group in ("client", "objective", "partition"))


def values(field: Field) -> st.SearchStrategy[Any]:
    """Values in a setting's range, and None if it is allowed."""
    limits = field.setting
    if limits.options:
        lists = st.lists(st.text(), min_size=1) if list[str] in field.kinds else st.nothing()
        return st.sampled_from(limits.options) | lists
    low, high = (
        next((limit for limit in pair if limit is not None), None)
        for pair in ((limits.above, limits.least), (limits.below, limits.most))
    )
    numbers: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        str: st.text(),
        int: st.integers(int(low or 0) + (limits.above is not None), int(2**62 if high is None else high)),
        float: st.floats(
            low,
            high,
            allow_nan=False,
            allow_infinity=False,
            exclude_min=limits.above is not None,
            exclude_max=limits.below is not None,
        ),
    }
    numbers[list[int]] = st.lists(numbers[int], min_size=1)
    numbers[list[float]] = st.lists(numbers[float], min_size=1)
    numbers[list[str]] = st.lists(st.text())
    drawn = st.one_of(numbers[kind] for kind in field.kinds)
    return st.none() | drawn if field.may_be_none else drawn


# ---------------------------------------------------------------- every part of every table


@every
def test_every_setting_has_a_meaning_and_its_default_is_allowed(group: str, name: str) -> None:
    for field in TABLES[group].all_fields(name).values():
        assert len(field.setting.meaning) > 3, field.name
        if field.default is not REQUIRED:
            field.check(field.name, field.default)


@every
def test_the_default_of_an_optional_setting_is_none(group: str, name: str) -> None:
    """None is not sent, so the client uses the default for a missing value."""
    fields = TABLES[group].all_fields(name).values()
    assert [f.name for f in fields if f.may_be_none and f.default is not None] == []


@every
def test_every_part_has_a_one_line_description(group: str, name: str) -> None:
    about = TABLES[group][name].about
    assert 5 < len(about) <= 120 and about.endswith(".") and "\n" not in about


@every
def test_a_configuration_has_the_name_and_all_settings_with_defaults(group: str, name: str) -> None:
    table = TABLES[group]
    config = table.config(name)()
    inner = {"inner": Choice()} if table.wraps(name) else {}
    fields = table.all_fields(name)
    defaults = {key: "???" if f.default is REQUIRED else f.default for key, f in fields.items()}
    assert vars(config) == {"name": name, **defaults, **inner}
    assert isinstance(config, table.base)
    assert type(config) is table.config(name)


@every
def test_flatten_and_unflatten_restore_a_configuration(group: str, name: str) -> None:
    table = TABLES[group]
    kind = table.config(name)
    fields = {key: values(f) for key, f in table.all_fields(name).items()}

    @PROPERTY
    @given(st.fixed_dictionaries(fields))
    def holds(drawn: dict[str, Any]) -> None:
        config = kind(**drawn)
        table.check(config, group)
        flat = table.flatten(config)
        given_ = {"name": name} | {key: value for key, value in drawn.items() if value is not None}
        assert flat == {f"{group}.{key}": value for key, value in given_.items()}
        back = table.unflatten(ConfigRecord(flat))
        assert back == config and type(back) is kind

    holds()


@every
def test_unknown_names_and_keys_in_a_message_are_rejected(group: str, name: str) -> None:
    table = TABLES[group]
    flat = table.flatten(table.config(name)())
    for change, said in [
        ({f"{group}.newer": 1}, f"{group}.newer is unknown"),
        ({f"{group}.name": "newer"}, f"{group}.name = 'newer' is unknown"),
        ({f"{group}.name": 3}, f"{group}.name = 3 is unknown"),
    ]:
        with pytest.raises(ConfigError, match="run the same version of fedstride on server and clients") as caught:
            table.unflatten(flat | change)
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match=f"{group}.name = None is unknown"):
        table.unflatten({})


def test_only_strategies_wrap_another_part() -> None:
    assert [(group, name) for group, name in ALL if TABLES[group].wraps(name)] == [
        ("strategy", "fedlws"),
        ("strategy", "two_d_lrd"),
        ("strategy", "adadecay"),
        ("strategy", "awd"),
        ("strategy", "validated"),
    ]


def test_the_declared_run_config_keys_exist() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert set(declared) <= {
        *GROUPS,
        *fields_of(Config),
        wire.SUBMISSION,
        app_signatures.RUN_CONFIG,
        signed_runs.RUN_CONFIG,
        wire.CHECK,
        "overrides",
    }
    assert {*TABLES, "experiment", "resume"} <= set(declared)


# ---------------------------------------------------------------- through a message


def test_a_value_out_of_range_in_a_message_is_refused() -> None:
    for key, value in [("lr", -1.0), ("lr", "fast"), ("batch_size", 2.5), ("threads", 0)]:
        with pytest.raises(ConfigError, match=rf"^client.{key} = .* is not allowed: {key} must be "):
            RULES.unflatten(RULES.flatten(RULES.config("sgd")()) | {f"client.{key}": value})


def test_none_is_not_sent() -> None:
    flat = RULES.flatten(RULES.config("sgd")())
    assert "client.local_steps" not in flat
    assert flat["client.name"] == "sgd"


def test_groups_do_not_mix() -> None:
    fedprox = OBJECTIVES.config("fedprox")(mu=2.0)
    flat = {**RULES.flatten(RULES.config("sgd")()), **OBJECTIVES.flatten(fedprox), "clients": 3}
    assert OBJECTIVES.unflatten(flat) == fedprox


# ---------------------------------------------------------------- looking up, building


def test_similar_names_are_suggested_for_an_unknown_name() -> None:
    for look_up in (PARTITIONS.find, PARTITIONS.load, PARTITIONS.config, PARTITIONS.fields):
        with pytest.raises(ConfigError, match=r"unknown partition 'iidd'. Did you mean 'iid'\? Known: by_"):
            look_up("iidd")


@dataclasses.dataclass
class Shared(Choice):
    lr: Annotated[float, Setting("rate")] = 0.5


@dataclasses.dataclass
class Light:
    mu: Annotated[float, Setting("weight")] = 0.25
    names: Annotated[list[str], Setting("names")] = dataclasses.field(default_factory=lambda: ["a"])


def heavy(settings: Light, *arguments: Any, **options: Any) -> Any:
    return settings, arguments, options


def direct(
    *arguments: Any,
    where: Annotated[str, Setting("a place")],
    mu: Annotated[int, Setting("n")] = 1,
    **options: Any,
) -> Any:
    return where, mu, arguments, options


TOY = Table(
    "toy",
    None,
    Part("light", heavy, "With a dataclass.", Light),
    Part("direct", direct, "With a signature.", given={"where": "here"}),
    Part("open", direct, "With a signature, all of it open."),
    base=Shared,
)


def test_a_part_with_a_dataclass_is_built_from_one() -> None:
    config = TOY.config("light")(lr=0.1, mu=2.0)
    assert TOY.make(config, 1, flag=True) == (Light(mu=2.0), (1,), {"flag": True})


def test_a_part_with_a_signature_is_built_from_its_settings_and_fixed_arguments() -> None:
    assert TOY.make(TOY.config("direct")(mu=2), 1, flag=True) == ("here", 2, (1,), {"flag": True})
    assert list(TOY.all_fields("direct")) == ["lr", "mu"]


def test_two_configurations_do_not_share_a_list() -> None:
    first, second = TOY.config("light")(), TOY.config("light")()
    first.names.append("b")
    assert second.names == ["a"] and Light().names == ["a"]


def test_required_settings_are_marked_as_missing() -> None:
    assert TOY.config("open")().where == "???"


# ---------------------------------------------------------------- user-defined parts


def test_a_user_defined_part_comes_last_in_its_table() -> None:
    @part(partition="halves")
    def halves(labels: Any, clients: int, seed: int, *, much: Annotated[float, Setting("share", above=0)] = 0.5):
        """Half of it each.

        More than a line.
        """
        return labels, clients, seed, much

    assert list(PARTITIONS)[-1] == "halves" and len(PARTITIONS) == len(PARTITIONS.built_in()) + 1
    assert PARTITIONS["halves"].about == "Half of it each."
    assert PARTITIONS.load("halves") is halves
    assert PARTITIONS.make(PARTITIONS.config("halves")(much=0.25), [], 2, 3) == ([], 2, 3, 0.25)
    with pytest.raises(ConfigError, match=r"^partition.much = 0 is not allowed"):
        PARTITIONS.check(PARTITIONS.config("halves")(much=0), "partition")


def test_built_in_parts_take_precedence_over_user_defined_ones() -> None:
    part("Not ours.", partition="iid")(direct)
    assert PARTITIONS["iid"].about != "Not ours."
    assert list(PARTITIONS).count("iid") == 1


def test_defining_a_part_again_replaces_it() -> None:
    for much in (0.25, 0.5):

        def mine(*, much: Annotated[float, Setting("share")] = much) -> float:
            return much

        part("Mine.", partition="mine")(mine)
        assert PARTITIONS.make(PARTITIONS.config("mine")()) == much


def test_the_description_of_a_part_without_a_docstring_is_its_name() -> None:
    part(strategy="silent")(lambda **options: None)
    assert TABLES["strategy"]["silent"].about == "silent"


def test_a_part_belongs_to_one_group() -> None:
    for choice in ({}, {"strategy": "a", "client": "b"}):
        with pytest.raises(ConfigError, match=r"name exactly one group, as in @part\(strategy='mine'\)"):
            part(**choice)
