"""The measurements run, and their table says what was measured; no figure is tested."""

from __future__ import annotations

import json
import pkgutil
from importlib import import_module
from pathlib import Path

import federation as fed
import pytest

import benchmarks
from benchmarks import Timing, __main__, aggregation

NAMES = [found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.name != "__main__"]


@pytest.mark.parametrize("name", NAMES)
def test_a_measurement_has_what_the_command_needs(name: str) -> None:
    measurement = import_module(f"benchmarks.{name}")
    assert measurement.__doc__ and isinstance(measurement.FLOOR, str)
    assert callable(measurement.timings)


def test_the_table_has_medians_of_ratios_with_their_range() -> None:
    timed = [Timing("ours", *times) for times in ((2.0, 1.0), (9.0, 3.0), (4.0, 4.0))]
    head, ours, other = __main__.table([*timed, Timing("other", 1.0, 2.0)]).splitlines()
    assert head.split() == ["ratio", "from", "to", "ms", "floor", "ms"]
    assert ours.split() == ["ours", "2.00", "1.00", "3.00", "4000.0", "3000.0"]
    assert other.split() == ["other", "0.50", "0.50", "0.50", "1000.0", "2000.0"]


def test_every_strategy_aggregates_a_small_model() -> None:
    model = {name: array for name, array in fed.make_model().items() if array.dtype != bool}  # not in a ResNet
    timed = list(aggregation.timings(2, model=model))
    names = [*aggregation.STRATEGIES, *(f"{name}, numpy alone" for name in aggregation.TWICE)]
    assert [timing.name for timing in timed] == names * 2
    assert all(timing.seconds > 0.0 and timing.floor > 0.0 for timing in timed)


def test_the_command_prints_and_writes_all_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aggregation, "timings", lambda repeats, only: [Timing(only, 1.0, 0.5)] * repeats)
    file = tmp_path / "times.json"
    given = ["aggregation", "--repeats", "3", "--only", "a", "--json", str(file)]
    monkeypatch.setattr("sys.argv", ["benchmarks", *given])
    __main__.main()
    said = capsys.readouterr().out
    assert aggregation.FLOOR in said and "versions: " in said and "hardware: " in said
    record = json.loads(file.read_text())
    assert record["timings"] == {"a": [[1.0, 0.5]] * 3}
    assert record["versions"]["numpy"] and record["hardware"]["cores"]
