"""Parts that are defined in the session itself: chosen, recorded with the run, and found without the session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from desk import forget, table, weights

import fedstride
from fedstride.errors import ConfigError, FedstrideError
from fedstride.parts import HALF, METRIC, USER_PARTS
from server_app.config.schema import TABLES

SMALL: dict[str, Any] = {
    "model": "mlp",
    "clients": 3,
    "client.local_steps": 2,
    "client.batch_size": 20,
    "rounds": 2,
}

MINE = '''
from typing import Annotated
from fedstride import Method, RoundResult, RuleStrategy, Setting, add_step, averaged_buffers, movement, part

FACTOR = 0.5

def scaled(update, size):
    return {name: FACTOR * size * delta for name, delta in update.items()}

@part(strategy="mine")
class Mine(RuleStrategy):
    """A scaled update."""

    def __init__(self, *, size: Annotated[float, Setting("factor", above=0)] = 1.0, **options):
        super().__init__(**options)
        self.size = size

    def rule(self, sent, cohort, state):
        shares = cohort.shares(self.weighting)
        update = movement(sent, cohort.models, shares).update
        model = add_step(sent, scaled(update, self.size), averaged_buffers(sent, cohort.models, shares))
        return RoundResult(model, state, {})
'''

ATTACK = """
from lab.attacks.rules import SignFlip
from server_app.config.attacks import Attackers

@part(attack="theirs")
class Theirs(SignFlip):
    '''A reversed update.'''
    def __init__(self, *, clients: Annotated[int, Setting("attackers", least=1)] = 1): ...
"""
CALIBRATION = """
from server_app.evaluation.ccvr import CCVR
from server_app.config.calibrations import CCVRSettings

@part(calibration="theirs")
class Theirs(CCVR):
    '''CCVR with few draws.'''
    def __init__(self, layer, *, seed, rounds, draws: Annotated[int, Setting("draws", least=1)] = 20):
        super().__init__(CCVRSettings(draws=draws), layer, seed=seed, rounds=rounds)
"""
PRIVACY = """
@part(privacy="theirs")
def theirs(strategy, *, screening, clients_a_round, factor: Annotated[float, Setting("no use")] = 1.0):
    '''Nothing is protected.'''
    return strategy
"""
MODEL = """
from torch import nn

@part(model="theirs")
class Theirs(nn.Module):
    '''A linear model.'''
    def __init__(self, inputs, outputs):
        super().__init__()
        self.all = nn.Sequential(nn.Flatten(), nn.Linear(784, outputs))
    def forward(self, x):
        return self.all(x)
"""
METRICS = """
import numpy as np
from fedstride import Figure

class Share(Figure):
    better = "larger"
    predicts = ("class",)
    def state(self, outputs, targets):
        return {"hits": np.count_nonzero(outputs.argmax(1) == targets), "rows": len(targets)}
    def value(self, state):
        return FACTOR * state["hits"] / state["rows"]

FACTOR = 0.5

@part(metric="theirs")
class Theirs(Share):
    '''Half of the share of right predictions.'''

@part(metric="unused")
class Unused(Share):
    '''The same.'''
"""
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

BEGIN = """
from typing import Annotated
from fedstride import Setting, part
"""

OF_EACH_KIND: dict[str, tuple[str, dict[str, Any]]] = {
    "strategy": (MINE, {"strategy": "mine", "strategy.size": 0.7}),
    "client": ((EXAMPLES / "own_client.py").read_text(), {"client": "warmup", "client.local_steps": None}),
    "objective": ((EXAMPLES / "own_objective.py").read_text(), {"objective": "smoothed"}),
    "task": ((EXAMPLES / "own_task.py").read_text(), {"task": "stripes", "partition": "iid"}),
    "model": (BEGIN + MODEL, {"model": "theirs"}),
    "partition": ((EXAMPLES / "own_partition.py").read_text(), {"partition": "geometric"}),
    "privacy": (BEGIN + PRIVACY, {"privacy": "theirs"}),
    "attack": (BEGIN + ATTACK, {"attack": "theirs"}),
    "calibration": (BEGIN + CALIBRATION, {"calibration": "theirs", "strategy": "fedavg"}),
    METRIC: (BEGIN + METRICS, {"task.metrics": ["theirs", "accuracy"]}),
    HALF: ((EXAMPLES / "own_wrapper.py").read_text(), {"strategy": "fedavg+noisy"}),
}
"""A text that defines a part of this kind, and the keys that choose it."""

Session = Callable[[str], None]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Executes a text as the program itself, which has no part of an earlier test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)
    file = tmp_path / "program.py"

    def execute(text: str) -> None:
        file.write_text(text)
        module = ModuleType("__main__")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, str(file), "exec", dont_inherit=True), vars(module))

    return execute


@pytest.mark.slow
def test_a_part_of_the_session_is_recorded_with_the_run(session: Session, call: Callable[..., Any]) -> None:
    """Workers have it, and without the session the run is resumed, read, compared and loaded."""
    session(MINE)
    whole = fedstride.run({**SMALL, "rounds": 3}, strategy="mine", name="whole", workers=2)
    part = fedstride.run(SMALL, strategy="mine", name="part", workers=0)
    parts = Path(str(part.config.parts))
    assert parts.parent == part.folder.parent / "parts" and whole.config.parts == part.config.parts
    forget()
    assert call("resume", part.folder, "rounds=3", "-q")[0] == 0
    assert weights(part.folder) == weights(whole.folder) and table(part.folder) == table(whole.folder)
    code, out, _ = call("table", part.folder.parent)
    assert code == 0 and "mine" in out
    assert fedstride.load(part.folder).spec.outputs == 10
    assert fedstride.results(part.folder.parent).table()["method"].tolist() == ["mine"]


def test_each_kind_of_part_has_a_case() -> None:
    assert set(OF_EACH_KIND) == {*TABLES, METRIC, HALF}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_a_part_of_each_kind_is_chosen_by_its_name(session: Session, call: Callable[..., Any], kind: str) -> None:
    """It is recorded with the run, and the run is resumed without the session."""
    text, keys = OF_EACH_KIND[kind]
    session(text)
    made = fedstride.run({**SMALL, "strategy": "fedavg", **keys}, name="made")
    file = Path(str(made.config.parts))
    assert made.state == "completed" and f"@part({kind}=" in file.read_text() and "unused" not in file.read_text()
    forget()
    assert call("resume", made.folder, "rounds=3", "-q")[0] == 0
    assert fedstride.results(made.folder)[0].rounds.index[-1] == 3


@pytest.mark.slow
def test_figures_of_the_session(session: Session) -> None:
    """They are in a run, a sweep over sets of figures and a comparison, with the value that they say."""
    session(BEGIN + METRICS)
    runs = fedstride.sweep({**SMALL, "task.metrics": [("theirs", "accuracy"), ("unused", "accuracy")]}, out="here")
    assert not runs.failed
    for run, name in zip(runs, ("theirs", "unused"), strict=True):
        rows = run.rounds.dropna(subset=[f"test/{name}"])
        assert (rows[f"test/{name}"] * 2).tolist() == pytest.approx(rows["test/accuracy"].tolist())
    with pytest.raises(ConfigError, match="metric = 'theirs' is defined in this session, and parts = 'other"):
        fedstride.run({**SMALL, "task.metrics": ["theirs"]}, parts="other.py")


@pytest.mark.slow
def test_an_edited_part_is_another_and_the_earlier_run_keeps_its_own(session: Session) -> None:
    session(MINE)
    one = fedstride.run(SMALL, strategy="mine", name="one")
    session(MINE.replace("FACTOR = 0.5", "FACTOR = 0.25"))
    two = fedstride.run(SMALL, strategy="mine", name="two")
    three = fedstride.run({**SMALL, "strategy.size": 2.0}, strategy="mine", name="three")
    assert one.config.parts != two.config.parts == three.config.parts
    assert weights(one.folder) == weights(three.folder) != weights(two.folder)
    again = fedstride.resume(one.folder, rounds=3)
    assert again.config.parts == one.config.parts


@pytest.mark.slow
def test_a_network_of_the_session_is_in_use_after_it_was_edited(session: Session) -> None:
    net = (
        "from torch import nn\nfrom fedstride import part\n\n@part(model='net')\nclass Net(nn.Module):\n"
        "    def __init__(self, inputs, outputs):\n        super().__init__()\n"
        "        self.all = nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.ReLU(), nn.Linear(5, outputs))\n"
        "    def forward(self, x):\n        return self.all(x)\n"
    )
    session(net)
    made = fedstride.run({**SMALL, "model": "net"})
    session(net.replace("784, 5", "784, 7").replace("(5,", "(7,"))
    assert made.model.network.all[1].out_features == 5  # type: ignore[index,union-attr]
    wider = fedstride.run({**SMALL, "model": "net"})
    assert wider.model.network.all[1].out_features == 7  # type: ignore[index,union-attr]


@pytest.mark.slow
def test_a_sweep_of_parts_of_the_session(session: Session) -> None:
    session(MINE)
    found = fedstride.sweep({**SMALL, "strategy.size": [1.0, 2.0]}, strategy="mine", out="here")
    assert (
        len(found) == 2 and not found.failed and found.table()["method"].tolist() == ["mine size=1", "mine size=2"]
    )
    methods = fedstride.sweep(SMALL, method=["fedavg", "mine+fedprox"], out="there")
    assert sorted(methods.table()["method"]) == ["fedavg", "mine+fedprox"]


@pytest.mark.slow
def test_the_half_of_a_rule_comes_with_it(session: Session) -> None:
    text = (Path(__file__).resolve().parents[3] / "examples/own_wrapper.py").read_text()
    session(text)
    (name,) = USER_PARTS["strategy"]
    made = fedstride.run(SMALL, strategy=f"fedavg+{name}", workers=2)
    assert made.state == "completed" and "half=" in Path(str(made.config.parts)).read_text()
    assert (made.rounds["screening/rejected"].iloc[1:] == 0).all()


@pytest.mark.parametrize(
    ("text", "keys", "said"),
    [
        (
            MINE,
            {"parts": "other.py"},
            "strategy = 'mine' is defined in this session, and parts = 'other.py' is a file",
        ),
        (
            MINE.replace("FACTOR = 0.5", "FACTOR = [0.5]"),
            {},
            "strategy = 'mine' uses FACTOR, a list of this session",
        ),
        (MINE, {"strategy.size": -1}, "strategy.size = -1.0 is not allowed"),
        (MINE, {"strategy.sise": 1}, "unknown key 'strategy.sise'. Did you mean 'strategy.size'"),
        (MINE, {"task": "mnist"}, ""),
    ],
)
def test_a_refused_run_leaves_no_file(session: Session, text: str, keys: dict[str, Any], said: str) -> None:
    session(text)
    with pytest.raises(FedstrideError) as error:
        fedstride.run({**SMALL, **keys}, strategy="mine")
    assert said in str(error.value) and "\n" not in str(error.value)
    assert not Path("runs").exists()


def test_the_name_of_a_built_in_part_is_refused(session: Session) -> None:
    session(MINE.replace('strategy="mine"', 'strategy="fednnnn"'))
    with pytest.raises(ConfigError, match="strategy = 'fednnnn' is the name of a built-in part"):
        fedstride.run(SMALL, strategy="fednnnn")


@pytest.mark.slow
def test_a_part_of_an_imported_module_needs_its_file(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rules.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    session("import my_rules")
    file = str(tmp_path / "my_rules.py")
    with pytest.raises(ConfigError) as error:
        fedstride.run(SMALL, strategy="mine")
    assert str(error.value) == (
        f"strategy = 'mine' is defined in the module my_rules: choose its file too, with parts={file!r}"
    )
    assert fedstride.run(SMALL, strategy="mine", parts=file).state == "completed"
    monkeypatch.delitem(sys.modules, "my_rules")


@pytest.mark.slow
def test_a_program_and_one_that_is_typed_in(tmp_path: Path) -> None:
    run = f"\nimport fedstride\nprint(fedstride.run({SMALL!r}, strategy='mine').state)\n"
    (tmp_path / "program.py").write_text(MINE + run)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "completed\n" and done.stderr == ""
    typed = subprocess.run(
        [sys.executable, "-"], input=MINE + run, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert typed.stderr.splitlines()[-1].endswith(
        "strategy = 'mine' needs Mine, whose source in this session is not known: write it to a file, and give "
        "parts=FILE"
    )
