"""User-defined parts in a file: chosen, listed, run and resumed like built-in ones; errors have one line."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from desk import SMALL, StopAfter, forget, play, resume, table, weights
from safetensors.numpy import load_file

from fedstride.errors import ConfigError
from fedstride.tasks import data
from fedstride.user_parts import load_bundled, load_parts
from lab.engine.begun_runs import BegunRun
from lab.report.repeat import overrides_for
from lab.results.grouping import group
from lab.results.run_folders import load
from server_app import preparation
from server_app.build import client_config
from server_app.config.compose import choices, compose, describe, digest, from_yaml, to_yaml
from server_app.config.keys import keys
from server_app.config.schema import TABLES

SOURCE = '''
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from torch import nn

from fedstride import RoundResult, Method, Plan, RuleStrategy, Setting, add_step, movement, averaged_buffers, part


@part(strategy="mine")
class Mine(RuleStrategy):
    """The averaged update, multiplied by a size."""

    def __init__(self, *, size: Annotated[float, Setting("factor", above=0)] = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.size = size

    def rule(self, sent, cohort, state):
        shares = cohort.shares(self.weighting)
        update = movement(sent, cohort.models, shares).update
        step = {name: self.size * delta for name, delta in update.items()}
        model = add_step(sent, step, averaged_buffers(sent, cohort.models, shares))
        return RoundResult(model, state, {"mine/size": self.size})


@part(client="halved")
@dataclass
class Halved(Method):
    """Half the rate in every mini-batch."""

    factor: Annotated[float, Setting("of the rate", above=0)] = 0.5

    def begin(self, job, received, state):
        return Plan(step_factors=[self.factor] * job.client.local_steps)


@part("A linear model.", model="linear")
def linear(inputs, outputs, *, bias: Annotated[bool, Setting("with b")] = True):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs.size, outputs, bias=bias))


@part(partition="sliced")
def sliced(source, clients, seed):
    """Every n-th example."""
    return [np.arange(k, len(source), clients) for k in range(clients)]
'''
CHOSEN = ("strategy=mine", "strategy.size=0.5", "client=halved", "model=linear", "partition=sliced")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it's mine.py"
    path.write_text(SOURCE)
    return path


def named(path: Path) -> str:
    return "parts='" + str(path).replace("'", "\\'") + "'"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# ---------------------------------------------------------------- chosen


def test_a_user_defined_part_is_chosen_with_its_settings(file: Path) -> None:
    config = compose([named(file), *CHOSEN])
    assert (config.strategy, config.client, config.model, config.partition) == (
        TABLES["strategy"].config("mine")(size=0.5),
        TABLES["client"].config("halved")(local_steps=None),
        TABLES["model"].config("linear")(),
        TABLES["partition"].config("sliced")(),
    )
    assert config.parts == str(file)
    assert from_yaml(to_yaml(config)) == config
    assert {"strategy.size", "client.factor", "model.bias"} <= {key.path for key in keys(config)}


def test_the_position_of_the_parts_override_makes_no_difference(file: Path) -> None:
    assert compose([*CHOSEN, named(file)]) == compose([named(file), *CHOSEN])


def test_wrappers_can_wrap_a_user_defined_strategy(file: Path) -> None:
    strategy = compose([named(file), "strategy=mine+fedlws", "strategy.inner.size=2"]).strategy
    assert (strategy.name, strategy.inner) == ("fedlws", TABLES["strategy"].config("mine")(size=2.0))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("strategy.size=0", "strategy.size = 0.0 is not allowed: size must be a finite number greater than 0"),
        ("strategy.siz=1", "unknown key 'strategy.siz'. Did you mean 'strategy.size'"),
        ("strategy.size=big", "'strategy.size=big' is not allowed"),
        ("strategy=min", "unknown strategy 'min'. Did you mean 'mine'"),
    ],
)
def test_mistakes_in_settings_of_user_defined_parts_are_rejected(file: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([named(file), "strategy=mine", override])
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_user_defined_parts_are_listed_and_described(file: Path) -> None:
    assert "mine" not in choices("strategy")
    load_parts(str(file), TABLES)
    assert "mine" in choices("strategy")
    assert describe("strategy", "mine") == "The averaged update, multiplied by a size."
    assert describe("model", "linear") == "A linear model."


def test_clients_get_the_name_of_the_parts_file_without_its_folder(file: Path) -> None:
    config = compose([named(file), *CHOSEN])
    sent = client_config(config, data.load(config.task).spec)
    assert sent["parts"] == [file.name]
    assert not [value for value in sent.values() if str(file.parent) in str(value)]


# ---------------------------------------------------------------- rejected files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = = 1", "cannot be loaded: SyntaxError: invalid syntax"),
        (
            "import nowhere_to_be_found",
            "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        (SOURCE + "\nraise ValueError('half\\nway')", "cannot be loaded: ValueError: half"),
        ("x = 1", "defines no part; mark a class or function, as in @part"),
        (
            SOURCE.replace('"mine"', '"fedavg"'),
            "strategy = 'fedavg' is the name of a built-in part; choose another name",
        ),
        (SOURCE.replace("strategy=", "strateg="), "unknown group in mine.py 'strateg'. Did you mean 'strategy'?"),
        (SOURCE.replace('client="halved"', ""), "name exactly one group, as in @part(strategy='mine')"),
    ],
)
def test_a_rejected_parts_file_registers_nothing_and_is_rejected_again(
    tmp_path: Path, text: str, said: str
) -> None:
    path = write(tmp_path / "mine.py", text)
    before = {group: choices(group) for group in TABLES}
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            compose([named(path)])
        assert said in str(caught.value) and "\n" not in str(caught.value)
        assert {group: choices(group) for group in TABLES} == before
    path.write_text(SOURCE)
    assert compose([named(path), "strategy=mine"]).strategy.name == "mine"


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"parts = '.*gone.py' does not exist; give the path of a Python file"):
        compose([named(tmp_path / "gone.py"), "strategy=mine"])


def test_a_second_parts_file_without_parts_is_rejected(file: Path, tmp_path: Path) -> None:
    compose([named(file), "strategy=mine"])
    with pytest.raises(ConfigError, match="defines no part"):
        compose([named(write(tmp_path / "empty.py", "x = 1"))])
    assert "mine" in choices("strategy")


def test_two_parts_files_with_the_same_name_are_rejected(file: Path, tmp_path: Path) -> None:
    compose([named(file)])
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="is already loaded; rename one of them"):
        compose([named(write(tmp_path / "other" / file.name, SOURCE))])


@pytest.mark.parametrize("name", ["../mine.py", "/etc/passwd", "mine", "a/b.py", "nowhere.py"])
def test_a_client_loads_only_parts_files_of_its_bundle(name: str) -> None:
    with pytest.raises(ConfigError, match=r"must be the name of a Python file|is not in this client's copy"):
        load_bundled([name])


# ---------------------------------------------------------------- runs and resumed runs


@pytest.mark.slow
def test_a_run_with_user_defined_parts_learns_and_records_them(file: Path, tmp_path: Path) -> None:
    outcome = play(tmp_path, "rounds=2", named(file), *CHOSEN)
    assert outcome.folder.name == "mnist5k-sliced-mine-halved-seed1"
    assert [row["mine/size"] for row in outcome.rows[1:]] == [0.5, 0.5]
    assert outcome.rows[-1]["test/loss"] < outcome.rows[0]["test/loss"]
    config = from_yaml((outcome.folder / "config.yaml").read_text())
    assert {named(file), "strategy=mine", "strategy.size=0.5", "model=linear"} <= set(overrides_for(config))


@pytest.mark.slow
def test_the_settings_of_a_user_defined_part_change_the_result(file: Path, tmp_path: Path) -> None:
    given = ("rounds=1", named(file), "strategy=mine")
    first, second = (play(tmp_path, *given, f"strategy.size={size}") for size in (1, 2))
    assert weights(first.folder) != weights(second.folder)


@pytest.mark.slow
def test_a_user_defined_client_rule_is_applied(file: Path, tmp_path: Path) -> None:
    halved = play(tmp_path, "rounds=2", named(file), "client=halved", "client.lr=0.05")
    slower = play(tmp_path, "rounds=2", "client=sgd", "client.lr=0.025")
    assert weights(halved.folder) == weights(slower.folder)


@pytest.fixture
def part_way(file: Path, tmp_path: Path) -> Path:
    """A run that was interrupted after its second round."""
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "rounds=3", "name=part", named(file), "strategy=mine", observers=[StopAfter(2)])
    return tmp_path / "part"


@pytest.mark.parametrize(
    ("old", "new", "chosen", "said"),
    [
        (" = 1.0, **options: Any) -> None:", " = 1.0, screening=None, seed=0) -> None:", "strategy=mine",
         "strategy = 'mine' is called with other arguments than it takes (got an unexpected keyword argument"),
        ("def linear(inputs, outputs, *,", "def linear(inputs, *,", "model=linear",
         "model = 'linear' is called with other arguments than it takes (too many positional arguments)"),
    ],
)  # fmt: skip
def test_a_part_that_takes_other_arguments_is_refused_in_one_line(
    file: Path, tmp_path: Path, old: str, new: str, chosen: str, said: str
) -> None:
    assert SOURCE.count(old) == 1
    file.write_text(SOURCE.replace(old, new))
    forget()
    with pytest.raises(ConfigError) as caught:
        preparation.prepare(compose([*SMALL[1:], f"out='{tmp_path}'", named(file), "model=mlp", chosen]))
    assert said in str(caught.value) and "docs/own-parts.md" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_for_some_losses_is_refused_with_another(file: Path, tmp_path: Path) -> None:
    file.write_text(SOURCE.replace('@part(client="halved")', '@part(client="halved", losses=["squared_error"])'))
    forget()
    given = (*SMALL[1:], f"out='{tmp_path}'", named(file), "client=halved")
    assert (
        preparation.prepare(compose([*given, "task=diabetes", "partition=iid", "model=mlp"])).config.client.name
        == "halved"
    )
    with pytest.raises(ConfigError, match=r"loss cross_entropy, .* halved needs squared_error$"):
        preparation.prepare(compose([*given, "model=mlp"]))


@pytest.mark.slow
def test_resumed_equals_unbroken(file: Path, tmp_path: Path, part_way: Path) -> None:
    whole = play(tmp_path, "rounds=3", "name=whole", named(file), "strategy=mine").folder
    forget()
    resume(part_way)
    assert weights(whole) == weights(part_way)
    assert table(whole) == table(part_way)
    assert json.loads((part_way / "status.json").read_text())["state"] == "completed"


@pytest.mark.slow
def test_runs_of_two_versions_of_the_file_are_not_one_method(file: Path, tmp_path: Path) -> None:
    """A table does not average over them, and a sweep does not take the one for the other."""
    given = ("rounds=1", named(file), "strategy=mine")
    first = play(tmp_path, *given, "seed=1", "name=first").folder
    forget()
    file.write_text(SOURCE.replace("self.size * delta", "2 * self.size * delta"))
    second = play(tmp_path, *given, "seed=2", "name=second").folder
    runs = [load(folder) for folder in (first, second)]
    assert all(run.config.parts_digest for run in runs)
    assert len(group(runs)) == 2
    again = compose([*SMALL, f"out='{tmp_path}'", *given, "seed=1", "name=first"])
    with pytest.raises(ConfigError, match="first has a run with parts_digest = "):
        BegunRun(again, first).check("choose another folder")
    BegunRun(replace(again, seed=2), second).check("choose another folder")


@pytest.mark.slow
def test_a_run_cannot_be_resumed_with_a_changed_parts_file(file: Path, part_way: Path) -> None:
    before = digest(from_yaml((part_way / "config.yaml").read_text()))
    forget()
    file.write_text(SOURCE.replace("self.size * delta", "2 * self.size * delta"))
    with pytest.raises(ConfigError, match=r"mine\.py\" has the digest .* not the file with which the run beg"):
        resume(part_way)
    assert digest(from_yaml((part_way / "config.yaml").read_text())) != before
    file.write_text(SOURCE)
    forget()
    assert resume(part_way).rows[-1]["round"] == 3


@pytest.mark.slow
def test_a_resumed_run_accepts_the_new_path_of_a_moved_parts_file(
    file: Path, part_way: Path, tmp_path: Path
) -> None:
    forget()
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(file, tmp_path / "elsewhere" / "renamed.py")
    with pytest.raises(ConfigError, match=r"parts = .* does not exist"):
        resume(part_way)
    assert resume(part_way, named(moved)).rows[-1]["round"] == 3


@pytest.mark.slow
def test_a_resumed_run_cannot_change_a_user_defined_setting(file: Path, part_way: Path) -> None:
    with pytest.raises(ConfigError, match=r"strategy.size = 2, but the run in .* has 1.0"):
        resume(part_way, "strategy.size=2")


# ---------------------------------------------------------------- tied weights and registered buffers

TIED = """
import torch
from torch import nn
from fedstride import part


@part(model="tied")
class Tied(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        size = inputs.size
        self.register_buffer("positions", torch.linspace(0.5, 1.0, size))
        self.embed, self.first, self.second = nn.Linear(size, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.classifier = nn.Linear(8, outputs)

    def forward(self, x):
        x = self.embed(x.flatten(1) * self.positions).relu()
        return self.classifier(self.second(self.first(x).relu()).relu())
"""


@pytest.mark.parametrize("strategy", ["fednnnn+fedlws", "fedavgm", "scaffold"])
def test_a_tied_tensor_is_trained_once_and_buffers_do_not_change(tmp_path: Path, strategy: str) -> None:
    model = [named(write(tmp_path / "tied.py", TIED)), "model=tied", "rounds=2"]
    outcome = play(tmp_path, f"strategy={strategy}", *model)
    arrays = load_file(outcome.folder / "model.safetensors")
    assert "second.weight" not in arrays
    np.testing.assert_array_equal(arrays["positions"], torch.linspace(0.5, 1.0, 784).numpy())
    assert all(row["screening/rejected"] == 0 for row in outcome.rows[1:])
    layers = {key.removeprefix("norms/N/") for key in outcome.rows[-1] if key.startswith("norms/N/")}
    assert layers == {"embed", "first", "second", "classifier"}
