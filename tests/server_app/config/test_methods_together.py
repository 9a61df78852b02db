"""Methods of clients that cannot work are refused when the configuration is composed, and by the clients."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from client_app import combined_methods
from client_app.combined_methods import HOOKS, Composition, Member
from client_app.registry import EXCLUSIVE, OBJECTIVES, RULES, SETS
from client_app.training.method import Method, Plan
from fedstride.errors import ConfigError
from fedstride.parts import HALF, USER_PARTS
from lab.engine.sweep_combinations import plan
from server_app.config.compose import compose
from server_app.config.conflicts import _set_by

ROOT = Path(__file__).parents[3]
HEAD = "from fedstride import Method, Plan, part\nimport client_app\n"


@pytest.fixture
def parts(tmp_path: Path) -> Callable[[str], str]:
    """A function that writes a parts file and returns its override."""

    def write(body: str) -> str:
        (tmp_path / "own_methods.py").write_text(HEAD + textwrap.dedent(body))
        return f"parts={tmp_path / 'own_methods.py'}"

    return write


def rule(plan: str, *, group: str = "client", kind: str = "Method", name: str = "mine", before: str = "") -> str:
    return (
        f"@part({group}='{name}')\nclass Mine({kind}):\n    'Mine.'\n"
        f"    def begin(self, job, received, state):\n        {before or 'pass'}\n        return {plan}\n"
    )


# ---------------------------------------------------------------- two that set the same


@pytest.mark.parametrize("field", EXCLUSIVE)
def test_an_objective_and_a_rule_that_set_the_same_field(parts: Callable[[str], str], field: str) -> None:
    file = parts(rule(f"Plan({field}=[1])") + rule(f"Plan({field}=[1])", group="objective", name="yours"))
    assert compose([file, "client=mine"]).client.name == "mine"
    said = f"client.mine and objective.yours cannot be used together: both set {EXCLUSIVE[field]}; choose one"
    with pytest.raises(ConfigError, match=said):
        compose([file, "client=mine", "objective=yours"])


@pytest.mark.parametrize("method", ["fedavg+two_d_lrd+two_d_lrd", "two_d_lrd+fedlws+two_d_lrd"])
def test_two_strategies_with_one_half_are_refused(method: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used together: a client executes the half two_d_lrd once"):
        compose([f"strategy={method}"])


@pytest.mark.parametrize(
    "plan", ["client_app.Plan(batches=[1])", "Plan(None, None, [1])", "made(job)", "Other()(job)"]
)
def test_a_field_is_found_however_it_is_written(parts: Callable[[str], str], plan: str) -> None:
    file = parts(
        "def made(job): return Plan(batches=[1])\n"
        "class Other:\n    def __call__(self, job): return Plan(batches=[1])\n" + rule(plan)
    )
    with pytest.raises(ConfigError, match=r"client\.mine and halves\.two_d_lrd .* the mini-batches of the round"):
        compose([file, "client=mine", "strategy=fedlws+two_d_lrd"])


@pytest.mark.parametrize("plan", ["Plan(batches=None)", "Plan()", "Plan(pull=None)", "dict(batches=1)"])
def test_what_sets_nothing_is_used_together(parts: Callable[[str], str], plan: str) -> None:
    assert compose([parts(rule(plan)), "client=mine", "strategy=two_d_lrd"]).client.name == "mine"


def test_a_half_of_the_user_and_a_built_in_rule(parts: Callable[[str], str]) -> None:
    body = rule("Plan(factors={})", group="half") + (
        "from fedstride import RuleStrategy\n"
        "@part(strategy='served')\nclass Served(RuleStrategy):\n    'Served.'\n    half = 'mine'\n"
    )
    with pytest.raises(ConfigError, match=r"client\.fednlr and halves\.mine .* a rate for each neuron"):
        compose([parts(body), "client=fednlr", "strategy=served"])


def test_the_example_is_refused_with_2d_lrd_in_a_sweep_too(tmp_path: Path) -> None:
    given = [f"out={tmp_path}", f"parts={ROOT / 'examples/own_client.py'}", "client=warmup"]
    assert len(plan([*given, "strategy=fedavg,fedlws"]).jobs) == 2
    with pytest.raises(ConfigError, match=r"client\.warmup and halves\.two_d_lrd .* a rate for each step"):
        plan([*given, "strategy=fedavg,two_d_lrd"])


def test_the_table_has_what_the_built_in_methods_set() -> None:
    """The server reads the table, because it does not import these classes."""
    found = {}
    for table in (RULES, OBJECTIVES):
        found |= {f"{table.group}.{part.name}": _set_by(table.load(part.name)) for part in table.built_in()}
    for name in combined_methods.for_server_rules._built_in():
        found[f"halves.{name}"] = _set_by(type(combined_methods.for_server_rules.make(name)))
    assert {label: tuple(fields) for label, fields in found.items() if fields} == SETS
    assert list(EXCLUSIVE) == [name for name in Plan.__dataclass_fields__ if name in EXCLUSIVE]


# ---------------------------------------------------------------- an attribute with the name of a hook


def test_the_hooks_are_the_functions_of_the_class() -> None:
    defined = ast.parse(textwrap.dedent(inspect.getsource(Method))).body[0]
    assert isinstance(defined, ast.ClassDef)
    assert HOOKS == tuple(node.name for node in defined.body if isinstance(node, ast.FunctionDef)) != ()


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("body", ["self.{} = 3", "self.x, self.{} = 1, 2", "self.{}: int = 3", "self.{} += 1"])
@pytest.mark.parametrize("group", ["client", "objective"])
def test_a_hidden_hook_is_refused_at_once(parts: Callable[[str], str], group: str, body: str, hook: str) -> None:
    file = parts(rule("Plan()", group=group, before=body.format(hook)))
    with pytest.raises(ConfigError) as caught:
        compose([file, f"{group}=mine"])
    assert str(caught.value) == (
        f"Mine sets the attribute {hook}, which hides its hook {hook}(); give the attribute another name, "
        f"as in {hook}_"
    )


@pytest.mark.parametrize("hook", HOOKS)
def test_a_setting_with_the_name_of_a_hook_is_refused_at_once(parts: Callable[[str], str], hook: str) -> None:
    file = parts(
        "from dataclasses import dataclass\nfrom typing import Annotated\nfrom fedstride import Setting\n"
        f"@part(client='mine')\n@dataclass\nclass Mine(Method):\n    'Mine.'\n"
        f"    {hook}: Annotated[float, Setting('last')] = 1.0\n"
    )
    with pytest.raises(ConfigError, match=rf"Mine sets the attribute {hook}, which hides its hook {hook}\(\)"):
        compose([file, "client=mine"])


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("early", [True, False])
def test_a_client_refuses_a_hidden_hook_in_one_line(hook: str, early: bool) -> None:
    """Whatever way the attribute was set, before `begin` or in it; the class need not be derived from `Method`."""

    class Bare:
        def __init__(self) -> None:
            if early:
                vars(self)[hook] = 3

        def begin(self, job: object, received: object, state: object) -> Plan:
            vars(self)[hook] = 3
            return Plan()

        def end(self, job: object, plan: object, result: object) -> None: ...

    from flwr.app import RecordDict

    round_ = Composition([Member("client", "bare", Bare())])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^Bare sets the attribute {hook}, which hides its hook {hook}\(\)"):
        round_.begin(None, RecordDict(), {})  # type: ignore[arg-type]


def test_other_attributes_are_allowed(parts: Callable[[str], str]) -> None:
    body = rule("Plan()", before="self.end_ = 1; self.ended = 2; job.end = 3; end = 4")
    assert compose([parts(body), "client=mine"]).client.name == "mine"
    assert set(USER_PARTS["client"]) >= {"mine"} and HALF == "half"
