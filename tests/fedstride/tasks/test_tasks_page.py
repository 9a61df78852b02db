"""docs/tasks.md has every task, in the order of the table, with its numbers."""

from __future__ import annotations

import re
from pathlib import Path

from fedstride.settings import REQUIRED
from fedstride.tasks import data
from fedstride.tasks.goals import figures_of
from fedstride.tasks.registry import TASKS
from fedstride.tasks.spec import LOSSES, Target

PAGE = Path(__file__).parents[3] / "docs" / "tasks.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `")
]


def test_the_page_has_every_task() -> None:
    listed = [row[0].strip("`") for row in ROWS]
    for number, part in enumerate(TASKS.built_in()):
        assert listed[number : number + 1] == [part.name], f"{PAGE} needs this row next: {row_for(part.name)}"
    assert len(listed) == len(TASKS.built_in()), f"{PAGE} has rows of no task: {listed[len(TASKS.built_in()) :]}"
    assert {len(row) for row in ROWS} == {8}


def row_for(name: str) -> str:
    """The row of a task, with what is known of it; a person fills in what is in capitals."""
    cells = [
        f"`{name}`",
        "SOURCE",
        "TRAINING and TEST",
        "NUMBER classes",
        "KIND, SHAPE",
        "GROUPS",
        "LICENCE",
        "LAYOUT",
    ]
    fields = TASKS.fields(name)
    if "root" not in fields and all(each.default is not REQUIRED for each in fields.values()):
        cells[2:6] = numbers_of(name)
        cells[-1] = "no files"
    return f"| {' | '.join(cells)} |"


def numbers_of(name: str) -> tuple[str, str, str, str]:
    """Examples, what is predicted, kind and shape, and groups, of a task without files."""
    found = data.load(TASKS.config(name)())
    examples = f"{len(found.train_y):,} and {len(found.test_y):,}"
    predicted = f"{found.spec.outputs} {'value' if found.spec.target is Target.VALUES else 'classes'}"
    sizes = " x ".join(map(str, found.spec.inputs.shape))
    return examples, predicted, f"{found.spec.inputs.kind}, {sizes}", ""


def test_a_missing_row_is_given_as_far_as_it_is_known() -> None:
    assert row_for("diabetes") == (
        "| `diabetes` | SOURCE | 354 and 88 | 1 value | table, 10 |  | LICENCE | no files |"
    )
    assert row_for("mnist").startswith("| `mnist` | SOURCE | TRAINING and TEST |")


def test_the_numbers_of_the_tasks_without_files() -> None:
    checked = 0
    for name, _, examples, predicted, shape, groups, _, layout in ROWS:
        if layout != "no files":
            continue
        assert (examples, predicted, shape, groups) == numbers_of(name.strip("`"))
        checked += 1
    complete = [name for name in TASKS if all(f.default is not REQUIRED for f in TASKS.fields(name).values())]
    assert checked == sum("root" not in TASKS.fields(name) for name in complete)


def test_the_tasks_of_the_nodes_own_data() -> None:
    own = {name.strip("`"): examples for name, _, examples, *_, layout in ROWS if layout == "files of the nodes"}
    assert own == {name: "none" for name in TASKS if name.startswith("own_")}


def test_losses_and_figures() -> None:
    rows = dict(re.findall(r"^\| (class|labels|values|survival) \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert set(rows) == {str(target) for target in Target}
    for target in Target:
        losses, figures = (re.findall(r"`(\w+)`", cell) for cell in rows[str(target)].split(" | "))
        assert tuple(losses) == LOSSES[target]
        assert tuple(figures) == figures_of(target)
