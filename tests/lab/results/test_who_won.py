"""The first line of a report: who won by how much, paired over seeds, against computations by hand."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from pathlib import Path

import pytest
from folders import Call, config, make
from scipy import stats

from lab.results.run_folders import load
from lab.results.who_won import fitting, verdicts


def runs(root: Path, figures: dict[str, list[float]], metric: str = "test/accuracy") -> list[str]:
    made = [
        load(
            make(
                root / f"{method}-{seed}", config(f"strategy={method}", f"seed={seed}", f"best={metric}"), [value]
            )
        )
        for method, values in figures.items()
        for seed, value in enumerate(values, start=1)
    ]
    found = verdicts(made)
    return [text for each in found for text in (each.text, *each.warnings)]


@pytest.mark.slow
def test_a_winner_of_five_seeds(tmp_path: Path) -> None:
    (text,) = runs(tmp_path, {"fedavg": [0.80, 0.81, 0.82, 0.79, 0.80], "fednnnn": [0.85, 0.87, 0.86, 0.84, 0.86]})
    assert text.startswith("fednnnn won against fedavg by 5.20 percentage points of test accuracy in ")
    # differences 5, 6, 4, 5, 6: variance 0.7, step 1
    half = float(stats.t.ppf(0.98, 4)) * math.sqrt(1.7 / 5)
    assert f"(95 % interval {5.2 - half:.2f} to {5.2 + half:.2f}, paired over 5 seeds)" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fedavg", "fednnnn"), [([0.80, 0.90], [0.85, 0.86]), ([0.5, 0.6], [0.7, 0.8]), ([0.12, 0.95], [0.13, 0.96])]
)
def test_two_seeds_have_no_winner(tmp_path: Path, fedavg: list[float], fednnnn: list[float]) -> None:
    text, warning = runs(tmp_path, {"fedavg": fedavg, "fednnnn": fednnnn})
    assert text.startswith("No winner in ") and " won " not in text
    assert text.endswith("a verdict needs at least 3 seeds of both.")
    assert warning.startswith(
        "n = 2 is too small for a verdict: run at least 5 seeds of each method, as in seed=1,2"
    )


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    text, warning = runs(tmp_path, {"fedavg": [0.80], "fednnnn": [0.85]})
    assert "fednnnn and fedavg differ by 5.00 percentage points of test accuracy with 1 seed" in text
    assert "cannot be said" in text
    assert warning.startswith("n = 1")


@pytest.mark.slow
def test_an_interval_with_0_says_how_many_seeds_are_needed(tmp_path: Path) -> None:
    text, warning = runs(tmp_path, {"fedavg": [0.80, 0.86, 0.83, 0.80], "fednnnn": [0.84, 0.85, 0.88, 0.82]})
    assert "the interval contains 0: with differences like these, a verdict needs about 9 seeds." in text
    assert re.search(r"differ by 2\.50 percentage points of .* \(95 % interval -\d\.\d\d to \d\.\d\d,", text)
    assert warning.startswith("n = 4 is small")


@pytest.mark.slow
def test_runs_that_are_equal(tmp_path: Path) -> None:
    text, _ = runs(tmp_path, {"fedavg": [0.8, 0.7, 0.9, 0.6], "fednnnn": [0.8, 0.7, 0.9, 0.6]})
    assert text.endswith("fedavg and fednnnn have the same test accuracy with each of 4 seeds.")


@pytest.mark.slow
def test_smaller_can_be_better(tmp_path: Path) -> None:
    # the loss of these runs is 1 - accuracy
    figures = {"fedavg": [0.8, 0.81, 0.82, 0.79, 0.8], "fednnnn": [0.9, 0.91, 0.93, 0.88, 0.9]}
    (text,) = runs(tmp_path, figures, "test/loss")
    assert text.startswith("fednnnn won against fedavg by 0.100 of test loss")


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-2, 1e-4, 1e-7])
def test_small_differences_keep_their_digits_and_signs(tmp_path: Path, scale: float) -> None:
    base = [0.5, 0.51, 0.52, 0.53]
    better = [b + scale * d for b, d in zip(base, [1.1, -0.9, 1.4, 0.2], strict=True)]
    for metric in ("test/loss", "test/accuracy"):
        text, _ = runs(tmp_path / metric, {"fedavg": base, "fednnnn": better}, metric)
        low, high = map(float, re.findall(r"interval (\S+) to (\S+),", text)[0])
        assert low < 0 < high
        assert not re.search(r"-0\.0*\b(?!\d)", text)


@pytest.mark.slow
def test_only_common_seeds_are_compared_and_the_others_are_named(tmp_path: Path) -> None:
    figures = {"fedavg": [0.80, 0.81, 0.82, 0.84, 0.99, 0.99], "fednnnn": [0.90, 0.92, 0.91, 0.95]}
    text, left, _ = runs(tmp_path, figures)
    assert text.startswith("fednnnn won against fedavg") and "paired over 4 seeds" in text
    assert "2 runs left out where fednnnn and fedavg are compared" in left and "(fedavg: seed 5, 6)" in left


@pytest.mark.slow
def test_a_method_with_one_seed_does_not_stop_the_verdict(tmp_path: Path) -> None:
    figures = {"fedavg": [0.80, 0.81, 0.82, 0.84], "fednnnn": [0.90, 0.92, 0.91, 0.95], "norm_norm": [0.99]}
    text, left, _ = runs(tmp_path, figures)
    assert text.startswith("fednnnn won against fedavg")
    assert "norm_norm left out of the verdict" in left


@pytest.mark.slow
def test_the_interval_is_wider_with_more_methods(tmp_path: Path) -> None:
    figures = {"fedavg": [0.80, 0.81, 0.82, 0.79, 0.80], "fednnnn": [0.85, 0.87, 0.86, 0.84, 0.86]}
    figures |= {"norm_norm": [0.60, 0.61, 0.63, 0.59, 0.62]}
    (text,) = runs(tmp_path, figures)
    half = float(stats.t.ppf(1 - 0.04 / 3, 4)) * math.sqrt(1.7 / 5)
    assert f"95 % interval for 3 methods together {5.2 - half:.2f} to {5.2 + half:.2f}" in text
    assert text.endswith("and against the other method there.")


def test_no_common_seed(tmp_path: Path) -> None:
    made = [
        load(make(tmp_path / name, config(f"strategy={name}", f"seed={seed}"), [value]))
        for name, seed, value in (("fedavg", 1, 0.5), ("fednnnn", 2, 0.9))
    ]
    (verdict,) = verdicts(made)
    assert "fedavg, fednnnn have no seed in common" in verdict.text


@pytest.mark.parametrize(
    ("numbers", "written"),
    [
        ([5.2, 3.1, 7.3], ["5.20", "3.10", "7.30"]),
        ([-0.001, -0.2, 0.198], ["-0.001", "-0.200", "0.198"]),
        ([0.3, -0.00004, 0.60004], ["0.30000", "-0.00004", "0.60004"]),
        ([1e-17, -0.5, 0.5], ["0.00", "-0.50", "0.50"]),
        ([-0.004], ["-0.0040"]),
        ([3e-14, 1e-14, 5e-14], ["3.0e-14", "1.0e-14", "5.0e-14"]),
    ],
)
def test_digits_fit_the_interval(numbers: list[float], written: list[str]) -> None:
    assert fitting(numbers, 2) == written


@pytest.mark.slow
def test_the_table_says_who_won_too(tmp_path: Path, call: Call) -> None:
    runs(tmp_path, {"fedavg": [0.80, 0.81, 0.82, 0.84], "fednnnn": [0.90, 0.92, 0.91, 0.95]})
    code, out, err = call("table", tmp_path)
    assert code == 0 and "won" not in out
    assert "note: fednnnn won against fedavg by 10.25 percentage points of test accuracy in " in err
    code, _, err = call("table", tmp_path, "--target", "0.8")
    assert (code, " won " in err) == (0, False)


@pytest.mark.slow
def test_one_method_has_no_verdict(tmp_path: Path) -> None:
    assert runs(tmp_path, {"fedavg": [0.8, 0.81]}) == []


@pytest.mark.slow
def test_a_live_report_ends_with_the_runs(tmp_path: Path, call: Call) -> None:
    """While a run is running, the page asks the browser to load it again; the last page does not."""
    folder = make(tmp_path / "runs/a", config(), [0.5], state="running")
    (folder / "fetched.json").write_text(json.dumps({"state": "running", "fetched": "now"}))
    page = tmp_path / "report.html"
    seen: list[str] = []

    def end() -> None:
        while not page.exists():
            time.sleep(0.05)
        seen.append(page.read_text())
        status = json.loads((folder / "status.json").read_text()) | {"state": "completed"}
        (folder / "status.json").write_text(json.dumps(status))

    thread = threading.Thread(target=end)
    thread.start()
    code, out, _ = call("report", tmp_path / "runs", "-o", page, "--live", "--every", "1")
    thread.join()
    assert code == 0
    assert '<meta http-equiv="refresh" content="1">' in seen[0]
    assert 'http-equiv="refresh"' not in page.read_text()
    assert "1 run," in out
