"""The papers' tables as data, the matching of runs, and the comparison with our results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from folders import Call, config, make

import lab.papers
from fedstride.errors import ConfigError
from fedstride.tasks.registry import MODELS, PARTITIONS
from lab.papers import experiment, experiment_names, experiment_of, paper_table, table_names
from lab.papers.matching import canonical, deviations, is_line, misfits
from lab.papers.side_by_side import printed, side_by_side
from lab.results.formats import TableFormat, write
from lab.results.run_folders import Run
from lab.results.tables import Statistic
from server_app.config.schema import Config

FOLDER = Path(lab.papers.__file__).parent
STARTED = "2026-01-01T10:00:00+0000"


def mnist(*overrides: str) -> Config:
    """A setting of FedNNNN's table 2: MNIST, 100 clients with two classes each."""
    settings = config("clients=100", "task=mnist", *overrides)
    settings.partition = PARTITIONS.config("pathological")(classes_per_client=2)
    return settings


def cifar(*overrides: str, model: str = "resnet20", clients: int = 20) -> Config:
    """A setting of FedLWS's tables: CIFAR-10, Dirichlet 0.1."""
    return config(f"clients={clients}", "task=cifar10", f"model={model}", *overrides)


def run(settings: Config, accuracy: float | list[float] = 0.9) -> Run:
    """A completed run with these accuracies, without a folder."""
    values = accuracy if isinstance(accuracy, list) else [accuracy]
    rows: list[dict[str, Any]] = [
        {"round": t, "test/accuracy": value, "seconds/aggregate": 0.5 * t}
        for t, value in enumerate(values, start=1)
    ]
    return Run(
        Path(f"/runs/{settings.seed}-{id(rows)}"), settings, rows, {"state": "completed", "started": STARTED}
    )


def column(table: str, key: str) -> Any:
    return next(c for c in paper_table(table).columns if c.key == key)


def line(table: str, method: str, variant: str | None = None) -> Any:
    return next(r for r in paper_table(table).rows if (r.method, r.variant) == (method, variant))


# ---------------------------------------------------------------- the data


def test_tables_are_as_in_the_file() -> None:
    tree = yaml.safe_load((FOLDER / "papers.yaml").read_text())
    assert table_names() == [f"{paper}/{table}" for paper in tree for table in tree[paper]["tables"]]
    for name in table_names():
        paper, key = name.split("/")
        table, raw = paper_table(name), tree[paper]["tables"][key]
        assert table.caption == raw["caption"]
        assert [list(row.values) for row in table.rows] == [row["values"] for row in raw["rows"]]
        assert all(len(row.values) == len(table.columns) for row in table.rows)
        assert all(row.std is None or len(row.std) == len(row.values) for row in table.rows)
        assert len({(row.method, row.variant) for row in table.rows}) == len(table.rows)


def test_some_numbers_of_the_tables() -> None:
    table = paper_table("fednnnn/table2")
    assert (table.metric, table.unit, table.columns[2].key) == ("top1_accuracy", "percent", "mnist_noniid_b")
    assert line("fednnnn/table2", "fednnnn").values[2] == 99.1
    assert line("fedlws/table4", "fedavg+fedlws", "model_wise").values[1] == 63.21
    assert line("fednlr/table1", "fednlr").std[0] == 0.48


def test_experiments_are_complete() -> None:
    found = experiment("fednnnn/table2_mnist_noniid_b")
    assert (found["rounds"], found["learning_rate"], found["methods"]["fednnnn"]["beta"]) == (100, 0.05, 0.7)
    assert experiment_of("fednnnn/table2", "mnist_noniid_b") == found
    assert experiment_of("fednnnn/table2", "nothing") is None
    assert len(experiment_names()) > 100
    for name in experiment_names():
        results = experiment(name)["results"]
        if results is not None and results["column"] is not None:
            keys = [c.key for c in paper_table(f"{name.partition('/')[0]}/{results['table']}").columns]
            assert results["column"] in keys


def test_unknown_names_give_similar_names() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown table of a paper 'fedlws/tabel4'\. Did you mean 'fedlws/table4'"
    ):
        paper_table("fedlws/tabel4")
    with pytest.raises(ConfigError, match="Did you mean 'fedlws/fig6_beta'"):
        experiment("fedlws/fig6beta")


# ---------------------------------------------------------------- matching


def test_a_run_matches_the_column_of_its_setting() -> None:
    table = paper_table("fednnnn/table2")
    assert [c.key for c in table.columns if not misfits(table, c, mnist())] == ["mnist_noniid_b"]
    table = paper_table("fedlws/table1")
    assert [c.key for c in table.columns if not misfits(table, c, cifar())] == ["cifar10_a0.1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 10}, "clients is 10, not 100"),
        ({"task": "mnist5k"}, "task is mnist5k (contains 5,000 of MNIST's 70,000 images), not mnist"),
        ({"model": "mlp"}, "model is mlp, not cnn_mnist"),
        ({"classes": 3}, "classes_per_client is 3, not 2"),
    ],
)
def test_a_different_run_does_not_match_and_reports_the_difference(change: dict[str, Any], message: str) -> None:
    settings = mnist()
    settings.clients = change.get("clients", settings.clients)
    settings.task.name = change.get("task", settings.task.name)
    settings.model = MODELS.config(change.get("model", settings.model.name))()
    settings.partition.classes_per_client = change.get("classes", 2)
    assert misfits(paper_table("fednnnn/table2"), column("fednnnn/table2", "mnist_noniid_b"), settings) == [
        message
    ]


def test_a_stated_value_that_a_run_does_not_have_is_a_difference() -> None:
    # the classes are right, the sizes are equal
    found = misfits(paper_table("fednnnn/table2"), column("fednnnn/table2", "mnist_noniid_ub"), mnist())
    assert found == ["balanced is true, not false", "sizes is null, not power_law"]


@pytest.mark.parametrize(
    ("table", "key", "clients", "name", "chosen"),
    [
        ("fednnnn/table2", "mnist_noniid_b", 100, "two_classes", {}),
        ("fednnnn/table2", "mnist_noniid_ub", 100, "two_classes", {"sizes": "power_law"}),
        ("fednnnn/table2", "mnist_iid_b", 100, "iid", {}),
        ("fednnnn/table2", "mnist_iid_ub", 100, "quantity_skew", {}),
        ("fednlr/table1", "cifar100_shards20", 20, "shards", {"classes_per_client": 20}),
        ("fednlr/table4", "n1", 20, "one_class", {}),
        ("fedalr/table1", "cifar10_c2", 100, "sorted_shards", {}),
        ("fedalr/table1", "cifar10_d0.1", 100, "dirichlet_by_client", {"alpha": 0.1}),
        ("two_d_lrd/table3", "cifar10", 12, "sorted_shards", {"shards_per_client": 1}),
        ("fedlws/table2", "amazon_feature_shift", 20, "by_group", {}),
    ],
)
def test_partitions_of_the_papers(table: str, key: str, clients: int, name: str, chosen: dict[str, Any]) -> None:
    settings = config(f"clients={clients}")
    settings.partition = PARTITIONS.config(name)(**chosen)
    wrong = misfits(paper_table(table), column(table, key), settings)
    properties = (
        "partition",
        "balanced",
        "sizes",
        "classes_per_client",
        "shards_total",
        "shards_per_client",
        "alpha",
    )
    assert not [line for line in wrong if line.startswith((*properties, "clients"))]


def test_other_partitions_do_not_match() -> None:
    settings = config("clients=100")
    settings.partition = PARTITIONS.config("two_classes")(sizes="power_law")
    found = misfits(paper_table("fednnnn/table2"), column("fednnnn/table2", "mnist_noniid_b"), settings)
    assert "balanced is false, not true" in found
    settings.partition = PARTITIONS.config("shards")(balanced=True)
    found = misfits(paper_table("fednlr/table1"), column("fednlr/table1", "cifar10_shards2"), settings)
    assert "balanced is true, not false" in found


def test_a_value_that_the_paper_does_not_state_matches_any() -> None:
    assert misfits(paper_table("fedlws/table3"), column("fedlws/table3", "resnet20"), cifar(clients=7)) == []


def test_settings_of_the_experiment_are_compared() -> None:
    table, setting3 = paper_table("fedalr/fig3_text"), column("fedalr/fig3_text", "cifar10_d0.1_setting3")
    settings = cifar("client.lr=0.01", "client.batch_size=64", "fraction=0.2", model="cnn2conv3fc", clients=100)
    assert misfits(table, setting3, settings) == []
    settings.client.batch_size = 10
    assert misfits(table, setting3, settings) == ["batch_size is 10, not 64"]
    table, lr = paper_table("fednlr/fig2"), column("fednlr/fig2", "lr0.05")
    assert "client.lr is 0.01, not 0.05" in misfits(table, lr, cifar("client.lr=0.01"))


def test_methods_have_one_canonical_name() -> None:
    assert canonical("fednlr") == canonical("fedavg+fednlr") == "fedavg+fednlr"
    assert canonical("fedprox+fedlws") == "fedprox+fedlws"


def test_variants_match_by_their_settings() -> None:
    table, place = paper_table("fedlws/table4"), column("fedlws/table4", "cifar10_a0.1")
    model_wise, layer_wise = (
        line(table.name, "fedavg+fedlws", "model_wise"),
        line(table.name, "fedavg+fedlws", "layer_wise"),
    )
    by_model = run(cifar("strategy=fedlws", "strategy.granularity=model"))
    by_layer = run(cifar("strategy=fedlws"))
    assert [is_line(table, place, model_wise, each) for each in (by_model, by_layer)] == [True, False]
    assert [is_line(table, place, layer_wise, each) for each in (by_model, by_layer)] == [False, True]


def test_deviations_from_the_papers_experiment_are_listed() -> None:
    table, place = paper_table("fednnnn/table2"), column("fednnnn/table2", "mnist_noniid_b")
    settings = mnist("strategy=fednnnn", "strategy.gamma=0.5", "rounds=100", "client.local_epochs=5")
    assert deviations(table, place, line(table.name, "fednnnn"), settings) == [
        "weighting examples (paper: uniform)",
        "gamma 0.5 (paper: 0.8)",
    ]
    # 2D-LRD: the paper's C is our attenuation; its local iterations are a setting of our strategy
    table, place = paper_table("two_d_lrd/table3"), column("two_d_lrd/table3", "cifar10")
    settings = cifar("strategy=two_d_lrd", "strategy.attenuation=0.1", "strategy.local_steps=5", "client.lr=0.01")
    found = deviations(table, place, line(table.name, "two_d_lrd"), settings)
    assert {"local iterations 5 (paper: 10)", "attenuation 0.1 (paper: 0.2)", "window 5 (paper: 500)"} <= set(
        found
    )
    assert not any(text.startswith("learning_rate") for text in found)


# ---------------------------------------------------------------- side by side


def test_numbers_of_the_paper_and_ours_and_their_difference() -> None:
    # paper: 98.2; ours: 97 and 99, so mean 98, deviation sqrt(2), difference -0.2
    runs = [run(mnist("strategy=fedavg", f"seed={seed}"), value) for seed, value in ((1, 0.97), (2, 0.99))]
    made = side_by_side(paper_table("fednnnn/table2"), runs)
    assert made.grid().rows == [["mnist_noniid_b", "fedavg", "98.2", "98.00 ± 1.41 (n=2)", "-0.20", "last 1"]]
    (row,) = made.sheet().rows
    assert row[:5] == ["fednnnn/table2", "mnist_noniid_b", "fedavg", 98.2, None]
    assert row[5:] == [pytest.approx(98.0), pytest.approx(2**0.5), 2, -0.2, "last 1"]
    (remark,) = made.remarks
    assert remark.startswith("mnist_noniid_b, fedavg differs from the paper: rounds 20 (paper: 100)")


def test_our_variants_and_settings_get_separate_lines() -> None:
    runs = [
        run(mnist("strategy=fednnnn", f"strategy.beta={beta}", f"rounds={r}"))
        for beta in (0.6, 0.7)
        for r in (5, 9)
    ]
    made = side_by_side(paper_table("fednnnn/table2"), runs)
    assert [pair.method for pair in made.pairs] == [
        f"fednnnn beta={beta}, rounds={r}" for beta in (0.6, 0.7) for r in (5, 9)
    ]


def test_the_statistic_of_the_paper_is_the_default() -> None:
    settings = cifar("strategy=fedavg", "client=fednlr", model="vgg9")
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]  # mean of the last 5: 0.5
    (pair,) = side_by_side(paper_table("fednlr/table1"), [run(settings, values)]).pairs
    assert (pair.statistic, pair.ours.mean) == (Statistic(last=5), pytest.approx(0.5))
    (pair,) = side_by_side(paper_table("fednlr/table1"), [run(settings, values)], Statistic(best=True)).pairs
    assert pair.ours.mean == pytest.approx(0.7)


def test_a_calibrated_copy_has_the_row_of_its_calibration() -> None:
    """The model of a run with CCVR is FedAvg's; its copy is CCVR's row, by a metric of its own."""
    settings = cifar("strategy=fedavg", "calibration=ccvr", "calibration.rounds=2", model="vgg9")
    settings.task.name = "cinic10"
    settings.partition = PARTITIONS.config("shards")(classes_per_client=4)
    with_copy, without = run(settings, [0.5, 0.5]), run(cifar("strategy=fedavg", model="vgg9"))
    for row, value in zip(with_copy.rows, (0.61, 0.63), strict=True):
        row["ccvr/accuracy"] = value
    made = side_by_side(paper_table("fednlr/table2"), [with_copy], Statistic(last=2))
    assert [(pair.method, pair.paper, pair.metric) for pair in made.pairs] == [
        ("fedavg", 53.03, "test/accuracy"),
        ("fedavg+ccvr", 51.31, "ccvr/accuracy"),
    ]
    assert [row[3] for row in made.grid().rows] == ["50.00 (n=1)", "62.00 (n=1)"]
    table, place = paper_table("fednlr/table2"), column("fednlr/table2", "cinic10_shards4")
    assert not is_line(table, place, line(table.name, "ccvr"), without)


def test_aggregation_times_are_averaged_over_all_rounds() -> None:
    (pair,) = side_by_side(paper_table("fedlws/table3"), [run(cifar("strategy=fedavg"), [0.5, 0.5, 0.5])]).pairs
    assert (pair.paper, pair.ours.mean) == (0.10, pytest.approx(1.0))  # 0.5, 1.0, 1.5


def test_mnist5k_is_not_the_papers_mnist() -> None:
    made = side_by_side(paper_table("fednnnn/table2"), [run(config("strategy=fedavg"))])
    assert made.pairs == []
    assert made.grid().rows[0] == ["fedavg", "99.0", "81.3", "98.2", "72.6", "99.1", "83.5", "93.5", "56.6"]
    assert "mnist5k (contains 5,000 of MNIST's 70,000 images), not mnist" in made.remarks[0]
    assert "  mnist_iid_b: mnist, iid balanced=true clients=100, cnn_mnist" in made.remarks


def test_a_part_of_the_papers_data_is_no_silent_difference() -> None:
    part = run(cifar("strategy=fedavg"))
    part.status["subset"] = "a subset: 5,000 of 50,000 training examples"
    made = side_by_side(paper_table("fedlws/table1"), [part])
    assert len(made.pairs) == 1 and "cifar10 is a subset: 5,000 of 50,000 training examples" in made.remarks
    both = side_by_side(paper_table("fedlws/table1"), [part, run(cifar("strategy=fedavg", "seed=2"))])
    assert [(pair.ours.n, pair.method.partition(", ")[2]) for pair in both.pairs] == [
        (1, "examples=a subset: 5,000 of 50,000 training examples"),
        (1, "examples=all"),
    ]  # seeds of one mean have the same data


def test_remarks_on_a_method_without_a_row_and_on_a_failed_run() -> None:
    failed = run(mnist("strategy=fedavg"))
    failed.status["state"] = "failed"
    made = side_by_side(paper_table("fednnnn/table2"), [run(mnist("strategy=fedalr")), failed])
    assert made.remarks[0].startswith(f"left out: {failed.folder} failed")
    assert made.remarks[1] == "1 run not matched: mnist_noniid_b has no row for fedalr with the run's parameters"


def test_tables_that_no_run_measures_are_printed_without_our_results() -> None:
    made = side_by_side(paper_table("fednnnn/table1"), [run(mnist())])
    assert made.grid().rows[0] == ["mnist", "100", "1", "100", "50", "5", "0.05", "0", "false"]
    assert made.remarks == [
        "fednnnn/table1 is about setting, and only top1_accuracy and aggregation_time are compared"
    ]


@pytest.mark.parametrize("name", table_names())
def test_every_table_can_be_printed_in_every_format(name: str) -> None:
    made = side_by_side(paper_table(name), [])
    assert made.grid() == printed(paper_table(name))
    for form in TableFormat:
        assert len(write([(made.grid(), made.sheet())], form).splitlines()) > len(paper_table(name).rows)


def test_numbers_have_the_digits_of_the_paper() -> None:
    assert printed(paper_table("fednlr/table1")).rows[0][2] == "78.10 ± 0.52"
    assert printed(paper_table("fednnnn/table3")).rows[1][1:] == ["1 x 28 x 28", "20 x 24 x 24", "5", "1"]


def test_the_command_prints_only_the_paper_if_no_run_matches(tmp_path: Path, call: Call) -> None:
    make(tmp_path / "a", config("strategy=fedavg"))
    for arguments in ([], [tmp_path]):
        code, out, err = call("table", "--paper", "fedalr/table1", "--format", "csv", *arguments)
        assert code == 0
        assert "fedalr,72.15,68.68,32.21,26.21" in out.splitlines()
        assert "no run matches; only the paper's numbers are shown" in err


def test_the_command_prints_both_side_by_side(tmp_path: Path, call: Call) -> None:
    make(tmp_path / "a", mnist("strategy=fedavg"), [0.97])
    code, out, _ = call("table", tmp_path, "--paper", "fednnnn/table2", "--format", "markdown")
    assert code == 0
    assert "| mnist_noniid_b | fedavg | 98.2 | 97.00 (n=1) | -1.20 | last 1 |" in out
