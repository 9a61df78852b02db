"""The first line of a report: who won by how much, paired over seeds, against computations by hand."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from folders import Call, config, make
from scipy import stats

from lab.report.verdict import paired, verdicts
from lab.results.runs import load


def test_the_interval_is_students() -> None:
    values = [1.0, 2.5, 0.5, 3.0, 1.5]
    found = paired(values)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.low == pytest.approx(low, rel=1e-12)
    assert found.high == pytest.approx(high, rel=1e-12)
    assert (found.mean, found.n, found.decided) == (1.7, 5, True)
    assert not paired([1.0, -1.0]).decided
    one = paired([1.0])
    assert (one.low, one.high, one.decided) == (None, None, False)


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


def test_a_winner_of_five_seeds(tmp_path: Path) -> None:
    (text,) = runs(tmp_path, {"fedavg": [0.80, 0.81, 0.82, 0.79, 0.80], "fednnnn": [0.85, 0.87, 0.86, 0.84, 0.86]})
    assert text.startswith("fednnnn won against fedavg by 5.20 percentage points of test accuracy in ")
    low, high = stats.ttest_1samp([5.0, 6.0, 4.0, 5.0, 6.0], 0.0).confidence_interval(0.95)
    assert f"(95 % interval {low:.2f} to {high:.2f}, paired over 5 seeds)" in text


def test_no_winner_and_a_warning_with_two_seeds(tmp_path: Path) -> None:
    text, warning = runs(tmp_path, {"fedavg": [0.80, 0.90], "fednnnn": [0.85, 0.86]})
    assert text.startswith("No winner in ")
    assert "the interval contains 0" in text
    assert warning.startswith("n = 2 is too small to rely on: run at least 5 seeds")


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    text, warning = runs(tmp_path, {"fedavg": [0.80], "fednnnn": [0.85]})
    assert "fednnnn is ahead of fedavg by 5.00 percentage points" in text
    assert "cannot be said" in text
    assert warning.startswith("n = 1")


def test_smaller_can_be_better(tmp_path: Path) -> None:
    # the loss of these runs is 1 - accuracy
    (text, _) = runs(tmp_path, {"fedavg": [0.8, 0.81], "fednnnn": [0.9, 0.91]}, "test/loss")
    assert text.startswith("fednnnn won against fedavg by 0.1 of test loss")


def test_only_common_seeds_are_compared(tmp_path: Path) -> None:
    text, _ = runs(tmp_path, {"fedavg": [0.8, 0.81, 0.82], "fednnnn": [0.9, 0.91]})
    assert "paired over 2 seeds" in text


def test_one_method_has_no_verdict(tmp_path: Path) -> None:
    assert runs(tmp_path, {"fedavg": [0.8, 0.81]}) == []


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
    assert "1 runs" in out
