"""Remarks on runs of other lengths and with other evaluations; runs without a figure; cancelled differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from folders import config, make

from lab.results.paired_differences import standing
from lab.results.run_folders import Run, load
from lab.results.tables import Statistic, compare
from lab.results.who_won import ComparedSetting, verdicts

METRIC = "test/accuracy"


def run(root: Path, values: list[float | None], *given: str, **more: object) -> Run:
    place = root / f"{len(list(root.iterdir()))}"
    return load(make(place, config(f"best={METRIC}", *given), values, **more))  # type: ignore[arg-type]


def both(root: Path, ends: dict[str, list[list[float | None]]], *given: str) -> list[Run]:
    return [
        run(root, values, f"strategy={method}", f"seed={seed}", *given)
        for method, of_seeds in ends.items()
        for seed, values in enumerate(of_seeds, start=1)
    ]


@pytest.mark.parametrize(
    ("fedavg", "fednnnn", "said"),
    [
        ({1: 91.0, 2: 93.0}, {1: 93.0, 2: 91.0}, "have the same mean test accuracy over 2 seeds, and differ with"),
        ({1: 9.1, 2: 9.3}, {1: 9.3, 2: 9.1}, "have the same mean test accuracy over 2 seeds, and differ with"),
        ({1: 91.0, 2: 93.0}, {1: 91.0, 2: 93.0}, "have the same test accuracy with each of 2 seeds."),
        ({1: 91.0}, {1: 91.0}, "have the same test accuracy with each of 1 seed."),
        ({1: 1.0, 2: 2.0, 3: 3.0}, {1: 1.0, 2: 2.0, 3: 3.0}, "have the same test accuracy with each of 3 seeds."),
        ({1: 1.0, 2: 2.0, 3: 3.0}, {1: 3.0, 2: 2.0, 3: 1.0}, "and the interval contains 0"),
        ({1: 91.0, 2: 93.0}, {1: 93.0, 2: 92.0}, "differ by 0.50 percentage points"),
    ],
)
def test_equal_with_each_seed_means_each_difference_is_0(
    fedavg: dict[int, float], fednnnn: dict[int, float], said: str
) -> None:
    from lab.results.who_won import _verdict

    figures = {"fedavg": fedavg, "fednnnn": fednnnn}
    assert said in _verdict(ComparedSetting("s", METRIC, figures), standing(figures, 2), 2).text


def test_runs_of_other_lengths_have_a_remark_and_no_verdict_at_a_target(tmp_path: Path) -> None:
    ends: dict[str, list[list[float | None]]] = {
        "fedavg": [[0.5, 0.9], [0.5, 0.6, 0.9], [0.6] * 4],
        "fednnnn": [[0.95], [0.6, 0.91], [0.7, 0.9]],
    }
    runs = both(tmp_path, ends, "rounds=4", "target=0.9")
    assert any(
        remark.endswith("the runs ended after 1 to 4 of 4 rounds") for remark in compare(runs, METRIC).remarks
    )
    for statistic in (Statistic(), Statistic(best=True)):
        (verdict,) = verdicts(runs, METRIC, statistic)
        assert verdict.text.startswith("No verdict in ") and "5 runs ended at the target" in verdict.text
        assert verdict.n == 3


OWN = ("partition=own", "clients=3", "fraction=1")


@pytest.mark.parametrize(
    ("given", "said", "remark"),
    [
        ((), [{"data": "a"}, {"data": "a"}], ""),
        ((), [{"data": "a"}, {}], ""),  # older runs say nothing
        ((), [{"data": "a"}, {"data": "b"}], "the runs had 2 different versions of the data of their task"),
        ((), [{"rows": 10}, {"rows": 11}], ""),  # of a partition with a share that no client gets
        (OWN, [{"rows": 10}, {"rows": 11}], "the clients of the runs had 10 to 11 rows, not the same data"),
        (OWN, [{"rows": 10}, {"rows": 10}], ""),
        ((*OWN, "fraction=0.5"), [{"rows": 10}, {"rows": 11}], ""),  # another seed asks other clients
    ],
)
def test_runs_on_other_data_have_a_remark(
    tmp_path: Path, given: tuple[str, ...], said: list[dict[str, object]], remark: str
) -> None:
    runs = [
        replace(made, status={**made.status, **more})
        for seed, more in enumerate(said, start=1)
        for made in [run(tmp_path, [0.5], "rounds=1", f"seed={seed}", *given)]
    ]
    found = [line.split(": ", 1)[1] for line in compare(runs, METRIC).remarks]
    assert found == ([remark] if remark else [])


def test_runs_that_ended_by_patience_have_the_remark_and_a_verdict(tmp_path: Path) -> None:
    runs = both(tmp_path, {"fedavg": [[0.5, 0.4]], "fednnnn": [[0.6, 0.7, 0.7]]}, "rounds=4", "patience=1")
    assert any("ended after 2 to 3 of 4 rounds" in remark for remark in compare(runs, METRIC).remarks)
    assert verdicts(runs, METRIC)[0].text.startswith("No winner in ")


def test_a_target_that_is_reached_in_the_last_round_ends_nothing_early(tmp_path: Path) -> None:
    runs = both(tmp_path, {"fedavg": [[0.5, 0.9]], "fednnnn": [[0.6, 0.95]]}, "rounds=2", "target=0.9")
    assert not [remark for remark in compare(runs, METRIC).remarks if "ended" in remark]
    assert verdicts(runs, METRIC)[0].text.startswith("No winner in ")


@pytest.mark.parametrize(
    ("statistic", "metric", "said"),
    [
        (Statistic(best=True), METRIC, True),
        (Statistic(target=0.5), METRIC, True),
        (Statistic(last=2), METRIC, True),
        (Statistic(), METRIC, False),
        (Statistic(best=True), "seconds/train", False),
    ],
)
def test_other_evaluations_have_a_remark_where_their_number_counts(
    tmp_path: Path, statistic: Statistic, metric: str, said: bool
) -> None:
    runs = [
        run(tmp_path, [0.5, 0.6], "strategy=fedavg", "evaluate_every=1", "rounds=2"),
        run(tmp_path, [None, 0.6], "strategy=fednnnn", "evaluate_every=2", "rounds=2"),
    ]
    found = [line for line in compare(runs, metric, statistic).remarks if "evaluate_every (1, 2)" in line]
    assert len(found) == said


def test_a_run_that_was_measured_before_training_only_is_named(tmp_path: Path) -> None:
    given = ("strategy=fedavg", "rounds=2")
    without = run(tmp_path, [None, None], *given, "seed=1")
    made = compare([without], METRIC)
    assert made.grid().rows[0][1] == "–" and made.sheet().rows[0][4] is None
    assert made.remarks == [f"left out: {without.folder} has no {METRIC} after training"]
    made = compare([without, run(tmp_path, [0.5, 0.8], *given, "seed=2")], METRIC)
    assert "80.00" in made.grid().rows[0][1] and "left out" in made.remarks[0]
    made = compare([without], METRIC, Statistic(target=0.9))
    assert made.grid().rows[0][1] == "– (0 of 1)"
    assert made.remarks == [f"{without.folder} has no {METRIC} after training"]


LOCAL = "local/accuracy"
MEDIANS = [0.5, 0.7, None, 0.6]
MEANS = [0.5, 0.6, 0.95, 0.65]


def local(number: int) -> dict[str, float | None]:
    return {LOCAL: MEANS[number - 1], f"median/{LOCAL}": MEDIANS[number - 1]}


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        (Statistic(best=True), 0.6),  # round 2 has the best median, and this mean
        (Statistic(target=0.7), 2.0),
        (Statistic(target=0.6), 2.0),
        (Statistic(target=0.8), None),  # a mean of 0.95 without a quorum decides nothing
        (Statistic(), 0.65),
    ],
)
def test_metrics_of_clients_are_judged_as_the_run_judges_them(
    tmp_path: Path, statistic: Statistic, value: float | None
) -> None:
    made = run(tmp_path, [None] * 4, "rounds=4", extra=local)
    assert statistic.of(made.rows, LOCAL) == value


def test_a_run_without_a_quorum_is_named(tmp_path: Path) -> None:
    made = run(tmp_path, [None], "rounds=1", extra=lambda number: {LOCAL: 0.5, f"median/{LOCAL}": None})
    found = compare([made], LOCAL, Statistic(best=True))
    assert found.remarks == [f"left out: {made.folder} has no round in which enough clients reported {LOCAL}"]
    assert found.grid().rows[0][1] == "–"
