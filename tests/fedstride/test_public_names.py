"""The public face: one list of names, the same for people, for editors and for type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedstride
import strategies
from fedstride import __main__ as command


def test_editors_see_the_names_that_are_offered() -> None:
    tree = ast.parse(Path(fedstride.__file__).read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in ast.walk(checked) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(fedstride.__all__) <= set(dir(fedstride))


@pytest.mark.parametrize("name", fedstride.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(fedstride, name).__name__ == name


def test_every_strategy_is_public() -> None:
    assert set(strategies.__all__) <= set(fedstride.__all__)


def test_an_unknown_name_is_answered_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'FedNNN'; it offers DifferentialPrivacy, FedAvg"):
        fedstride.FedNNN  # noqa: B018
    with pytest.raises(ImportError):
        exec("from fedstride import FedNNN")


def test_strategies_come_without_torch() -> None:
    code = (
        "import sys\nfrom fedstride import FedLWS, RuleStrategy, Wrapper\n"
        "print({'torch', 'hydra'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_name_that_needs_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("client_app.rules")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"NeuronSGD needs torch: pip install 'fedstride\[client\]'"):
        fedstride.NeuronSGD  # noqa: B018


def test_the_command_without_the_desk_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name in ("hydra", "torch") else object())
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: the command needs hydra, torch: pip install 'fedstride[desk]'\n"


def test_what_the_command_needs_is_what_the_desk_brings() -> None:
    import tomllib
    from importlib.metadata import packages_distributions

    pyproject = tomllib.loads((Path(fedstride.__file__).parents[1] / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    brought = " ".join([*extras["desk"], *extras["client"]])
    where = packages_distributions()
    assert all(f"{where[name][0].lower()}>=" in brought.lower() for name in command.DESK)
