"""One configuration of every part is signed and run, and its nodes accept every message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from leaving import listed
from memory import sha
from signing import WORD, CheckedGrid, signed_text, terms_of

from client_app import for_server_rules
from client_app.app import app
from fedstride.errors import DataError
from fedstride.flower.for_nodes.client_apps import objects
from fedstride.messages import wire
from fedstride.messages.signed_runs import MessageContent, MessageForm, load
from fedstride.tasks import data
from fedstride.tasks.partitions import schemes
from lab.deployment.client_files import save_partition
from node.log.log_lines import RefusedError
from node.messages.replies import Contents
from node.policy.permission import PolicyTerms
from node.policy.policy_file import Policy
from server_app import data_descriptions, preparation, session
from server_app.config.attacks import refuse_attack
from server_app.config.compose import compose
from server_app.config.schema import TABLES
from server_app.run_files import save_model
from strategies import DifferentialPrivacy, FedDisco, TwoDLRD

pytestmark = pytest.mark.slow

NOISE = Policy(clipping_norm=1.0, noise_multiplier=1.0)

SMALL = ("model=mlp", "clients=3", "rounds=2", "client.batch_size=20", "evaluate_every=1", "evaluate_clients=true")
STEPS = "client.local_steps=2"

NEEDS = {
    "strategy=fedlaw": ("task.proxy=test",),
    "strategy=validated": ("task.proxy=test",),
    "strategy=trimmed_mean": ("strategy.beta=0.34",),
    "partition=shards": ("clients=5",),
    "partition=two_classes": ("clients=5",),
    "partition=one_class": ("clients=10",),
    "privacy=server_side": ("best=test/accuracy",),
    "privacy=client_side": ("best=test/accuracy",),
    "privacy=local": ("best=test/accuracy", "evaluate_clients=false"),
}
"""What a part needs of other parts to be run at all."""

MORE = (
    "strategy=two_d_lrd strategy.window=0 strategy.attenuation=0.5 strategy.local_steps=3 client.lr=1.0 rounds=4",
    "strategy=two_d_lrd strategy.decay=all strategy.window=0 strategy.local_steps=3 client.lr=1.0 rounds=4",
    "strategy=scaffold+two_d_lrd",
    "strategy=feddisco cohort=2 rounds=3",
    "privacy=client_side privacy.adaptive=true privacy.noise_multiplier=0.01 best=test/accuracy",
    "privacy=local privacy.noise_seed=3 evaluate_clients=false best=test/accuracy",
    "train=[fc2.*]",
    "train=[fc2.*] calibration=ccvr",
)
"""Settings by which a part sends something else than by default."""

SAID_ONLY = ("task", "model", "attack")
"""Groups of which messages have the settings alone, or nothing: what nodes get of them does not vary."""


def choices() -> Iterator[str]:
    for group, table in TABLES.items():
        if group not in SAID_ONLY:
            yield from (f"{group}={name}" for name in table)


def small(choice: str) -> list[str]:
    found = [each for each in SMALL if not choice.startswith(each.partition("=")[0] + "=")]
    needed = NEEDS.get(choice, ())
    if "two_d_lrd" not in choice:
        found.append(STEPS)
    if choice.startswith("partition="):  # what it sends does not vary
        found += ["rounds=1", "evaluate_clients=false"]
    return [*found, *choice.split(), *needed]


@pytest.mark.parametrize("choice", [*choices(), *MORE])
def test_the_messages_of_a_run_are_those_that_were_signed(choice: str, tmp_path: Path) -> None:
    config = compose([*small(choice), f"out='{tmp_path}'"])
    refuse_attack(config)
    try:
        prepared = preparation.prepare(config)
    except DataError as error:  # the task of these runs has no groups
        pytest.skip(str(error))
    grid = CheckedGrid(app, tmp_path / "nodes", prepared, files_of(choice, tmp_path))
    outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in, word=WORD)
    _check_what_left(choice, grid.left)
    if config.privacy.name == "local":
        for reply in grid.replies:  # a node that demands noise lets it leave
            root, *contents = objects(reply.content)
            PolicyTerms(NOISE, None).check_reply(
                Contents.of(root.decode(), {sha(each): each for each in contents})
            )
    assert outcome.rows[-1]["round"] == config.rounds and outcome.rows[-1]["clients"] == config.cohort_size
    for checking in grid.nodes.values():
        asked = checking.ledger._known[grid.terms.nonce].asked
        assert len(asked) <= grid.terms.messages
        assert len(asked) == grid.terms.messages or config.cohort_size < config.clients


def _check_what_left(choice: str, left: set[str]) -> None:
    """Nothing is missing in the list of what leaves a node, and what the part is said to send is sent."""
    of_part = {when: keys for when, keys in listed().items() if when == choice}
    known = [key for keys in listed().values() for key in keys]
    assert [key for key in sorted(left) if not any(re.fullmatch(each, key) for each in known)] == []
    for each in of_part.get(choice, []):
        assert any(re.fullmatch(each, key) for key in left), each


def test_every_part_in_the_list_is_one_that_is_run_here() -> None:
    parts = {when for when in listed() if when.partition("=")[0] in TABLES}
    assert parts <= {*choices()} and len(parts) > 4


@pytest.mark.parametrize(
    ("kind", "choice"), [(TwoDLRD, MORE[0]), (FedDisco, MORE[3]), (DifferentialPrivacy, MORE[4])]
)
def test_a_part_that_does_not_declare_what_varies_is_found(
    kind: type, choice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "varies", {})
    prepared = preparation.prepare(compose([*small(choice), f"out='{tmp_path}'"]))
    grid = CheckedGrid(app, tmp_path / "nodes", prepared)
    with pytest.raises(RefusedError, match=r"unlike the signed"):
        session.run(grid, prepared, on_folder=grid.keep_client_states_in, word=WORD)


def files_of(choice: str, folder: Path) -> list[Path]:
    """Data of the clients' own, where a run needs them."""
    if choice != "partition=own":
        return []
    config = compose(small("partition=iid"))
    source = data.load(config.task)
    parts = schemes.partition(config.partition, source.divisible, config.clients, config.seed)
    return save_partition(folder / "own", source, parts)


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fedadam"])
def test_two_models_are_signed_and_what_is_said_of_them_is_listed(strategy: str, tmp_path: Path) -> None:
    chosen = [
        "model=mlp",
        "clients=3",
        f"strategy={strategy}",
        f"out='{tmp_path}'",
        "task.metrics=[auroc,accuracy]",
    ]
    initial = preparation.prepare(compose(chosen)).evaluation.initial
    save_model(file := tmp_path / "model.safetensors", initial, 0)
    both = [f"initial='{file}'", f"against='{file}'", "rounds=0", "evaluate_clients=true"]
    prepared = preparation.prepare(compose([*chosen, *both]))
    grid = CheckedGrid(app, tmp_path / "nodes", prepared)
    session.run(grid, prepared, on_folder=grid.keep_client_states_in, word=WORD)
    _check_what_left("", grid.left)
    assert {"local/auroc", "against/auroc", "against/loss", "difference/auroc"} <= grid.left
    (form,) = [form for form in grid.terms.forms if form.kind == "evaluate"]
    assert set(form.records) == {wire.ARRAYS, wire.AGAINST}


@pytest.mark.parametrize("task", ["own", "of this machine"])
def test_a_run_that_only_asks_sends_the_one_message_that_was_signed(task: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{client}.csv" for client in range(3)]
    for number, path in enumerate(files):
        cells = [f"{40 + row + number},{'fm'[row % 2]},{'xy'[row % 3 == 0]},{row}" for row in range(60)]
        path.write_text("\n".join(["age,sex,ill,ward", *cells]))
    own = ["task=own_table", "task.columns=['age','sex=f|m']", "task.target=ill", "task.classes=[x,y]",
           "partition=own", "model=mlp", "clients=3"]  # fmt: skip
    config = compose(
        [
            *(own if task == "own" else ["task=breast_cancer", "partition=iid", *SMALL[:2]]),
            "rounds=7",
            f"out='{tmp_path}'",
        ]
    )
    prepared = preparation.prepare(config)
    grid = CheckedGrid(app, tmp_path / "nodes", prepared, files if task == "own" else (), describes=True)
    sites = data_descriptions.ask(grid, prepared, WORD)
    assert [each.said is not None and each.said.rows >= 20 for each in sites] == [True] * 3
    assert grid.terms.messages == 1 and [form.name for form in grid.terms.forms] == ["description"]
    assert [each[wire.DESCRIPTION] for each in grid.configs] == [True] * 3
    _check_what_left("a description (`fedstride check`), with who answers", grid.left)
    with pytest.raises(RefusedError, match="unlike the signed 'description'"):
        session.run(grid, prepared, on_folder=grid.keep_client_states_in, word=WORD)


def test_every_half_belongs_to_a_strategy_above() -> None:
    strategies = TABLES["strategy"]
    asked = {getattr(strategies.load(name), "half", "") for name in strategies}
    assert asked - {""} == set(for_server_rules.known())


@pytest.mark.parametrize("group", SAID_ONLY[:2])
def test_the_settings_of_every_task_and_model_are_values_that_can_be_signed(group: str) -> None:
    table = TABLES[group]
    for name in table:
        values = {key: field.default for key, field in table.all_fields(name).items()}
        plain = {f"{group}.{key}": value for key, value in values.items() if _is_plain(value)}
        form = MessageForm("roll call", "query", {f"{group}.name": name, **plain}, {}, {})
        (read,) = load(signed_text(terms_of((form,)))).terms.forms
        assert read.differences(MessageContent("query", form.fixed, {})) == []


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float, str, list))


def test_the_statistics_of_columns_come_once_and_are_then_the_same(tmp_path: Path) -> None:
    """The roll call asks for them, and later messages have what the server computed, which nobody could sign."""
    rows = [f"{40 + client + number},{'f' if number % 2 else 'm'},{'x' if number % 3 else 'y'}"
            for client in range(3) for number in range(30)]  # fmt: skip
    files = []
    for client in range(3):
        files.append(tmp_path / f"{client}.csv")
        files[-1].write_text("\n".join(["age,sex,ill", *rows[client * 30 : client * 30 + 30]]))
    config = compose(
        [
            "task=own_table", "task.columns=['age','sex=f|m']", "task.target=ill", "task.classes=[x,y]",
            "model=mlp", "partition=own", "clients=3", "rounds=2", "client.local_steps=2", f"out='{tmp_path}'",
        ]
    )  # fmt: skip
    grid = CheckedGrid(app, tmp_path / "nodes", preparation.prepare(config), files)
    prepared = preparation.prepare(config)
    session.run(grid, prepared, on_folder=grid.keep_client_states_in, word=WORD)
    said = [each["spec.mean"] for each in grid.configs if "spec.mean" in each]
    assert len(said) >= 6 and all(each == said[0] for each in said)
    assert any(each.get(wire.MOMENTS) for each in grid.configs)
