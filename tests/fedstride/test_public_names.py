"""The public names: the same list for users, editors and type checkers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer

import fedstride
from fedstride import __main__ as command
from node import commands

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
    with pytest.raises(AttributeError, match=rf"no attribute 'FedNNN'; it has {', '.join(sorted(NAMES)[:5])},"):
        fedstride.FedNNN  # noqa: B018
    with pytest.raises(ImportError):
        exec("from fedstride import FedNNN")


@pytest.mark.slow
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


def test_the_commands_of_a_site_are_those_of_the_node() -> None:
    app = typer.Typer()
    commands.add_to(app)
    assert tuple(each.name for each in app.registered_commands) == command.OF_A_NODE


@pytest.mark.parametrize(
    ("arguments", "lacks", "said"),
    [
        ([], ("hydra", "torch"), "hydra, torch: pip install 'fedstride[desk]'"),
        (
            ["run", "node"],
            ("hydra",),
            f"hydra: pip install 'fedstride[desk]'; without it there are {', '.join(command.OF_A_NODE)}",
        ),
        (
            ["node-log", "run"],
            ("hydra", "torch"),
            "torch: pip install 'fedstride[node]', or 'fedstride[node-http]' for the newest Flower",
        ),
    ],
)
def test_the_command_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    lacks: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name in lacks else object())
    monkeypatch.setattr(sys, "argv", ["fedstride", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == f"error: the command needs {said}\n"


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("desk", (*command.DESK, *command.NODE)),
        ("node", command.NODE),
        ("node-http", command.NODE),
    ],
)
def test_an_extra_contains_what_its_commands_need(extra: str, modules: tuple[str, ...]) -> None:
    brought = " ".join((*always(), *brings(extra))).lower()
    where = packages_distributions()
    assert all(f"{where[name][0].lower()}>=" in brought for name in modules)


def test_what_a_site_installs_has_nothing_of_a_desk() -> None:
    names = {re.split("[>=<]", text)[0] for extra in ("node", "node-http") for text in brings(extra)}
    desk = {"hydra-core", "omegaconf", "pandas", "matplotlib", "mlxtend", "flwr-datasets", "rich"}
    assert "torch" in names and not names & desk and desk < {re.split("[>=<]", text)[0] for text in brings("desk")}


def always() -> list[str]:
    """What the package requires without an extra."""
    required: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return required


def brings(extra: str) -> list[str]:
    """What an extra requires, with the extras of this project that it names."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[str] = []
    for text in pyproject["project"]["optional-dependencies"][extra]:
        own = re.fullmatch(r"fedstride\[([\w-]+)\]", text)
        found += brings(own[1]) if own else [text]
    return found


@pytest.mark.parametrize(
    ("name", "option", "said"),
    [
        ("FedNNNN", "betta", "FedNNNN has no setting 'betta'; did you mean 'beta'?"),
        ("FedNNNN", "fraction_fit", "FedNNNN has no setting 'fraction_fit'; did you mean 'fraction_train'?"),
        ("FedNova", "weigting", "FedNova has no setting 'weigting'; did you mean 'weighting'?"),
        ("Fedalr", "xyzzy", "Fedalr has no setting 'xyzzy'; it has arrayrecord_key, buffers, "),
        ("FedLWS", "betta", "FedLWS has no setting 'betta'; did you mean 'beta'?"),
        ("FedLWS", "screenings", "FedLWS has no setting 'screenings'; did you mean 'screening'?"),
    ],
)
def test_a_misspelt_setting_is_named_with_its_class(name: str, option: str, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        getattr(fedstride, name)(**{option: 1})


def test_all_names_can_be_imported_at_once() -> None:
    found: dict[str, object] = {}
    exec("from fedstride import *", found)
    assert set(NAMES) <= set(found)
