"""A user-defined figure in runs: that of all rows together, the same in all engines, known without its file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from desk import forget, play, resume, table, weights
from safetensors.torch import load_file

from client_app.data import small_counts
from fedstride.errors import ConfigError
from fedstride.figures import metrics
from fedstride.tasks import data
from fedstride.tasks.evaluation.measuring import evaluate
from fedstride.tasks.goals import goal_of
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples, load_arrays, pick_device
from fedstride.tasks.partitions import schemes
from fedstride.user_parts import load_parts
from lab.results.run_folders import load
from lab.results.tables import Statistic, compare
from server_app import preparation
from server_app.config.compose import compose
from server_app.config.schema import TABLES

SOURCE = '''
import numpy as np
from fedstride import Figure, part

@part(metric="cost")
class Cost(Figure):
    """The cost of wrong answers, by how far the classes are apart."""
    better = "smaller"
    unit = "EUR"

    def state(self, outputs, targets):
        far = np.abs(outputs.argmax(1) - targets)
        return {"cost": (1.5 * far).sum(), "wrong": np.count_nonzero(far), "rows": len(targets)}

    def value(self, state):
        return state["cost"] / state["rows"]

@part(metric="shares")
class Shares(Figure):
    """The share of each class among the answers."""

    def state(self, outputs, targets):
        return {"answers": np.bincount(outputs.argmax(1), minlength=outputs.shape[1])}

    def value(self, state):
        return state["answers"] / state["answers"].sum()
'''
CHOSEN = ("task.metrics=[cost,shares,accuracy]", "evaluate_clients=true", "holdout=0.3", "rounds=2")


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    metrics._recalled.clear()


@pytest.fixture
def parts(tmp_path: Path) -> str:
    file = tmp_path / "my_figures.py"
    file.write_text(SOURCE)
    return f"parts={file}"


def held_out(folder: Path, rows: int | None = None) -> Examples:
    """The held-out examples of all clients of a run together."""
    config = load(folder).config
    source = data.load(config.task)
    from fedstride.tasks.evaluation.holdout import digests_of, draws_of, hold_out, key_of

    draws = draws_of(digests_of(source.train_x, source.train_y), key_of(config.split_seed))
    divided = schemes.partition(config.partition, source.divisible, config.clients, config.seed)
    kept = [own[hold_out(draws[own], config.holdout or 0.0, at)[1]] for at, own in enumerate(divided)]
    goal = goal_of(source.spec, metrics=["cost", "shares"])
    members = np.concatenate(kept)[:rows]
    return Examples(
        source.train_x, source.train_y, source.spec, device=pick_device("cpu"), members=members, goal=goal
    )


def model_of(folder: Path, examples: Examples):  # type: ignore[no-untyped-def]
    config = load(folder).config
    network = networks_by_name.build(config.model, examples.spec.inputs, examples.spec.outputs, config.seed)
    load_arrays(network, load_file(folder / "model.safetensors"))
    return network


@pytest.mark.slow
def test_the_figure_over_all_sites_is_that_of_their_rows_together(parts: str, tmp_path: Path) -> None:
    outcome = play(tmp_path, parts, *CHOSEN)
    row = outcome.rows[-1]
    examples = held_out(outcome.folder)
    expected = evaluate(model_of(outcome.folder, examples), examples).figures()
    assert row["local/cost"] == pytest.approx(expected["cost"], rel=1e-12)
    assert row["local/shares"] == pytest.approx(expected["shares"], rel=1e-12)
    clients = [json.loads(line) for line in (outcome.folder / "clients.jsonl").read_text().splitlines()]
    each = [line["local/cost"] for line in clients if line["round"] == 2]
    assert len(set(each)) > 1 and row["local/cost/worst"] == max(each)
    assert row["local/cost/p10"] == pytest.approx(np.percentile(each, 90), rel=1e-12)  # smaller is better
    assert not any("note" in line for line in clients)
    assert "local/cost/error" not in row and outcome.folder.joinpath("best.safetensors").exists()


@pytest.mark.slow
def test_workers_and_a_resumed_run_have_the_same_figures(parts: str, tmp_path: Path) -> None:
    alone = play(tmp_path / "alone", parts, *CHOSEN, "rounds=3").folder
    forget()
    shared = play(tmp_path / "shared", parts, *CHOSEN, "rounds=3", workers=2).folder
    assert table(alone) == table(shared) and weights(alone) == weights(shared)
    forget()
    short = play(tmp_path / "short", parts, *CHOSEN, "rounds=2").folder
    forget()
    assert table(resume(short, "rounds=3").folder) == table(alone)


@pytest.mark.slow
def test_a_table_knows_the_figure_without_its_file(parts: str, tmp_path: Path) -> None:
    folder = play(tmp_path, parts, *CHOSEN).folder
    forget()
    metrics._recalled.clear()
    assert metrics.declared("local/cost") is None
    run = load(folder)
    assert run.headline == "test/cost"
    known = metrics.fact("local/cost")
    assert (known.better, known.unit) == ("smaller", "EUR")
    made = compare([run], "test/cost", Statistic(best=True))
    assert next(iter(made.cells.values())).mean == min(row["test/cost"] for row in run.rows[1:])


@pytest.mark.slow
def test_a_run_whose_status_says_nonsense_is_named(parts: str, tmp_path: Path) -> None:
    folder = play(tmp_path, parts, *CHOSEN).folder
    status = json.loads((folder / "status.json").read_text())
    for wrong in ({"cost": 3}, ["cost"], {"cost": {"better": 1}}):
        (folder / "status.json").write_text(json.dumps(status | {"figures": wrong}))
        with pytest.raises(ConfigError, match=r"figures is of another kind"):
            load(folder)
    (folder / "status.json").write_text(json.dumps(status | {"figures": {"cost": {"better": "sideways"}}}))
    forget()
    assert load(folder).headline == "test/cost"
    assert metrics.fact("test/cost").better is None


WRONG = {
    "a function": ("def price(outputs, targets): ...", "is not a class derived from Figure"),
    "another class": ("class Price: ...", "is not a class derived from Figure"),
    "no value": ("class Price(Figure):\n    def state(self, o, t): return {}", "has no value; write it"),
    "neither": ("class Price(Figure): ...", "has no state and no value"),
    "a direction that is none": (
        "class Price(Figure):\n    better = 'up'\n    def state(self, o, t): ...\n    def value(self, s): ...",
        "better = 'up' must be 'larger', 'smaller' or None",
    ),
    "a value that it needs": (
        "class Price(Figure):\n    def __init__(self, a): ...\n    def state(self, o, t): ...\n"
        "    def value(self, s): ...",
        "missing 1 required positional argument",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_figure_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    code, words = WRONG[what]
    file = tmp_path / "wrong.py"
    file.write_text(f"from fedstride import Figure, part\n\n@part(metric='price')\n{code}\n")
    with pytest.raises(ConfigError) as caught:
        load_parts(str(file), TABLES)
    assert (
        words in str(caught.value) and len(str(caught.value).splitlines()) == 1 and str(file) in str(caught.value)
    )


@pytest.mark.parametrize("name", ["auroc", "loss", "c_index", "rmse", "calibration"])
def test_the_name_of_a_built_in_figure_is_taken(name: str, tmp_path: Path) -> None:
    file = tmp_path / "taken.py"
    file.write_text(SOURCE.replace('metric="cost"', f'metric="{name}"'))
    with pytest.raises(ConfigError, match=f"metric = '{name}' is the name of a built-in figure"):
        load_parts(str(file), TABLES)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"rows": len(targets)', '"rows": len(targets), "each": far', "its state has other arrays for 13 rows"),
        ('state["rows"]\n', 'state["people"]\n', "KeyError: 'people'"),
        ("(1.5 * far).sum()", "1.5 * targets / 0", "not finite"),
        ("outputs.argmax(1) - targets", "outputs.argmax(1) - target", "NameError"),
    ],
)
def test_a_figure_that_fails_is_refused_before_the_run(old: str, new: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text(SOURCE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        preparation.prepare(compose([f"parts={file}", "model=mlp", *CHOSEN, f"out={tmp_path}/runs"]))
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_figure_that_the_task_cannot_have_is_none_of_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "of_values.py"
    file.write_text(SOURCE.replace('unit = "EUR"', 'predicts = ("values", "labels")'))
    with pytest.raises(ConfigError, match=r"'cost' is not a figure of this task"):
        preparation.prepare(compose([f"parts={file}", "model=mlp", "task.metrics=[cost]", f"out={tmp_path}/runs"]))


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "best"), [("[shares,cost]", "test/cost"), ("[shares]", "test/loss")])
def test_a_figure_without_a_direction_does_not_decide(chosen: str, best: str, parts: str, tmp_path: Path) -> None:
    outcome = play(tmp_path, parts, f"task.metrics={chosen}", "rounds=1")
    assert load(outcome.folder).headline == best
    assert len(outcome.rows[-1]["test/shares"]) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("least", "rows", "leaves"), [(1, 12, True), (5, 60, False), (2, 700, True), (30, 700, False)]
)
def test_a_site_with_few_rows_behind_a_number_sends_no_state(
    least: int, rows: int, leaves: bool, parts: str, tmp_path: Path
) -> None:
    folder = play(tmp_path, parts, *CHOSEN).folder
    examples = held_out(folder, rows)
    sent = small_counts.figures(evaluate(model_of(folder, examples), examples), examples, least)
    assert ("shares" in sent) == leaves
    assert not math.isnan(sent["loss"])  # type: ignore[arg-type]
