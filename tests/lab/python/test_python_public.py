"""The public functions as a user has them: typed, in the wheel, and with one line without the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[3]

USER = """
from pathlib import Path

import numpy as np

import fedstride
from fedstride import Result, Results


def study(out: Path) -> float:
    keys: dict[str, float | list[str]] = {"client.lr": 0.03, "train": ["fc1"]}
    result = fedstride.run(keys, strategy="fednnnn", rounds=20, out=out, holdout=None)
    again: Result = fedstride.resume(result.folder, rounds=40, quiet=True)
    results: Results = fedstride.sweep({"client.lr": [0.1, 0.2]}, strategy=["fedavg", "fedlws"], seed=range(3))
    first: Result = results[0]
    compared: fedstride.Comparison = fedstride.compare(strategy=["fedavg", "fednnnn"], seeds=[1, 2], folds=5)
    part: Results = fedstride.results(out, "runs")[1:]
    names: list[str] = [each.config.strategy.name for each in results]
    best: int | None = again.best_round
    predicted = first.model.outputs(np.zeros((1, 1, 28, 28), np.uint8))
    result.plot().savefig("curve.png")
    reveal_type(result)
    reveal_type(results.failed)
    reveal_type(predicted)
    return float(len(names) + len(part) + len(compared.figures) + (best or 0))


fedstride.run({"client.lr": {1, 2}})
fedstride.run(rounds=20, quiet="no")
fedstride.sweep(jobs="two")
fedstride.resume()
fedstride.compare(seeds="1,2")
fedstride.run(3)
"""


@pytest.mark.slow
def test_a_users_program_is_checked_strictly(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(USER)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "study.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    notes = [line.partition(" note: ")[2] for line in lines if "Revealed type" in line]
    assert [note.count("result.Result") for note in notes] == [1, 0, 0]
    assert "dict" in notes[1] and "ndarray" in notes[2]
    first = USER.splitlines().index('fedstride.run({"client.lr": {1, 2}})') + 1
    wrong = [int(line.split(":")[1]) for line in lines if " error: " in line]
    assert wrong == list(range(first, first + 6)), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("lacks", ["torch", "hydra", "pandas"])
def test_without_the_extra_there_is_one_line(lacks: str) -> None:
    script = (
        f"import sys\nsys.modules[{lacks!r}] = None\nimport fedstride\n"
        "for name in ('run', 'sweep', 'compare', 'resume', 'results', 'Result', 'Comparison'):\n"
        "    assert name not in fedstride.__all__\n"
        "    try:\n        getattr(fedstride, name)\n    except ImportError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    names = ("run", "sweep", "compare", "resume", "results", "Result", "Comparison")
    assert done.stdout.splitlines() == [f"{name} needs {lacks}: pip install 'fedstride[desk]'" for name in names]


@pytest.mark.slow
def test_a_run_from_the_wheel(tmp_path: Path) -> None:
    """Nothing of the clone is imported."""
    (tmp_path / "site/fedstride").mkdir(parents=True)
    hatch_build.stage(ROOT, tmp_path / "site/fedstride")
    script = (
        "import sys, fedstride\n"
        "made = fedstride.run({'client.local_steps': 2}, model='mlp', clients=2, rounds=1, workers=2)\n"
        f"print(made.state, [name for name in sys.modules if name.split('.')[0] in {hatch_build.PACKAGES!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "", "FEDSTRIDE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "completed []\n", done.stderr
