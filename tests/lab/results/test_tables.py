"""Tables of results: numbers checked by hand, remarks on runs left out, all formats, invalid requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Call, config, make

from fedstride.errors import ConfigError
from lab.results import tables
from lab.results.formats import Grid, TableFormat, text, write
from lab.results.grouping import describe, differing, newest, plain, setting_values
from lab.results.run_folders import Run, load
from lab.results.tables import Statistic, TableComparison


def seeds(tmp_path: Path, *accuracy: list[float | None], strategy: str = "fedavg") -> list[Run]:
    """One run per seed, with these accuracies of rounds 1, 2, ..."""
    return [
        load(make(tmp_path / f"{strategy}-{seed}", config(f"strategy={strategy}", f"seed={seed}"), values))
        for seed, values in enumerate(accuracy, start=1)
    ]


def compare(runs: list[Run], metric: str = "test/accuracy", statistic: Statistic | None = None) -> TableComparison:
    return tables.compare(runs, metric, statistic)


def only(made: TableComparison) -> tuple[float, float | None, int, int]:
    """The numbers of a table with one cell."""
    (cell,) = made.cells.values()
    return cell.mean, cell.std, cell.n, cell.of


# ---------------------------------------------------------------- numbers


@pytest.mark.slow
def test_mean_and_sample_deviation_of_the_last_round(tmp_path: Path) -> None:
    # 0.90, 0.92, 0.97: mean 0.93; squares of the differences 0.0009, 0.0001, 0.0016, sum / 2 = 0.0013
    made = compare(seeds(tmp_path, [0.1, 0.90], [0.2, 0.92], [0.3, 0.97]))
    assert only(made) == (pytest.approx(0.93), pytest.approx(0.0013**0.5), 3, 3)
    grid = made.grid()
    assert grid.rows == [["fedavg", "93.00 ± 3.61"]]
    assert grid.title == "test accuracy (%), last round, mean ± standard deviation over seeds (n = 3)"
    assert grid.head == ["method", "mnist5k, dirichlet alpha=0.1, 10 clients"]


def test_the_best_round_of_a_time_is_the_shortest(tmp_path: Path) -> None:
    run = load(make(tmp_path / "a", config(), [0.5] * 3, extra=lambda number: {"seconds/aggregate": 0.5 / number}))
    made = compare([run], "seconds/aggregate", Statistic(best=True))
    assert only(made)[0] == 0.5 / 3
    assert made.grid().title.startswith("aggregate time (s), best round")


def test_mean_of_the_last_rounds_best_and_rounds_to_a_target(tmp_path: Path) -> None:
    # rounds without evaluation (None) do not count
    runs = seeds(tmp_path, [0.6, 0.9, None, 0.7], [0.5, 0.6, 0.7, 0.8])
    assert only(compare(runs, statistic=Statistic(last=2)))[0] == pytest.approx((0.8 + 0.75) / 2)
    assert only(compare(runs, statistic=Statistic(last=100)))[0] == pytest.approx((2.2 / 3 + 0.65) / 2)
    assert only(compare(runs, statistic=Statistic(best=True)))[0] == pytest.approx(0.85)
    # 0.7 is reached in rounds 2 and 3: 2.5, deviation sqrt(0.5)
    assert only(compare(runs, statistic=Statistic(target=0.7))) == (2.5, pytest.approx(0.5**0.5), 2, 2)
    # only the first run reaches 0.9
    made = compare(runs, statistic=Statistic(target=0.9))
    assert only(made) == (2.0, None, 1, 2)
    assert made.grid().rows[0][1] == "2.0 (1 of 2)"
    made = compare(runs, statistic=Statistic(target=0.95))
    assert made.grid().rows[0][1] == "– (0 of 2)"
    assert made.sheet().rows[0][3:] == ["rounds to 0.95", None, None, 0, 2]


@pytest.mark.parametrize(
    ("accuracy", "last", "title", "mean"),
    [
        ([0.1, 0.2, 0.3, 0.4], 3, "mean of the last 3 rounds", 0.3),
        ([None, 0.2, None, 0.4, None, 0.6], 2, "mean of the last 2 evaluations", 0.5),
        ([0.1, None, None, 0.4], 1, "last round", 0.4),
        ([0.1, 0.3, None], 1, "last evaluation", 0.3),
        ([0.1, 0.3, 0.5, None], 2, "mean of the last 2 evaluations", 0.4),
    ],
)
def test_the_title_says_rounds_only_if_each_was_evaluated(
    tmp_path: Path, accuracy: list[float | None], last: int, title: str, mean: float
) -> None:
    made = compare(seeds(tmp_path, accuracy), statistic=Statistic(last=last))
    assert made.grid().title.startswith(f"test accuracy (%), {title}, mean ±")
    assert only(made)[0] == pytest.approx(mean)
    made = compare(seeds(tmp_path / "b", accuracy), "seconds/train", Statistic(last=last))  # of every round
    assert "evaluation" not in made.grid().title


def test_a_run_with_fewer_evaluations_is_named(tmp_path: Path) -> None:
    runs = seeds(tmp_path, [None, 0.2, None, 0.4], [0.1, 0.2, 0.3, 0.4])
    (remark,) = compare(runs, statistic=Statistic(last=3)).remarks
    assert (
        remark == f"{runs[0].folder} has only 2 evaluations of test/accuracy, fewer than 3: its mean is over these"
    )


def test_a_run_that_diverged_has_no_value_from_before(tmp_path: Path) -> None:
    """An evaluation that is not finite is in the records as null; a round without one has no key."""
    runs = seeds(tmp_path, [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.9, 0.9])
    for row in runs[1].rows[3:]:
        row["test/accuracy"] = None
    for last in (1, 3):
        made = compare(runs, statistic=Statistic(last=last))
        assert only(made)[2:] == (1, 2)
        assert f"left out: {runs[1].folder} has a last test/accuracy that is not finite" in made.remarks
    assert only(compare(runs, statistic=Statistic(best=True)))[2:] == (2, 2)
    assert only(compare(runs, statistic=Statistic(target=0.2)))[2:] == (2, 2)


def test_round_0_does_not_count(tmp_path: Path) -> None:
    assert only(compare(seeds(tmp_path, [0.05]), statistic=Statistic(best=True)))[0] == 0.05
    assert only(compare(seeds(tmp_path / "b", [0.05, 0.2]), statistic=Statistic(target=0.1)))[0] == 2.0


def test_losses_are_better_when_smaller(tmp_path: Path) -> None:
    runs = seeds(tmp_path, [0.6, 0.9, 0.7])  # losses 0.4, 0.1, 0.3
    assert only(compare(runs, "test/loss", Statistic(best=True)))[0] == pytest.approx(0.1)
    assert only(compare(runs, "test/loss", Statistic(target=0.35)))[0] == 2.0
    assert compare(runs, "test/loss").grid().rows[0][1] == "0.3"


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    made = compare(seeds(tmp_path, [0.9]))
    assert only(made) == (0.9, None, 1, 1)
    assert made.grid().rows == [["fedavg", "90.00"]]


# ---------------------------------------------------------------- rows and columns


@pytest.mark.slow
def test_columns_are_labelled_by_differences_and_sorted(tmp_path: Path) -> None:
    runs = [
        load(
            make(tmp_path / f"{alpha}-{clients}", config(f"partition.alpha={alpha}", f"clients={clients}"), [0.5])
        )
        for alpha in ("100", "0.5")
        for clients in (20, 5)
    ]
    assert compare(runs).settings == [
        "alpha=0.5, clients=5, cohort=5",
        "alpha=0.5, clients=20, cohort=20",
        "alpha=100, clients=5, cohort=5",
        "alpha=100, clients=20, cohort=20",
    ]


def test_cohort_and_fraction_give_the_same_setting(tmp_path: Path) -> None:
    runs = [
        load(make(tmp_path / "a", config("cohort=4", "strategy=fedavg"), [0.5])),
        load(make(tmp_path / "b", config("fraction=0.4", "strategy=fedalr"), [0.6])),
    ]
    assert len(compare(runs).settings) == 1


def test_keys_without_effect_give_no_columns(tmp_path: Path) -> None:
    other = config("seed=2", "timeout=5", "checkpoint_every=7", "client.threads=2", "out=x", "name=y")
    runs = [load(make(tmp_path / "a", config(), [0.5])), load(make(tmp_path / "b", other, [0.7]))]
    assert only(compare(runs))[2] == 2


@pytest.mark.slow
def test_variants_of_a_method_get_separate_rows(tmp_path: Path) -> None:
    runs = [
        load(make(tmp_path / f"{beta}", config("strategy=fednnnn+fedlws", f"strategy.beta={beta}"), [0.5]))
        for beta in ("0.1", "0.05")
    ]
    runs.append(load(make(tmp_path / "fedavg", config("strategy=fedavg"), [0.4])))
    assert compare(runs).methods == ["fedavg", "fednnnn+fedlws beta=0.05", "fednnnn+fedlws beta=0.1"]


def test_a_wrapper_that_is_there_twice_has_its_own_values_each_time(tmp_path: Path) -> None:
    """Otherwise runs that differ in the inner one alone would be repetitions of one run."""
    twice = "strategy=fedavg+fedlws+fedlws"
    runs = [
        load(make(tmp_path / name, config(twice, f"strategy.inner.beta={inner}", f"strategy.beta={outer}"), [0.5]))
        for name, inner, outer in (("a", 0.5, 0.1), ("b", 0.01, 0.1), ("c", 0.5, 0.2))
    ]
    made = compare(runs)
    assert len(made.methods) == 3 and not made.remarks
    assert all("fedlws.beta=" in method and "fedlws#2.beta=" in method for method in made.methods)


def tuning(tmp_path: Path, *overrides: str, accuracy: float) -> Run:
    return load(make(tmp_path / "-".join(overrides), config(*overrides), [accuracy]))


@pytest.mark.slow
def test_each_method_has_its_best_value_of_a_tuned_key(tmp_path: Path) -> None:
    """Chosen by the mean over seeds, not by the best seed; values that not all seeds have are left out."""
    accuracy = {
        ("fedavg", 0.01): [0.80, 0.82], ("fedavg", 0.05): [0.90, 0.60], ("fedavg", 0.1): [0.99],
        ("fednnnn", 0.01): [0.70, 0.70], ("fednnnn", 0.05): [0.71, 0.73], ("fednnnn", 0.1): [0.90, 0.92],
    }  # fmt: skip
    runs = [
        load(
            make(
                tmp_path / f"{name}-{lr}-{seed}",
                config(f"strategy={name}", f"client.lr={lr}", f"seed={seed}"),
                [v],
            )
        )
        for (name, lr), values in accuracy.items()
        for seed, v in enumerate(values, start=1)
    ]
    made = tables.compare(runs, "test/accuracy", tune="client.lr")
    assert made.grid().rows == [["fedavg", "81.00 ± 1.41 (lr=0.01)"], ["fednnnn", "91.00 ± 1.41 (lr=0.1)"]]
    assert made.settings == ["mnist5k, dirichlet alpha=0.1, 10 clients"]  # the key is no longer a column
    assert [row[-1] for row in made.sheet().rows] == ["lr=0.01", "lr=0.1"]
    assert made.remarks[:4] == [
        "each method has the client.lr of 0.01, 0.05, 0.1 with the best mean of the number that the table shows",
        "fedavg, mnist5k, dirichlet alpha=0.1, 10 clients: client.lr=0.1 is not compared: only 1 of 2 seeds have "
        "a number",
        "fedavg, mnist5k, dirichlet alpha=0.1, 10 clients: client.lr=0.01 is the smallest of the grid",
        "fednnnn, mnist5k, dirichlet alpha=0.1, 10 clients: client.lr=0.1 is the largest of the grid",
    ]
    losses = tables.compare(runs, "test/loss", tune="client.lr")  # 1 - accuracy: smaller is better
    assert {cell.chosen for cell in losses.cells.values()} == {"lr=0.01", "lr=0.1"}


@pytest.mark.slow
def test_a_method_without_a_value_that_all_seeds_have_is_left_out(tmp_path: Path) -> None:
    runs = [
        *(tuning(tmp_path, "client.lr=0.1", f"seed={seed}", accuracy=0.5) for seed in (1, 2)),
        tuning(tmp_path, "strategy=fedavg", "client.lr=0.1", "seed=1", accuracy=0.5),
        tuning(tmp_path, "strategy=fedavg", "client.lr=0.2", "seed=2", accuracy=0.5),
    ]
    made = tables.compare(runs, "test/accuracy", tune="client.lr")
    assert [row[0] for row in made.grid().rows] == ["fednnnn"]
    assert sum("fedavg" in remark and "is not compared" in remark for remark in made.remarks) == 2
    with pytest.raises(ConfigError, match=r"no method has a value of client\.lr for all its seeds"):
        tables.compare(runs[2:], "test/accuracy", tune="client.lr")


@pytest.mark.slow
def test_a_key_of_one_method_only_is_tuned_there(tmp_path: Path) -> None:
    runs = [
        *seeds(tmp_path, [0.5], [0.6]),
        *(
            load(
                make(
                    tmp_path / f"b{b}-{seed}",
                    config("strategy=fednnnn", f"strategy.beta={b}", f"seed={seed}"),
                    [b],
                )
            )
            for b in (0.2, 0.8)
            for seed in (1, 2)
        ),
    ]
    made = tables.compare(runs, "test/accuracy", tune="fednnnn.beta")
    assert {place[0]: cell.chosen for place, cell in made.cells.items()} == {"fedavg": "", "fednnnn": "beta=0.8"}
    assert made.grid().rows == [["fedavg", "55.00 ± 7.07"], ["fednnnn", "80.00 ± 0.00 (beta=0.8)"]]


def test_yes_and_no_have_no_end_of_a_grid(tmp_path: Path) -> None:
    runs = [
        load(make(tmp_path / f"{yes}", config("strategy=l_dawa", f"strategy.normalised={yes}"), [0.5 + yes / 10]))
        for yes in (False, True)
    ]
    made = tables.compare(runs, "test/accuracy", tune="l_dawa.normalised")
    assert [cell.chosen for cell in made.cells.values()] == ["normalised=true"]
    assert not [remark for remark in made.remarks if "of the grid" in remark]


def test_a_key_in_which_the_runs_do_not_differ_cannot_be_tuned(tmp_path: Path) -> None:
    runs = [load(make(tmp_path / f"{lr}", config(f"client.lr={lr}"), [0.5])) for lr in (0.1, 0.2)]
    with pytest.raises(ConfigError, match=r"do not differ in 'client.lrr'.*Did you mean 'client.lr'"):
        tables.compare(runs, "test/accuracy", tune="client.lrr")
    with pytest.raises(ConfigError, match="remove --target, or name --by"):
        tables.compare(runs, "test/accuracy", Statistic(target=0.4), tune="client.lr")


def held_out(tmp_path: Path) -> list[Run]:
    """Two methods with three seeds and two rates: by the clients' examples 0.1 is best, by the test set 0.01."""
    figures = {
        ("fedavg", 0.01): (0.80, 0.60), ("fedavg", 0.1): (0.70, 0.75),
        ("fednnnn", 0.01): (0.90, 0.85), ("fednnnn", 0.1): (0.85, 0.80),
    }  # fmt: skip
    return [
        load(
            make(
                tmp_path / f"{name}-{lr}-{seed}",
                config(f"strategy={name}", f"client.lr={lr}", f"seed={seed}"),
                [0.3, test + (0.002 if name == "fednnnn" else 0.001) * seed],
                extra=lambda t, local=local: {"local/accuracy": local if t == 2 else 0.99},
            )
        )
        for (name, lr), (test, local) in figures.items()
        for seed in (1, 2, 3)
    ]


def test_a_tuned_value_is_chosen_by_another_metric_than_the_one_shown(tmp_path: Path) -> None:
    """As on examples that the clients hold out: the test set then chooses nothing."""
    runs = held_out(tmp_path)
    made = tables.compare(runs, "test/accuracy", tune="client.lr", by="local/accuracy")
    assert made.grid().rows == [["fedavg", "70.20 ± 0.10 (lr=0.1)"], ["fednnnn", "90.40 ± 0.20 (lr=0.01)"]]
    assert made.remarks[0] == "each method has the client.lr of 0.01, 0.1 with the best mean of local/accuracy"
    shown = tables.compare(runs, "test/accuracy", tune="client.lr")
    assert {cell.chosen for cell in shown.cells.values()} == {"lr=0.01"}
    smaller = tables.compare(runs, "test/accuracy", tune="client.lr", by="test/loss")
    assert {cell.chosen for cell in smaller.cells.values()} == {"lr=0.01"}


def test_rounds_to_a_target_are_compared_at_a_value_that_another_metric_chose(tmp_path: Path) -> None:
    made = tables.compare(
        held_out(tmp_path), "test/accuracy", Statistic(target=0.7), tune="client.lr", by="local/accuracy"
    )
    assert {place[0]: (cell.chosen, cell.mean) for place, cell in made.cells.items()} == {
        "fedavg": ("lr=0.1", 2.0), "fednnnn": ("lr=0.01", 2.0),
    }  # fmt: skip


def test_a_metric_that_no_run_has_cannot_choose(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no completed run has the metric 'local/acuracy'.*'local/accuracy'"):
        tables.compare(held_out(tmp_path), "test/accuracy", tune="client.lr", by="local/acuracy")


def test_who_won_is_said_only_if_the_figures_did_not_choose_the_values(tmp_path: Path, call: Call) -> None:
    held_out(tmp_path / "runs")
    code, _, err = call("table", tmp_path / "runs", "--tune", "client.lr")
    assert code == 0
    assert "won against" not in err
    code, out, err = call("table", tmp_path / "runs", "--tune", "client.lr", "--by", "local/accuracy")
    assert code == 0
    assert "70.20 ± 0.10 (lr=0.1)" in out
    assert "fednnnn won against fedavg by 20.20 percentage points of test accuracy" in err


def test_keys_are_shortened_if_unambiguous() -> None:
    values = [
        {"fednnnn.beta": 0.7, "fedlws.beta": b, "a.window": 5, "a.terms": t} for b, t in [(0.1, None), (0.2, True)]
    ]
    assert differing(values) == ["fedlws.beta", "a.terms"]
    assert describe(values[0], differing(values)) == "beta=0.1, terms=null"
    assert (
        describe(values[1], ["fednnnn.beta", "fedlws.beta", "a.terms"])
        == "fednnnn.beta=0.7, fedlws.beta=0.2, terms=true"
    )
    assert [plain(v) for v in (0.1, 100.0, 1e-5, 0.1234567891, [1.0, 2])] == [
        "0.1",
        "100",
        "1e-05",
        "0.1234567891",
        "[1,2]",
    ]


def test_the_values_of_a_setting_are_neither_the_seed_nor_the_method(tmp_path: Path) -> None:
    (run,) = seeds(tmp_path, [0.9])
    assert not {"seed", "client.name", "strategy.name"} & set(setting_values(run))


# ---------------------------------------------------------------- runs left out


def test_runs_that_cannot_be_compared_are_left_out_with_a_remark(tmp_path: Path) -> None:
    good = load(make(tmp_path / "good", config("strategy=fedavg"), [0.9]))
    failed = load(make(tmp_path / "failed", config("seed=2"), [0.9], state="failed", reason="no client"))
    blind = load(make(tmp_path / "blind", config("seed=3"), [None]))
    blind.rows[0].pop("test/accuracy")
    made = compare([good, failed, blind])
    assert made.methods == ["fedavg"]
    assert made.remarks == [
        f"left out: {failed.folder} failed (no client), 1 of 20 rounds completed",
        f"left out: {blind.folder} has no test/accuracy",
    ]


def test_of_repeated_runs_the_newest_completed_one_counts(tmp_path: Path) -> None:
    later = load(make(tmp_path / "z", config(), [0.5], started="2026-01-01T10:00:00+0000"))
    # 11:30 at +02:00 is 9:30 in the time zone of the other run.
    earlier = load(make(tmp_path / "a", config(), [0.7], started="2026-01-01T11:30:00+0200"))
    failed = load(make(tmp_path / "c", config(), [0.9], started="2026-02-01T10:00:00+0000", state="failed"))
    made = compare([earlier, later])
    assert only(made)[:1] == (0.5,)
    assert made.remarks == [f"left out: {earlier.folder} has the method, setting and seed of {later.folder}"]
    assert newest([failed, later])[0] == [later]


def test_a_remark_on_different_budgets(tmp_path: Path) -> None:
    runs = [load(make(tmp_path / name, config(f"strategy={name}"), [0.5])) for name in ("fedavg", "two_d_lrd")]
    budgets, weights = compare(runs).remarks
    assert budgets.endswith(
        "the methods train different amounts per round: fedavg+two_d_lrd 10 mini-batches, the others full epochs"
    )
    assert weights.endswith("(1/m) with fedavg+two_d_lrd: compare with fedavg with strategy.weighting=uniform")


@pytest.mark.parametrize("overrides", [["strategy=scaffold"], ["strategy=fedavg", "strategy.weighting=uniform"]])
def test_a_remark_on_equal_weights(tmp_path: Path, overrides: list[str]) -> None:
    runs = [
        load(make(tmp_path / str(k), config(*each), [0.5]))
        for k, each in enumerate((["strategy=fedavg"], overrides))
    ]
    (remark,) = compare(runs).remarks
    assert "clients have equal weights (1/m) with " in remark
    assert compare(runs[1:]).remarks == []


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda runs: compare(runs, "test/acuracy"), "Did you mean 'test/accuracy'?"),
        (lambda runs: compare(runs, statistic=Statistic(target=90)), "90 % is 0.9"),
        (lambda runs: compare(runs, "clients", Statistic(best=True)), "clients has no best value and no target"),
        (lambda runs: compare(runs, "clients", Statistic(target=1.0)), "clients has no best value and no target"),
        (lambda runs: Statistic(last=0), "last = 0 is not allowed"),
        (lambda runs: Statistic(best=True, target=0.9), "exclude each other"),
        (lambda runs: compare([]), "none of 0 runs is completed"),
    ],
)
def test_invalid_requests_are_refused_with_the_allowed_values(tmp_path: Path, make_it, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        make_it(seeds(tmp_path, [0.9]))


# ---------------------------------------------------------------- formats


def two(tmp_path: Path) -> TableComparison:
    """fedavg 90, 92 and two_d_lrd 80 % at alpha 0.1; fedavg 95 % at alpha 1."""
    runs = [
        load(make(tmp_path / "1", config("strategy=fedavg"), [0.90])),
        load(make(tmp_path / "2", config("strategy=fedavg", "seed=2"), [0.92])),
        load(make(tmp_path / "3", config("strategy=two_d_lrd"), [0.80])),
        load(make(tmp_path / "4", config("strategy=fedavg", "partition.alpha=1"), [0.95])),
    ]
    return compare(runs)


FORMS = {
    TableFormat.MARKDOWN: [
        "**test accuracy (%), last round, mean ± standard deviation over seeds**",
        "",
        "| method | alpha=0.1 | alpha=1 |",
        "| :-- | --: | --: |",
        "| fedavg | 91.00 ± 1.41 (n=2) | 95.00 (n=1) |",
        "| fedavg+two_d_lrd | 80.00 (n=1) | – |",
    ],
    TableFormat.LATEX: [
        "% test accuracy (%), last round, mean ± standard deviation over seeds",
        r"\begin{tabular}{lrr}",
        r"\hline",
        r"method & alpha=0.1 & alpha=1 \\",
        r"\hline",
        r"fedavg & 91.00 $\pm$ 1.41 (n=2) & 95.00 (n=1) \\",
        r"fedavg+two\_d\_lrd & 80.00 (n=1) & -- \\",
        r"\hline",
        r"\end{tabular}",
    ],
    TableFormat.TEXT: [
        "test accuracy (%), last round, mean ± standard deviation over seeds",
        "",
        " method                      alpha=0.1       alpha=1",
        " ───────────────────────────────────────────────────",
        " fedavg             91.00 ± 1.41 (n=2)   95.00 (n=1)",
        " fedavg+two_d_lrd          80.00 (n=1)             –",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_formats_for_people(tmp_path: Path, form: TableFormat) -> None:
    made = two(tmp_path)
    assert write([(made.grid(), made.sheet())], form).splitlines() == FORMS[form]


@pytest.mark.slow
def test_csv_has_a_line_per_cell_and_unrounded_values(tmp_path: Path) -> None:
    made = two(tmp_path)
    rows = [line.split(",") for line in write([(made.grid(), made.sheet())], TableFormat.CSV).splitlines()]
    assert rows[0] == ["method", "setting", "metric", "statistic", "mean", "std", "n", "runs"]
    assert [row[:4] + row[6:] for row in rows[1:]] == [
        ["fedavg", "alpha=0.1", "test/accuracy", "last 1", "2", "2"],
        ["fedavg", "alpha=1", "test/accuracy", "last 1", "1", "1"],
        ["fedavg+two_d_lrd", "alpha=0.1", "test/accuracy", "last 1", "1", "1"],
    ]
    assert float(rows[1][4]) == pytest.approx(0.91)
    assert float(rows[1][5]) == pytest.approx(0.02 / 2**0.5)
    assert rows[2][5] == ""


def test_a_wide_table_is_split_for_a_narrow_terminal() -> None:
    grid = Grid("title", ["method", "first", "second", "third"], [["fedavg", "11.11", "22.22", "33.33"]])
    assert text(grid, 32).count("fedavg") == 2
    assert text(grid, 1).count("fedavg") == 3
    assert text(grid, 200).count("fedavg") == text(grid).count("fedavg") == 1
    assert max(map(len, text(grid, 32).splitlines())) <= 32


# ---------------------------------------------------------------- the command


def test_the_command_prints_the_table_and_writes_remarks_to_stderr(tmp_path: Path, call: Call) -> None:
    make(tmp_path / "runs/a", config("strategy=fedavg"), [0.9])
    make(tmp_path / "runs/b", config("strategy=fedalr"), [0.9], state="interrupted", reason="stopped by the user")
    code, out, err = call("table", tmp_path / "runs", "--best", "--format", "markdown")
    assert code == 0
    assert out.splitlines()[-1] == "| fedavg | 90.00 |"
    assert (
        err
        == f"note: left out: {tmp_path / 'runs/b'} interrupted (stopped by the user), 1 of 20 rounds completed\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([], "name one or more run folders"),
        (["RUNS", "--metric", "tset/loss"], "Did you mean 'test/loss'"),
        (["RUNS", "--last", "3", "--best"], "exclude each other"),
        (["RUNS", "--format", "html"], "'text', 'markdown', 'csv', 'latex'"),
        (["RUNS", "--by", "local/accuracy"], "by = local/accuracy chooses the value of a key: name it"),
        (["RUNS", "--paper", "fednnnn/table"], "Did you mean 'fednnnn/table5'"),
        (["RUNS", "--paper", "fednnnn/table2", "--target", "0.9"], "remove --metric, --target, --tune and --by"),
    ],
)
def test_invalid_requests_give_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "RUNS/a", config(), [0.9])
    code, out, err = call("table", *arguments)
    assert code == 2
    assert out == ""
    assert message in err
