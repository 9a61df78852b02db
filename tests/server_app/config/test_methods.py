"""`method=A+B`, one name for all parts of a method, and `method=all` in a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_app.registry import OBJECTIVES, RULES
from fedstride.errors import ConfigError, FedstrideError
from lab.engine.sweep_combinations import PlannedRun, checked, expand, plan
from server_app.config.attacks import ATTACKS
from server_app.config.compose import compose, to_yaml
from server_app.config.keys import label
from server_app.config.methods import PARTS, alone, expand_method, plain
from server_app.config.overrides import parse
from strategies.registry import STRATEGIES

AT_SERVER = {"fedlaw", "validated"}
"""Methods that need examples at the server."""


def test_the_first_part_of_each_table_is_plain_averaging() -> None:
    assert [plain(table) for table in PARTS] == ["fedavg", "sgd", "plain"]


def expanded(*texts: str) -> list[str]:
    return [f"{each.key}={each.name}" for each in expand_method(parse(texts))]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("fedavg", ["strategy=fedavg", "client=sgd", "objective=plain"]),
        ("feddyn+fednlr", ["strategy=feddyn", "client=fednlr", "objective=plain"]),
        ("fednlr+feddyn", ["strategy=feddyn", "client=fednlr", "objective=plain"]),
        ("fedprox", ["strategy=fedavg", "client=sgd", "objective=fedprox"]),
        ("moon+fedlws", ["strategy=fedlws", "client=sgd", "objective=moon"]),
        ("fedlws+fednnnn+two_d_lrd", ["strategy=fednnnn+fedlws+two_d_lrd", "client=sgd", "objective=plain"]),
    ],
)
def test_a_method_chooses_a_part_of_each_group(method: str, expected: list[str]) -> None:
    assert expanded("rounds=3", f"method={method}", "seed=2") == ["rounds=3", "seed=2", *expected]


def test_the_same_configuration_as_with_the_parts_named_singly() -> None:
    singly = compose(["strategy=feddisco+fedlws", "client=fednlr", "objective=fedprox", "client.lr=0.02"])
    assert to_yaml(compose(["method=fedprox+feddisco+fednlr+fedlws", "client.lr=0.02"])) == to_yaml(singly)


def test_a_wrapper_alone_keeps_the_averaging_that_its_paper_has() -> None:
    assert to_yaml(compose(["method=two_d_lrd"])) == to_yaml(compose(["strategy=two_d_lrd"]))


def test_a_wrapper_alone_is_around_plain_averaging_whatever_the_experiment_has_inside() -> None:
    config = compose(["experiment=fedlws/table8_cifar10_a0.1", "method=fedlws"])
    assert label(config) == "fedavg+fedlws"
    assert label(compose(["experiment=fedlws/table8_cifar10_a0.1", "strategy=fedlws"])) == "feddisco+fedlws"


def test_quotes_and_spaces_are_those_of_any_override() -> None:
    for text in ("method='fedprox+fednlr'", "method= fedprox+fednlr", 'method="fedprox+fednlr"'):
        assert expanded(text) == ["strategy=fedavg", "client=fednlr", "objective=fedprox"]


def test_a_method_replaces_the_parts_of_the_experiment() -> None:
    config = compose(["experiment=fednlr/table1_cifar10_dir0.1", "method=scaffold"])
    assert (config.strategy.name, config.client.name) == ("scaffold", "sgd")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["method=fedprx"], "unknown method 'fedprx'.*fedprox"),
        (["method=feddyn+scaffold"], "feddyn and scaffold are both strategy parts"),
        (["method=fedprox+moon"], "fedprox and moon are both objective parts"),
        (["method=all"], "use all alone, in fedstride run -m"),
        (["method=fedprox", "client=fednlr"], "'client=fednlr' is not allowed beside method=fedprox"),
        (["method=", "rounds=1"], "unknown method"),
        (["method=fedavg,fedprox"], "has several values, but a single run needs exactly one"),
        (["method=fedavg", "method=fedprox"], "method=fedavg and method=fedprox are given"),
        (["methods=fedavg"], "unknown key 'methods'.*'method'"),
        (["rounds@client=3"], "'rounds@client=3' is not allowed"),
    ],
)
def test_a_method_that_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(overrides)


def test_a_resumed_run_has_the_whole_method(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(compose(["method=feddyn+fedlws"])))
    assert label(compose([f"resume='{tmp_path}'", "method=feddyn+fedlws", "rounds=30"])) == "feddyn+fedlws"
    with pytest.raises(ConfigError, match="method is fedavg\\+fedlws, but the run has feddyn\\+fedlws"):
        compose([f"resume='{tmp_path}'", "method=fedlws"])


# ---------------------------------------------------------------- sweeps


def methods(jobs: list[PlannedRun]) -> list[str]:
    return [next(text for text in job.overrides if text.startswith("method=")).partition("=")[2] for job in jobs]


def test_all_means_every_part_alone_once() -> None:
    rows = expand(["method=all,fedprox,feddyn+fednlr", "seed=1,2"])
    found = [row[0].text.partition("=")[2] for row in rows[::2]]
    assert sorted(found) == sorted([*alone(), "feddyn+fednlr"])
    assert len(set(found)) == len(found) == len(STRATEGIES) + len(RULES) + len(OBJECTIVES) - 2 + 1
    assert [row[1].text for row in rows[:2]] == ["seed=1", "seed=2"]


@pytest.mark.parametrize("text", ["method=all, fedprox", "method=choice(all,fedprox)", "method='all',fedprox"])
def test_only_what_nobody_named_comes_from_all(text: str) -> None:
    values = [row[0] for row in expand([text])]
    assert {value.text.partition("=")[2] for value in values if not value.from_all} == {"fedavg", "fedprox"}
    assert len(values) == len(alone())


@pytest.mark.slow
def test_each_method_alone_is_a_run_or_is_left_out_with_the_reason(tmp_path: Path) -> None:
    planned = plan([f"out={tmp_path}", "method=all", "clients=10"])
    sweep = checked(planned)
    assert methods(sweep.jobs) == methods(planned.jobs) == [m for m in alone() if m not in AT_SERVER]
    for note, method in zip(sweep.notes, sorted(AT_SERVER, key=alone().index), strict=True):
        assert note.startswith(f"method={method} is left out: ") and "task.proxy" in note
    assert len({job.folder for job in sweep.jobs}) == len(sweep.jobs)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["method=all,fedlaw", "method=fedlaw, all", "method=fedavg, fedlaw"])
def test_a_method_that_is_named_is_not_left_out(tmp_path: Path, text: str) -> None:
    with pytest.raises(FedstrideError, match=r"task\.proxy"):
        plan([f"out={tmp_path}", text])


@pytest.mark.slow
def test_methods_that_the_loss_of_a_task_excludes_are_left_out(tmp_path: Path) -> None:
    tasks = ["task=diabetes,breast_cancer", "model=mlp", "partition=iid"]
    with pytest.raises(FedstrideError, match="feddisco"):
        checked(plan([f"out={tmp_path}", "method=feddisco", *tasks]))
    sweep = checked(plan([f"out={tmp_path}", "method=all", *tasks]))
    without_mse = {name for t in PARTS for name in t if t[name].losses and "mse" not in t[name].losses}
    expected = {f"method={name} task=diabetes" for name in (without_mse | {"feddisco"}) - AT_SERVER}
    without = {f"method={name}" for name in AT_SERVER}
    assert {note.partition(" is left out")[0] for note in sweep.notes} == expected | without


def test_what_no_method_can_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rounds"):
        plan([f"out={tmp_path}", "method=all", "rounds=-1"])


@pytest.mark.slow
def test_own_parts_are_methods_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "halved.py"
    file.write_text(
        "from strategies import FedAvg\n"
        "from fedstride import part\n\n"
        "@part(strategy='halved')\n"
        "class Halved(FedAvg):\n"
        "    'FedAvg of another name.'\n"
    )
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    assert file.exists()
    sweep = plan([f"out={tmp_path}", "parts='${oc.env:SCRATCH}/halved.py'", "method=all,fedavg"])
    assert "halved" in methods(sweep.jobs)


@pytest.mark.slow
def test_one_run_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the sweep has the same run twice"):
        plan([f"out={tmp_path}", "seed=1,1"])
    assert methods(plan([f"out={tmp_path}", "method=all,fedavg+fedprox"]).jobs).count("fedprox") == 0


@pytest.mark.parametrize(
    "swept",
    [
        "model=mlp,cnn_mnist",
        "calibration=none,ccvr",
        "experiment=quickstart,attacks",
        "method=two_d_lrd,fedavg+two_d_lrd",
        "client.exclude=[conv1],[conv2]",
    ],
)
def test_different_runs_have_different_folders(tmp_path: Path, swept: str) -> None:
    client = ["client=fednlr"] if "method" not in swept else []
    first, second = plan([f"out={tmp_path}", *client, swept]).jobs
    assert first.folder != second.folder


def test_values_whose_names_are_shown_alike_get_a_part_of_a_hash(tmp_path: Path) -> None:
    first, second = plan([f"out={tmp_path}", "client=fednlr", "client.exclude=[a/b],[a_b]"]).jobs
    assert second.folder.name.startswith(f"{first.folder.name}-")


def test_the_experiment_of_attacks_takes_another_partition() -> None:
    assert compose(["experiment=attacks", "partition=iid"]).partition.name == "iid"
    assert compose(["experiment=attacks"]).partition.alpha == 0.5  # type: ignore[attr-defined]


def test_the_experiment_of_attacks_has_two_attackers_with_every_attack() -> None:
    for name in set(ATTACKS) - {"none"}:
        assert compose(["experiment=attacks", f"attack={name}"]).attack.clients == 2  # type: ignore[attr-defined]
