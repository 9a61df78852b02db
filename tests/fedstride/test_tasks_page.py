"""docs/tasks.md has every task, in the order of the table, with its numbers."""

from __future__ import annotations

import re
from pathlib import Path

from fedstride.settings import REQUIRED
from fedstride.tasks import data
from fedstride.tasks.goals import figures_of
from fedstride.tasks.parts import TASKS
from fedstride.tasks.spec import LOSSES, Target

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `")
]


def test_the_page_has_every_task() -> None:
    assert [row[0].strip("`") for row in ROWS] == [part.name for part in TASKS.built_in()]
    assert {len(row) for row in ROWS} == {8}


def test_the_numbers_of_the_tasks_without_files() -> None:
    checked = 0
    for name, _, examples, predicted, shape, groups, _, layout in ROWS:
        if layout != "no files":
            continue
        found = data.load(TASKS.config(name.strip("`"))())
        train, test = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", examples))
        assert (len(found.train_y), len(found.test_y)) == (train, test)
        assert predicted.startswith(f"{found.spec.outputs} ")
        sizes = " x ".join(map(str, found.spec.inputs.shape))
        assert (shape, groups) == (f"{found.spec.inputs.kind}, {sizes}", "")
        checked += 1
    complete = [name for name in TASKS if all(f.default is not REQUIRED for f in TASKS.fields(name).values())]
    assert checked == sum("root" not in TASKS.fields(name) for name in complete)


def test_the_tasks_of_the_nodes_own_data() -> None:
    own = {name.strip("`"): examples for name, _, examples, *_, layout in ROWS if layout == "files of the nodes"}
    assert own == {name: "none" for name in TASKS if name.startswith("own_")}


def test_losses_and_figures() -> None:
    rows = dict(re.findall(r"^\| (class|labels|values) \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert set(rows) == {str(target) for target in Target}
    for target in Target:
        losses, figures = (re.findall(r"`(\w+)`", cell) for cell in rows[str(target)].split(" | "))
        assert tuple(losses) == LOSSES[target]
        assert tuple(figures) == figures_of(target)
