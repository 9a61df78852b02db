"""Types, defaults and ranges of the configuration, and its way through a ConfigRecord."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from fedstride.schema import (
    ClientConfig,
    Config,
    DirichletConfig,
    FedNLRConfig,
    FedProxConfig,
    ObjectiveConfig,
    PartitionConfig,
    PathologicalConfig,
)
from flwr.app import ConfigRecord
from flwr.serverapp import strategy as flower_strategies
from server_app.config.ranges import check

import strategies
from fedstride import schema
from fedstride.errors import ConfigError

OURS = {
    "fedavg": strategies.FedAvg,
    "norm_norm": strategies.NormNorm,
    "momentum": strategies.Momentum,
    "fednnnn": strategies.FedNNNN,
    "fedalr": strategies.Fedalr,
    "fedlws": strategies.FedLWS,
    "two_d_lrd": strategies.TwoDLRD,
}
FLOWERS = {
    "fedadam": flower_strategies.FedAdam,
    "fedavgm": flower_strategies.FedAvgM,
    "fedmedian": flower_strategies.FedMedian,
    "krum": flower_strategies.Krum,
}


def arguments(kind: type) -> dict[str, object]:
    """Name and default of every argument, those of the base classes included."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if "__init__" in vars(base):
            signature = inspect.signature(base.__init__)
            found |= {p.name: p.default for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
    return found


def settings(name: str) -> dict[str, object]:
    """Key and default of a strategy's own settings."""
    kind = schema.STRATEGIES[name]
    return {f.name: f.default for f in dataclasses.fields(kind) if f.name not in ("name", "inner")}


@pytest.mark.parametrize("name", OURS)
def test_defaults_are_the_constructors(name: str) -> None:
    takes = arguments(OURS[name])
    assert {key: takes[key] for key in settings(name)} == settings(name)


@pytest.mark.parametrize("name", FLOWERS)
def test_flowers_strategies_take_what_we_offer(name: str) -> None:
    assert set(settings(name)) <= set(arguments(FLOWERS[name]))


def test_every_strategy_is_covered_here() -> None:
    assert set(OURS) | set(FLOWERS) == set(schema.STRATEGIES)


# ---------------------------------------------------------------- through a ConfigRecord


@pytest.mark.parametrize(
    ("prefix", "kinds", "config"),
    [
        ("client", schema.CLIENTS, ClientConfig(lr=0.3, local_steps=4, device="cpu")),
        ("client", schema.CLIENTS, ClientConfig()),
        ("client", schema.CLIENTS, FedNLRConfig(mu0=1.5, classifier=False, width="channels")),
        ("objective", schema.OBJECTIVES, FedProxConfig(mu=0.5)),
        ("partition", schema.PARTITIONS, DirichletConfig("dirichlet", alpha=0.7, balanced=True)),
    ],
)
def test_there_and_back(prefix: str, kinds: dict[str, type], config: object) -> None:
    back = unflatten(prefix, ConfigRecord(flatten(prefix, config)), kinds)
    assert back == config
    assert type(back) is type(config)


def test_none_does_not_travel() -> None:
    flat = flatten("client", ClientConfig())
    assert "client.local_steps" not in flat
    assert flat["client.name"] == "sgd"
    assert all(key.startswith("client.") for key in flat)


def test_groups_do_not_mix() -> None:
    flat = {**flatten("client", ClientConfig()), **flatten("objective", FedProxConfig(mu=2.0))}
    assert unflatten("objective", flat, schema.OBJECTIVES) == FedProxConfig(mu=2.0)


def test_a_key_of_a_newer_server_is_passed_over() -> None:
    flat = {**flatten("client", ClientConfig()), "client.newer": 1}
    assert unflatten("client", flat, schema.CLIENTS) == ClientConfig()


@pytest.mark.parametrize("record", [{"client.name": "fednlr2"}, {}])
def test_a_name_of_a_newer_server_is_refused(record: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"client.name = .* \(known: fednlr, sgd\); run the same version"):
        unflatten("client", record, schema.CLIENTS)


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


# ---------------------------------------------------------------- ranges


NAN, INF = float("nan"), float("inf")


def test_the_defaults_are_in_range() -> None:
    check(Config())
    for kind in (FedNLRConfig, ClientConfig):
        check(Config(client=kind()))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("rounds", [0, -1]),
        ("clients", [0]),
        ("fraction", [0.0, -0.1, 1.01, NAN]),
        ("cohort", [0, 11]),
        ("min_clients", [0, 11]),
        ("seed", [-1, 2**63]),
        ("evaluate_every", [-1]),
        ("quorum", [0, 11]),
        ("screen_factor", [1.0, 0.0, NAN]),
        ("max_empty_rounds", [0]),
        ("best", ["accuracy", "", "norms/N", "mine/loss"]),
        ("patience", [0]),
        ("checkpoint_every", [-1]),
        ("timeout", [0.0, NAN]),
        ("node_wait", [-1.0, NAN]),
    ],
)
def test_out_of_range(key: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"^{key} = .* is not allowed: {key} must be ") as caught:
            check(Config(**{key: value}))
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("group", "config"),
    [
        *[("client.lr", ClientConfig(lr=value)) for value in (0.0, -1.0, NAN, INF)],
        *[("client.lr_decay", ClientConfig(lr_decay=value)) for value in (0.0, 1.1, NAN)],
        ("client.batch_size", ClientConfig(batch_size=0)),
        ("client.local_epochs", ClientConfig(local_epochs=0)),
        ("client.local_steps", ClientConfig(local_steps=0)),
        *[("client.momentum", ClientConfig(momentum=value)) for value in (-0.1, 1.0, NAN)],
        *[("client.weight_decay", ClientConfig(weight_decay=value)) for value in (-0.1, INF, NAN)],
        ("client.threads", ClientConfig(threads=0)),
        *[("client.mu0", FedNLRConfig(mu0=value)) for value in (-1.0, INF, NAN)],
        ("client.a1", FedNLRConfig(a1=-0.1)),
        ("client.a2", FedNLRConfig(a2=NAN)),
        ("client.width", FedNLRConfig(width="neurons")),
        *[("objective.mu", FedProxConfig(mu=value)) for value in (-0.1, INF, NAN)],
        *[("partition.alpha", DirichletConfig("dirichlet", alpha=value)) for value in (0.0, -1.0, INF, NAN)],
        ("partition.min_size", DirichletConfig("dirichlet", min_size=0)),
        ("partition.classes_per_client", PathologicalConfig("pathological", classes_per_client=0)),
    ],
)
def test_a_choice_out_of_range(group: str, config: ClientConfig | ObjectiveConfig | PartitionConfig) -> None:
    with pytest.raises(ConfigError, match=rf"^{group} = .* is not allowed: "):
        check(Config(**{group.split(".")[0]: config}))


@pytest.mark.parametrize(
    "config",
    [
        Config(rounds=1, clients=1, min_clients=1, fraction=1.0, cohort=1, seed=0),
        Config(seed=2**63 - 1, fraction=1e-9, evaluate_every=0, checkpoint_every=0, node_wait=0.0),
        Config(client=ClientConfig(lr=1e-300, momentum=0.0, lr_decay=1.0)),
        Config(client=FedNLRConfig(mu0=0.0, a1=0.0, a2=0.0)),
        Config(objective=FedProxConfig(mu=0.0)),
    ],
)
def test_the_edges_are_allowed(config: Config) -> None:
    check(config)


def test_the_quorum_counts_the_cohort_and_not_the_clients() -> None:
    check(Config(clients=10, cohort=3, quorum=3))
    with pytest.raises(ConfigError, match=r"quorum = 4 is not allowed: .* the clients a round, 3"):
        check(Config(clients=10, cohort=3, quorum=4))


def test_a_whole_configuration_by_dotted_key() -> None:
    config = schema.Config(
        strategy=schema.FedLWSConfig("fedlws"), presets={"strategy": {"fedlws": {"beta": 0.03}}}
    )
    values = dotted(config)
    assert (values["rounds"], values["client.lr"]) == (config.rounds, config.client.lr)
    assert values["strategy.inner.name"] == config.strategy.inner.name
    assert values["presets.strategy.fedlws.beta"] == 0.03
