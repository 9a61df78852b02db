"""The public names: the same list for users, editors and type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedstride
from fedstride import __main__ as command

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for name in dir(fedstride) if not name.startswith("_")]


def seen(file: Path) -> set[str]:
    """The names that editors and type checkers find, which are imported under `if TYPE_CHECKING`."""
    names: set[str] = set()
    for block in ast.parse(file.read_text()).body:
        for node in ast.walk(block) if isinstance(block, ast.If) else ():
            if not isinstance(node, ast.ImportFrom):
                continue
            if node.names[0].name == "*":
                home = (file.parent if node.level else ROOT) / str(node.module)
                names |= seen(home / "__init__.py" if home.is_dir() else home.with_suffix(".py"))
            else:
                names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_editors_see_all_public_names() -> None:
    assert seen(Path(fedstride.__file__)) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(fedstride, name).__name__ == name


def test_the_error_for_an_unknown_name_lists_all_names() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'FedNNN'; it has AWD, AdaDecay, Data, DifferentialPrivacy"
    ):
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


def test_a_name_that_needs_torch_raises_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("client_app")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"NeuronSGD needs torch: pip install 'fedstride\[client\]'"):
        fedstride.NeuronSGD  # noqa: B018


def test_the_command_without_the_extra_desk_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name in ("hydra", "torch") else object())
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: the command needs hydra, torch: pip install 'fedstride[desk]'\n"


def test_the_extra_desk_contains_what_the_command_needs() -> None:
    import tomllib
    from importlib.metadata import packages_distributions

    pyproject = tomllib.loads((Path(fedstride.__file__).parents[1] / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    brought = " ".join([*extras["desk"], *extras["client"]])
    where = packages_distributions()
    assert all(f"{where[name][0].lower()}>=" in brought.lower() for name in command.DESK)
