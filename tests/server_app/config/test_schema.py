"""The run's own keys, their kinds, and the checks of all ranges."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from client_app.registry import OBJECTIVES, RULES
from fedstride.errors import ConfigError
from fedstride.parts import Choice
from fedstride.settings import Influence, fields_of
from fedstride.tasks.registry import PARTITIONS
from server_app.config.checks import check
from server_app.config.compose import choices, compose
from server_app.config.keys import by_key, chain, keys, label, names
from server_app.config.schema import GROUPS, TABLES, Config
from strategies.registry import PRIVACY, STRATEGIES
from strategies.replies.screening_settings import Screening

NAN, INF = float("nan"), float("inf")
NESTED = ("strategy=fednnnn+fedlws+two_d_lrd", "client=fednlr", "objective=fedprox", "privacy=none")


def a_run(**changed: Any) -> Config:
    """The default configuration, with these fields changed."""
    return dataclasses.replace(compose(), **changed)


# ---------------------------------------------------------------- clients a round


@pytest.mark.parametrize(
    ("clients", "fraction", "cohort", "size"),
    [
        (10, 1.0, None, 10),
        (10, 0.5, None, 5),
        (10, 0.29, None, 2),
        (10, 0.3, None, 3),  # 10 * 0.3 is 3 and not 2.9999
        (100, 0.29, None, 29),  # 100 * 0.29 = 28.999999999999996
        (10, 0.01, None, 1),
        (10, 1.0, 3, 3),
    ],
)
def test_cohort_size(clients: int, fraction: float, cohort: int | None, size: int) -> None:
    assert Config(clients=clients, fraction=fraction, cohort=cohort).cohort_size == size


# ---------------------------------------------------------------- every key


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """All values of a configuration by dotted key, found without the tables of parts."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value, key = getattr(node, field.name), f"{path}{field.name}"
        found |= leaves(value, f"{key}.") if dataclasses.is_dataclass(value) else {key: value}
    return found


@pytest.mark.parametrize(
    "overrides",
    [(), NESTED, ("privacy=local", "strategy=krum", "screening.factor=null", "partition=pathological")],
)
def test_the_keys_are_all_fields_and_their_values(overrides: tuple[str, ...]) -> None:
    config = compose(overrides)
    found = keys(config)
    assert len({key.path for key in found}) == len(found)
    whole = leaves(config)
    chosen = {path: value for path, value in whole.items() if path.endswith(".name")}
    assert {key.path: key.value for key in found} == {k: v for k, v in whole.items() if k not in chosen}
    assert {f"{path}.name": name for path, name in names(config).items()} == chosen
    assert by_key(config) == whole


def test_the_tables_contain_all_settings_of_the_built_in_parts() -> None:
    """A table that is read without torch finds settings in dataclasses only, not in the parts' signatures."""
    for table in TABLES.values():
        for part in table.built_in():
            if part.settings is None:
                meant = set(fields_of(table.load(part.name))) - set(part.given) - set(fields_of(table.base))
                assert meant == set(table.fields(part.name)), part.name


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (
            Influence.METHOD,
            {"strategy.window", "strategy.inner.beta", "strategy.inner.inner.gamma", "client.mu0", "objective.mu"},
        ),
        (
            Influence.SETTING,
            {
                "rounds", "clients", "fraction", "cohort", "target", "patience", "screening.quorum",
                "screening.factor", "client.lr", "client.batch_size", "partition.alpha",
            },
        ),
        (Influence.CHANCE, {"seed", "client.device", "client.threads"}),
        (
            Influence.NONE,
            {
                "experiment", "timeout", "node_wait", "checkpoint_every", "evaluate_every", "track", "out", "name",
                "parts", "resume", "best", "min_clients", "presets", "evaluate_clients", "max_empty_rounds",
            },
        ),
    ],
)  # fmt: skip
def test_the_kinds_of_keys(kind: Influence, paths: set[str]) -> None:
    assert paths <= {key.path for key in keys(compose(NESTED)) if key.kind is kind}


def test_the_label_of_a_strategy_begins_with_the_base() -> None:
    config = compose(NESTED)
    assert label(config) == "fednnnn+fedlws+two_d_lrd"
    assert [spec.name for spec in chain(config.strategy)] == ["two_d_lrd", "fedlws", "fednnnn"]


def test_the_groups_are_the_tables_and_experiments() -> None:
    assert ("experiment", *TABLES) == GROUPS
    assert all(choices(group) for group in GROUPS)
    assert set(TABLES) <= {field.name for field in dataclasses.fields(Config)}


# ---------------------------------------------------------------- ranges


def test_the_defaults_are_in_range() -> None:
    check(a_run())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("rounds", [0, -1, 2.0, True]),
        ("clients", [0]),
        ("fraction", [0.0, -0.1, 1.01, NAN, "half"]),
        ("cohort", [0, 11]),
        ("min_clients", [0, 11]),
        ("seed", [-1, 2**63]),
        ("evaluate_every", [-1]),
        ("evaluate_clients", [1, "yes"]),
        ("max_empty_rounds", [0]),
        ("best", ["accuracy", "", "norms/N", "mine/loss"]),
        ("target", [NAN, INF]),
        ("patience", [0]),
        ("checkpoint_every", [-1]),
        ("timeout", [0.0, NAN]),
        ("node_wait", [-1.0, NAN]),
        ("track", ["wandb", [1]]),
    ],
)
def test_out_of_range(key: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"^{key} = .* is not allowed: {key} must be ") as caught:
            check(a_run(**{key: value}))
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("key", "values"), [("quorum", [0, 11]), ("factor", [1.0, 0.0, NAN, INF])])
def test_a_screening_out_of_range(key: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"^screening.{key} = .* is not allowed: {key} must be "):
            check(a_run(screening=Screening(**{key: value})))


SGD, FedNLR, FedProx = RULES.config("sgd"), RULES.config("fednlr"), OBJECTIVES.config("fedprox")
Dirichlet, Pathological = PARTITIONS.config("dirichlet"), PARTITIONS.config("pathological")
FedNNNN, FedLWS, Local = STRATEGIES.config("fednnnn"), STRATEGIES.config("fedlws"), PRIVACY.config("local")


@pytest.mark.parametrize(
    ("key", "config"),
    [
        *[("client.lr", SGD(lr=value)) for value in (0.0, -1.0, NAN, INF)],
        *[("client.lr_decay", SGD(lr_decay=value)) for value in (0.0, 1.1, NAN)],
        ("client.batch_size", SGD(batch_size=0)),
        ("client.local_epochs", SGD(local_epochs=0)),
        ("client.local_steps", SGD(local_steps=0)),
        *[("client.momentum", SGD(momentum=value)) for value in (-0.1, 1.0, NAN)],
        *[("client.weight_decay", SGD(weight_decay=value)) for value in (-0.1, INF, NAN)],
        ("client.threads", SGD(threads=0)),
        *[("client.mu0", FedNLR(mu0=value)) for value in (-1.0, INF, NAN)],
        ("client.a1", FedNLR(a1=-0.1)),
        ("client.a2", FedNLR(a2=NAN)),
        ("client.width", FedNLR(width="neurons")),
        *[("objective.mu", FedProx(mu=value)) for value in (-0.1, INF, NAN)],
        *[("partition.alpha", Dirichlet(alpha=value)) for value in (0.0, -1.0, INF, NAN)],
        ("partition.min_size", Dirichlet(min_size=0)),
        ("partition.classes_per_client", Pathological(classes_per_client=0)),
        ("privacy.clipping_norm", Local(clipping_norm=0.0)),
        ("strategy.beta", FedNNNN(beta=0.0)),
        ("strategy.inner.beta", FedLWS(inner=FedNNNN(beta=NAN))),
    ],
)
def test_a_choice_out_of_range(key: str, config: Choice) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} = .* is not allowed: "):
        check(a_run(**{key.split(".")[0]: config}))


@pytest.mark.parametrize(
    "changed",
    [
        {"rounds": 1, "clients": 1, "min_clients": 1, "fraction": 1.0, "cohort": 1, "seed": 0},
        {"seed": 2**63 - 1, "fraction": 1e-9, "evaluate_every": 0, "checkpoint_every": 0, "node_wait": 0.0},
        {"client": SGD(lr=1e-300, momentum=0.0, lr_decay=1.0)},
        {"client": FedNLR(mu0=0.0, a1=0.0, a2=0.0)},
        {"objective": FedProx(mu=0.0)},
        {"screening": Screening(factor=None)},
    ],
)
def test_the_edges_are_allowed(changed: dict[str, Any]) -> None:
    check(a_run(**changed))


def test_the_quorum_counts_the_cohort_and_not_the_clients() -> None:
    check(a_run(clients=10, cohort=3, screening=Screening(quorum=3)))
    with pytest.raises(
        ConfigError,
        match=r"screening.quorum = 4 is not allowed: .* between 1 and 3, the number of clients in a round",
    ):
        check(a_run(clients=10, cohort=3, screening=Screening(quorum=4)))


def test_every_key_of_the_run_has_a_meaning() -> None:
    for field in [*fields_of(Config).values(), *fields_of(Screening).values()]:
        assert len(field.setting.meaning) > 5, field.name
