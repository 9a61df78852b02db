"""`method=A+B`, one name for all parts of a method, and `method=all` in a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_app.parts import OBJECTIVES, RULES
from fedstride.errors import ConfigError, FedstrideError
from lab.engine.plan import checked, expand, plan
from server_app.config.compose import compose, to_yaml
from server_app.config.methods import PARTS, alone, expand_method, plain
from server_app.config.overrides import expand_wrappers
from strategies.parts import STRATEGIES


def test_the_first_part_of_each_table_is_plain_averaging() -> None:
    assert [plain(table) for table in PARTS] == ["fedavg", "sgd", "plain"]


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
    assert expand_method(["rounds=3", f"method={method}", "seed=2"]) == ["rounds=3", "seed=2", *expected]


def test_the_same_configuration_as_with_the_parts_named_singly() -> None:
    singly = compose(["strategy=feddisco+fedlws", "client=fednlr", "objective=fedprox", "client.lr=0.02"])
    assert to_yaml(compose(["method=fedprox+feddisco+fednlr+fedlws", "client.lr=0.02"])) == to_yaml(singly)


def test_a_wrapper_alone_keeps_the_averaging_that_its_paper_has() -> None:
    assert to_yaml(compose(["method=two_d_lrd"])) == to_yaml(compose(["strategy=two_d_lrd"]))


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
        (["method=", "rounds=1"], "unknown method ''"),
    ],
)
def test_a_method_that_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(overrides)


# ---------------------------------------------------------------- sweeps


def test_all_means_every_part_alone_once() -> None:
    rows = expand(["method=all,fedprox,feddyn+fednlr", "seed=1,2"])
    methods = [row[0].partition("=")[2] for row in rows[::2]]
    assert methods == [*alone(), "feddyn+fednlr"]
    assert len(set(methods)) == len(methods) == len(STRATEGIES) + len(RULES) + len(OBJECTIVES) - 2 + 1
    assert [row[1] for row in rows[:2]] == ["seed=1", "seed=2"]


def test_each_method_alone_is_a_run_or_is_left_out_with_the_reason(tmp_path: Path) -> None:
    sweep = checked(plan([f"out={tmp_path}", "method=all", "clients=10"]))
    assert [job.overrides[1].partition("=")[2] for job in sweep.jobs] == [m for m in alone() if m != "fedlaw"]
    assert [note for note in sweep.notes if "left out" in note] == [
        note for note in sweep.notes if note.startswith("method=fedlaw is left out: ") and "task.proxy" in note
    ]
    assert len({job.folder for job in sweep.jobs}) == len(sweep.jobs)


def test_a_method_that_is_named_is_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(FedstrideError, match=r"task\.proxy"):
        checked(plan([f"out={tmp_path}", "method=all,fedlaw"]))


def test_methods_that_the_loss_of_a_task_excludes_are_left_out(tmp_path: Path) -> None:
    sweep = checked(plan([f"out={tmp_path}", "method=all", "task=diabetes", "model=mlp", "partition=iid"]))
    left_out = {note.partition(" ")[0].partition("=")[2] for note in sweep.notes if "left out" in note}
    without_mse = {name for t in PARTS for name in t if t[name].losses and "mse" not in t[name].losses}
    assert left_out == without_mse | {"feddisco"}  # which needs classes


def test_what_no_method_can_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rounds"):
        plan([f"out={tmp_path}", "method=all", "rounds=-1"])


def test_own_parts_are_methods_too(tmp_path: Path) -> None:
    file = tmp_path / "halved.py"
    file.write_text(
        "from strategies import FedAvg\n"
        "from fedstride import part\n\n"
        "@part(strategy='halved')\n"
        "class Halved(FedAvg):\n"
        "    'FedAvg of another name.'\n"
    )
    sweep = plan([f"out={tmp_path}", f"parts='{file}'", "method=all"])
    assert "method=halved" in {job.overrides[2] for job in sweep.jobs}


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two runs of the sweep have the same name"):
        plan([f"out={tmp_path}", "seed=1,1"])


def test_a_calibration_is_in_the_name_of_a_run(tmp_path: Path) -> None:
    names = [job.folder.name for job in plan([f"out={tmp_path}", "calibration=none,ccvr"]).jobs]
    assert [name.replace("-ccvr", "") for name in names] == [names[0], names[0]]
    assert names[0] != names[1]


def test_wrappers_are_expanded_after_the_method() -> None:
    assert expand_wrappers(expand_method(["method=feddyn+fedlws"]))[:2] == [
        "strategy=fedlws",
        "strategy@strategy.inner=feddyn",
    ]
