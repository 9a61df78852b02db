"""The house stands as designed: arrows go one way, and importing the light rooms loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "fedstride": set(),
    "strategies": {"fedstride"},
    "client_app": {"fedstride"},
    "server_app": {"fedstride", "strategies"},
    "lab": {"fedstride", "strategies", "client_app", "server_app"},
}
PUBLIC_FACE = {"fedstride/__init__.py", "fedstride/__main__.py"}
"""What users see first: these name what the other rooms offer, and import it when it is used."""

LAB_MAY_IMPORT = {  # rooms of lab/, with cli above them all
    "results": set(),
    "deployment": set(),
    "engine": {"results"},
    "plots": {"results"},
    "papers": {"results"},
    "flower": {"results", "engine"},
    "report": {"results", "engine", "plots", "papers"},
}
MAY_IMPORT_ALONE = {  # one module of a room that is shut otherwise
    # Which client rules there are, and what can be set: a table that loads nothing, asked before any client is.
    "server_app": "client_app.parts",
}
STRATEGIES_MAY_USE = {"arrays", "wire", "seeds", "errors", "flower", "settings", "parts", "metrics", "mechanism"}


def imports(path: Path) -> set[str]:
    """Dotted names of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return found


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_arrows_go_one_way(package: str) -> None:
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package] - {package}
    alone = MAY_IMPORT_ALONE.get(package, "nothing else")
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        if str(path.relative_to(ROOT)) not in PUBLIC_FACE
        for name in imports(path)
        if name.split(".")[0] in forbidden and f"{name}.".removeprefix(f"{alone}.") == f"{name}."
    }
    assert not wrong


def test_the_door_opens_no_room_by_itself() -> None:
    """At its top it imports nothing of ours but for type checkers."""
    statements = ast.parse((ROOT / "fedstride/__init__.py").read_text()).body
    at_once = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    standard = {"__future__", "importlib", "importlib.util", "typing"}
    assert {node.module for node in at_once if isinstance(node, ast.ImportFrom)} == standard
    assert not [node for node in at_once if isinstance(node, ast.Import)]
    guarded = [ast.unparse(node.test) for node in statements if isinstance(node, ast.If)]
    assert guarded == ["TYPE_CHECKING"]


def test_the_one_table_that_the_server_reads_of_the_clients_stands_on_light_words_alone() -> None:
    used = imports(ROOT / "client_app/parts.py")
    assert {name.split(".")[0] for name in used} <= {"fedstride", "__future__", *sys.stdlib_module_names}
    assert {name.split(".")[1] for name in used if name.startswith("fedstride.")} == {"parts", "settings"}


def test_arrows_between_the_rooms_of_the_lab() -> None:
    rooms = {path.parent.name for path in (ROOT / "lab").glob("*/__init__.py")}
    assert rooms == {*LAB_MAY_IMPORT, "cli"}
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for room, allowed in LAB_MAY_IMPORT.items()
        for path in modules(f"lab/{room}")
        for name in imports(path)
        if name.startswith("lab.") and name.split(".")[1] not in {room, *allowed}
    }
    assert not wrong


def test_strategies_use_only_the_light_words() -> None:
    allowed = {"flwr", "numpy", "array_api_compat", "typing_extensions", "strategies", *sys.stdlib_module_names}
    for path in modules("strategies"):
        for name in imports(path):
            head, *rest = name.split(".")
            if head == "fedstride":
                assert not rest or rest[0] in STRATEGIES_MAY_USE, f"{path.name} imports {name}"
            else:
                assert head in allowed, f"{path.name} imports {name}"


def test_the_engine_knows_no_app() -> None:
    """It takes the two apps as arguments."""
    assert not {
        name for name in imports(ROOT / "lab/engine/local.py") if name.startswith(("client_app", "server_app"))
    }


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import fedstride", {"torch", "hydra", "flwr", "numpy"}),
        ("import strategies", {"torch", "hydra", "flwr", "numpy"}),
        ("from strategies import FedNNNN, FedLWS, Fedalr, TwoDLRD", {"torch", "hydra", "ray"}),
        ("import client_app.app", {"hydra", "torchvision", "pandas", "matplotlib", "strategies", "server_app"}),
        ("import server_app.app", {"torchvision", "pandas", "matplotlib"}),
        ("import lab.cli.main", {"torch", "hydra", "matplotlib"}),
    ],
)
def test_imports_stay_light(statement: str, heavy: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(' '.join(m for m in {sorted(heavy)!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_the_server_loads_no_more_of_the_clients_than_their_table() -> None:
    script = (
        "import server_app.app, sys\nprint(*sorted(m for m in sys.modules if m.split('.')[0] == 'client_app'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["client_app", "client_app.parts"]


def test_no_module_is_crowded() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for package in MAY_IMPORT
        for path in modules(package)
        if (lines := len(path.read_text().splitlines())) > 350
    }
    assert not long


def test_what_is_private_of_flowers_comes_through_one_module() -> None:
    public = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for package in MAY_IMPORT
        for path in modules(package)
        if path != ROOT / "fedstride/flower.py"
        for name in imports(path)
        if name.startswith("flwr.") and not any(name == p or name.startswith(f"{p}.") for p in public)
    }
    assert not wrong
