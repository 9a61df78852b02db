"""The wheel that hatch_build.py builds: one package whose subpackages import each other and no other package."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as in the wheel."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "fedstride").mkdir()
    hatch_build.stage(ROOT, folder / "fedstride")
    return folder


def python(code: str, site: Path) -> str:
    environment = {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=site, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_image_and_the_source_distribution_have_every_package() -> None:
    """Two lists that cannot be derived: docker's and hatchling's."""
    image = (ROOT / "docker/Dockerfile.dockerignore").read_text().split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    source = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for package in (hatch_build.PACKAGE, *hatch_build.PACKAGES):
        assert f"!{package}" in image and f"/{package}" in source
        assert package in project["tool"]["mypy"]["packages"]


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("from strategies import FedLWS", "from fedstride.strategies import FedLWS"),
        (
            "from strategies.norm_analysis import (\n    N,\n)",
            "from fedstride.strategies.norm_analysis import (\n    N,\n)",
        ),
        ("import strategies", "from fedstride import strategies"),
        ("import strategies as s", "from fedstride import strategies as s"),
        ("def f():\n    from lab.x import y; from lab import z", None),
        (
            "if TYPE_CHECKING:\n    from  server_app.a import b",
            "if TYPE_CHECKING:\n    from  fedstride.server_app.a import b",
        ),
        ("'ä'; from client_app import app", "'ä'; from fedstride.client_app import app"),
        ("from .strategies import x", "from .strategies import x"),
        ("from fedstride.arrays.named import views", "from fedstride.arrays.named import views"),
        (
            "from laboratory import lab\nimport strategies_of_a_user",
            "from laboratory import lab\nimport strategies_of_a_user",
        ),
        (
            '"""Text on strategies.norm_analysis."""\nx = "strategies"',
            '"""Text on strategies.norm_analysis."""\nx = "strategies"',
        ),
    ],
)
def test_only_imports_of_our_packages_are_rewritten(source: str, want: str | None) -> None:
    want = want or "def f():\n    from fedstride.lab.x import y; from fedstride.lab import z"
    assert hatch_build.rewritten(source, "m.py") == want


@pytest.mark.parametrize(
    "source",
    [
        "import strategies.norm_analysis",
        "import os, strategies",
        "from \\\n    strategies import FedLWS",
        "import_module('strategies.norm_analysis')",
        "x = 'server_app.app:app'",
    ],
)
def test_an_import_that_cannot_be_rewritten_stops_the_build(source: str) -> None:
    with pytest.raises(ValueError, match=r"m.py, line 1: "):
        hatch_build.rewritten(source, "m.py")


def test_an_unexpected_app_table_stops_the_build() -> None:
    with pytest.raises(ValueError, match=r"\[tool.flwr.app\] does not have the form"):
        hatch_build.app_toml('serverapp = "server_app.app:app"')


def test_the_app_of_the_wheel_is_inside_the_package(site: Path) -> None:
    app = tomllib.loads((site / "fedstride/app.toml").read_text())["tool"]["flwr"]["app"]
    original = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["components"] == {
        "serverapp": "fedstride.server_app.app:app",
        "clientapp": "fedstride.client_app.app:app",
    }
    assert app["fab-include"] == ["fedstride/**"]
    assert app["config"] == original["config"]


@pytest.mark.slow
def test_the_apps_load_only_modules_of_the_package(site: Path) -> None:
    code = (
        "import sys, fedstride.server_app.app, fedstride.client_app.app\n"
        "import fedstride.__main__, fedstride.lab.cli.main\n"
        "from fedstride import FedLWS, NeuronSGD\n"
        "from fedstride.server_app.config.compose import compose\n"
        "assert compose(['strategy=fednnnn+fedlws']).strategy.name == 'fedlws'\n"
        f"rooms = {hatch_build.PACKAGES!r}\n"
        "print([name for name in sys.modules if name.split('.')[0] in rooms])\n"
        "print(sys.modules['fedstride'].__file__)"
    )
    assert python(code, site).splitlines() == ["[]", str(site / "fedstride/__init__.py")]


def test_a_bundle_from_the_wheel_contains_the_app_without_the_lab_and_the_node(site: Path) -> None:
    (module,) = (site / "fedstride/lab").rglob("bundle.py")
    name = ".".join(module.relative_to(site).with_suffix("").parts)
    code = (
        f"from {name} import app_folder\n"
        "with app_folder() as folder:\n"
        "    print(*sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file()))"
    )
    files = python(code, site).split()
    assert {"pyproject.toml", "fedstride/conf/config.yaml", "fedstride/server_app/app.py"} <= set(files)
    assert not [name for name in files if {"lab", "node", "confinement", "__pycache__"} & set(name.split("/"))]
