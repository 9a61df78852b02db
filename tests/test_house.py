"""The structure of the project: which packages may import which, and imports that must stay cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from private_names import hidden_names, violations

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "fedstride": set(),
    "strategies": {"fedstride"},
    "client_app": {"fedstride"},
    "server_app": {"fedstride", "strategies"},
    "confinement": set(),
    "node": {"fedstride", "client_app", "confinement"},
    "superlink": {"fedstride", "confinement"},
    "lab": {"fedstride", "strategies", "client_app", "server_app", "node", "confinement", "superlink"},
    "benchmarks": {"fedstride", "strategies", "client_app", "server_app", "node", "superlink", "lab"},
}
LAZY_IMPORTS = {"fedstride/__init__.py", "fedstride/__main__.py"}
"""Modules with names from other packages, which they import only when a name is used."""

LAB_MAY_IMPORT = {  # packages of lab/, and modules beside them; lab/cli may import all of them
    "results": set(),
    "deployment": set(),
    "attacks": set(),
    "engine": {"results", "attacks", "terminal"},
    "plots": {"results"},
    "papers": {"results"},
    "prediction": set(),
    "comparison": {"results", "engine", "prediction"},
    "python": {"attacks", "results", "engine", "plots", "prediction", "comparison", "terminal"},
    "flower": {"results", "engine", "terminal"},
    "report": {"results", "engine", "plots", "papers"},
    "sites": {"results", "report"},
    "reproduction": {"results", "engine", "plots", "papers"},
    "watch": {"results", "flower", "terminal"},
}
ALLOWED_MODULE = {  # a single module of a package that must not be imported otherwise
    # The table of client rules and their settings, which the server needs; it imports nothing heavy.
    "server_app": "client_app.registry",
}
EXTRA = {"compiled_kernels.py": {"numba"}}
"""Modules of strategies/ that need an extra; no other module needs them."""

STRATEGIES_MAY_USE = {
    "arrays",
    "errors",
    "figures.metrics",
    "figures.pooled_scores",
    "figures.score_bins",
    "flower",
    "messages",
    "noise",
    "parts",
    "plain_numbers",
    "processes.cores",
    "seeds",
    "settings",
}


def imports(path: Path) -> set[str]:
    """Dotted names of everything that a file imports, at any place in it."""
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
def test_packages_import_only_allowed_packages(package: str) -> None:
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package] - {package}
    allowed = ALLOWED_MODULE.get(package, "nothing else")
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        if str(path.relative_to(ROOT)) not in LAZY_IMPORTS
        for name in imports(path)
        if name.split(".")[0] in forbidden and f"{name}.".removeprefix(f"{allowed}.") == f"{name}."
    }
    assert not wrong


def test_the_package_fedstride_imports_no_other_package_by_itself() -> None:
    """Its module level imports other packages of the project only for type checkers."""
    statements = ast.parse((ROOT / "fedstride/__init__.py").read_text()).body
    at_once = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    standard = {"__future__", "importlib", "importlib.util", "typing"}
    assert {node.module for node in at_once if isinstance(node, ast.ImportFrom)} == standard
    assert not [node for node in at_once if isinstance(node, ast.Import)]
    guarded = [ast.unparse(node.test) for node in statements if isinstance(node, ast.If)]
    assert guarded == ["TYPE_CHECKING"]


def test_the_clients_table_that_the_server_reads_imports_only_light_modules() -> None:
    used = imports(ROOT / "client_app/registry.py")
    assert {name.split(".")[0] for name in used} <= {"fedstride", "__future__", *sys.stdlib_module_names}
    assert {name.split(".")[1] for name in used if name.startswith("fedstride.")} == {"parts", "settings"}


def test_imports_between_the_packages_of_the_lab() -> None:
    packages = {path.parent.name for path in (ROOT / "lab").glob("*/__init__.py")}
    assert packages == {*LAB_MAY_IMPORT, "cli"}
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for package, allowed in LAB_MAY_IMPORT.items()
        for path in modules(f"lab/{package}")
        for name in imports(path)
        if name.startswith("lab.") and name.split(".")[1] not in {package, *allowed}
    }
    assert not wrong


def test_the_lab_prints_in_one_module() -> None:
    """Texts of others reach a terminal there only, without what it would act on."""
    prints = {"print", "typer.echo", "typer.secho", "click.echo", "console.print", "self.console.print"}
    prints |= {"sys.stdout.write", "sys.stderr.write"}
    elsewhere = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("lab")
        if path != ROOT / "lab/terminal.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in prints
    }
    assert not elsewhere


def test_strategies_import_only_light_modules() -> None:
    allowed = {"flwr", "numpy", "array_api_compat", "typing_extensions", "strategies", *sys.stdlib_module_names}
    for path in modules("strategies"):
        for name in imports(path):
            head, *rest = name.split(".")
            if head == "fedstride":
                used = ".".join([*rest, ""])
                may = any(
                    used.startswith(f"{each}.") or f"{each}.".startswith(used) for each in STRATEGIES_MAY_USE
                )
                assert not rest or may, f"{path.name} imports {name}"
            else:
                assert head in allowed | EXTRA.get(path.name, set()), f"{path.name} imports {name}"


def test_the_engine_imports_no_app() -> None:
    """It gets the two apps as arguments."""
    assert not {
        name
        for name in imports(ROOT / "lab/engine/local_grid.py")
        if name.startswith(("client_app", "server_app"))
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import fedstride", {"torch", "hydra", "flwr", "numpy"}),
        ("import strategies", {"torch", "hydra", "flwr", "numpy"}),
        ("from strategies import FedNNNN, FedLWS, Fedalr, TwoDLRD", {"torch", "hydra", "ray", "numba"}),
        ("import client_app.app", {"hydra", "torchvision", "pandas", "matplotlib", "strategies", "server_app"}),
        ("import server_app.app", {"torchvision", "pandas", "matplotlib"}),
        ("import confinement", {"torch", "flwr", "numpy", "fedstride", "asyncio", "subprocess"}),
        ("import lab.cli.main", {"torch", "hydra", "matplotlib"}),
    ],
)
def test_importing_a_package_does_not_load_heavy_modules(statement: str, heavy: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(' '.join(m for m in {sorted(heavy)!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_the_server_imports_only_the_table_of_client_app() -> None:
    script = (
        "import server_app.app, sys\nprint(*sorted(m for m in sys.modules if m.split('.')[0] == 'client_app'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["client_app", "client_app.registry"]


PICKLES = {"fedstride/tasks/datasets/cifar.py", "lab/engine/processes.py", "lab/engine/transfer.py"}
"""Modules that read pickles: a published data set (plain values only), and a desk's own processes."""


def test_the_vectorized_engine_is_known_in_one_place() -> None:
    """By `lab/engine/engine.py` alone, which imports it when a run asks for it: no node and no app has it."""
    folder, names = ROOT / "lab/engine/vectorized", ("engine.vectorized", "from .vectorized.")
    files = [file for package in MAY_IMPORT if package != "benchmarks" for file in (ROOT / package).rglob("*.py")]
    outside = [file for file in files if file.parent != folder]
    known = {str(file.relative_to(ROOT)) for file in outside if any(name in file.read_text() for name in names)}
    assert known == {"lab/engine/engine.py"}


@pytest.mark.slow
def test_pickles_are_read_in_few_places() -> None:
    readers = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    found = set()
    for package in MAY_IMPORT.keys() - {"benchmarks"}:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                given = {each.arg: ast.unparse(each.value) for each in getattr(node, "keywords", [])}
                loads = called == "torch.load" or (called == "np.load" and given.get("allow_pickle") != "False")
                if loads or readers & {name.partition(".")[0] for name in names}:
                    found.add(str(path.relative_to(ROOT)))
    assert found == PICKLES


def test_no_module_is_too_long() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for package in MAY_IMPORT
        for path in modules(package)
        if (lines := len(path.read_text().splitlines())) > 350
    }
    assert not long


def test_the_tests_lie_as_the_modules_do() -> None:
    """Folders of `tests/PACKAGE/` are those of the package; a test with a module's name is in its folder."""
    misplaced = []
    for package in MAY_IMPORT:
        modules = [path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")]
        for test in (path.relative_to(ROOT) for path in (ROOT / "tests" / package).rglob("test_*.py")):
            folders = {module.parent for module in modules if module.stem == test.stem.removeprefix("test_")}
            folder = test.parent.relative_to("tests")
            if not (ROOT / folder).is_dir() or (len(folders) == 1 and folder not in folders):
                misplaced.append(str(test))
    assert misplaced == []


FLOWER = ROOT / "fedstride/flower"
"""The one folder that uses private names of Flower."""


@pytest.fixture(scope="module")
def hidden() -> set[str]:
    return hidden_names(FLOWER.rglob("*.py"))


@pytest.mark.slow
def test_private_names_of_flower_are_in_one_folder(hidden: set[str]) -> None:
    files = [
        *(path for package in (*MAY_IMPORT, "examples") for path in modules(package)),
        ROOT / "hatch_build.py",
    ]
    elsewhere = [path for path in files if FLOWER not in path.parents]
    assert [found for path in elsewhere for found in violations(path, hidden)] == []


def test_the_package_of_private_names_imports_nothing_by_itself() -> None:
    statements = ast.parse((FLOWER / "__init__.py").read_text()).body
    assert [type(node) for node in statements] == [ast.Expr]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import flwr.common.serde", "flwr.common.serde"),
        ("def late():\n    from flwr.proto.message_pb2 import ObjectTree", "flwr.proto.message_pb2.ObjectTree"),
        ("from flwr import common", "flwr.common"),
        ("from flwr.serverapp.strategy.fedopt import FedOpt", "flwr.serverapp.strategy.fedopt.FedOpt"),
        ("from flwr.app import make_message", "flwr.app.make_message"),
        ("import flwr\nflwr.common.serde", "flwr.common.serde"),
        ("import flwr.app\nflwr.app.message", "flwr.app.message"),
        ("from flwr.serverapp import strategy as s\ns.fedopt", "flwr.serverapp.strategy.fedopt"),
        ("from flwr.serverapp import strategy\ngetattr(strategy, 'fedopt')", "flwr.serverapp.strategy.fedopt"),
        ("from flwr.app import Message\nMessage._check", "flwr.app.Message._check"),
        ("import_module('flwr.common.constant')", "flwr.common.constant"),
        ("PLACE = 'flwr.supercore.tls:validate'", "flwr.supercore.tls.validate"),
        ("f'flwr.common.{name}'", "flwr.common.?"),
        ("print(f'flwr.{name}')", "flwr.?"),
        ("print('flwr.' + name)", "flwr.?"),
        ("print('flwr.%s' % name)", "flwr.?"),
        ("run('python', '-c', 'import flwr.common')", "flwr.common"),
        ("grid._runtime_client", "._runtime_client"),
        ("self.grid._runtime_client.GetNodes()", "._runtime_client"),
        ("getattr(grid, '_runtime_client')", '"_runtime_client"'),
        ("message.metadata.__dict__['_message_id'] = 1", '"_message_id"'),
        ("type(grid).__name__ == 'HttpGrid'", 'a class named "HttpGrid"'),
        ("type(grid).__name__ in ('HttpGrid', 'GrpcGrid')", 'a class named "GrpcGrid"'),
        ("KIND = 'HttpGrid'", '"HttpGrid"'),
    ],
)
def test_a_private_name_of_flower_is_found(source: str, name: str, hidden: set[str], tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(source)
    found = violations(planted, hidden)
    assert any(each.endswith(f": {name}") for each in found), found


@pytest.mark.parametrize(
    "source",
    [
        "from flwr.app import Message, RecordDict\nMessage.has_content",
        "import flwr\nprint(flwr.__version__)",
        "import flwr.serverapp.strategy as flwr\nflwr.FedAdam",
        "from flwr.clientapp.mod import fixedclipping_mod",
        '"""Not `flwr.common.Scalar`."""\nBETA = 0.7\n"""As in flwr.server.strategy."""',
        "print('a Flower Strategy (flwr.serverapp.strategy)')",
        "print('[tool.flwr.app.config]')",
        "module.__name__.startswith('flwr.')",
        "class Mine:\n    def __init__(self):\n        self._runtime_client = self.state._replace(next=1)",
        "from flwr_datasets.partitioner import DirichletPartitioner",
        "print('HttpGrid has no such node')",
    ],
)
def test_public_names_and_docstrings_are_allowed(source: str, hidden: set[str], tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(source)
    assert violations(planted, hidden) == []


@pytest.mark.slow
def test_processes_are_forked_in_one_module() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in MAY_IMPORT
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "os.fork"
    }
    assert found == {"fedstride/processes/forks.py"}
