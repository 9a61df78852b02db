"""Checks the wheel as a user installs it: in an empty environment, used by another Flower app.

Checked with the oldest and the newest Flower and Python: only one name in site-packages, no torch, an app that has
its own package `strategies`, the error message of the command, and the tests of the strategies. Then what a site
installs, with gRPC and with HTTP: the commands of a node, and training on a table. Only interpreters that exist
on this machine are used; missing ones are reported. `check_wheel.py WHEEL [--quick]`: with --quick the tests are
not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
COUNT = """
from importlib.metadata import distributions, files
names = {path.parts[0] for path in files("fedstride") if path.parts[0] != ".."}
assert {name for name in names if not name.endswith(".dist-info")} == {"fedstride"}, names
print(len(list(distributions())))
"""
EVERY_NAME = """
import pkgutil, fedstride, fedstride.strategies as home
for module in pkgutil.walk_packages(home.__path__, "fedstride.strategies."):
    try:
        __import__(module.name)
    except ModuleNotFoundError as error:
        lacks = ("fedstride.strategies.sums.compiled_kernels", "numba")  # the extra `fast`
        assert (module.name, error.name) == lacks, error
for name in home.places(): getattr(fedstride, name)
"""

NO_DESK = """
from importlib.metadata import version
from importlib.util import find_spec
desk = ("hydra", "omegaconf", "pandas", "matplotlib", "mlxtend", "flwr_datasets")
assert not any(map(find_spec, desk))
print(version("flwr"))
"""


def main(wheel: Path, quick: bool) -> None:
    """Run all checks. Raises an error at the first one that fails."""
    charts(wheel)
    interpreters = {version: path for version in PYTHONS if (path := interpreter(version))}
    for version in PYTHONS:
        if version not in interpreters:
            print(f"Python {version}: skipped, this machine has no such interpreter")
    oldest, newest = min(interpreters.items()), max(interpreters.items())
    everything = lower_bounds()
    flower = [text for text in everything if text.startswith("flwr")]
    check(wheel, oldest[1], everything, tests=not quick)
    check(wheel, newest[1], [], tests=not quick)
    if oldest != newest:
        check(wheel, oldest[1], [], tests=False)
        check(wheel, newest[1], flower, tests=False)
    for extra, minor in (("node", "1.39"), ("node-http", "1.42")):
        check_site(wheel, oldest[1], extra, minor)


def charts(wheel: Path) -> None:
    """Check that the wheel has what the report's charts need, with the licence of the library."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "lab/report").rglob("*"):
        name = f"fedstride/{path.relative_to(ROOT)}"
        assert path.is_dir() or path.suffix in (".py", ".pyc") or name in names, f"{name} is not in {wheel.name}"


def lower_bounds() -> list[str]:
    """The oldest versions that pyproject.toml allows for the packages that the strategies need."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounds = [re.match(r"([\w-]+)>=([\d.]+)", text) for text in needed]
    return [f"{bound[1]}=={bound[2]}.*" for bound in bounds if bound]


def interpreter(version: str) -> str | None:
    """The path of a Python of this version on this machine, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]:
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def check(wheel: Path, python: str, versions: list[str], tests: bool) -> None:
    """Check one environment, with these versions and the newest versions of all other packages."""
    with tempfile.TemporaryDirectory(prefix="fedstride-wheel-") as folder:
        env = Path(folder) / "env"
        inside = str(env / "bin/python")
        uv("venv", "--python", python, str(env))
        uv("pip", "install", "--python", inside, "--only-binary", ":all:", str(wheel), *versions)
        packages = call([inside, "-c", COUNT], folder)
        size = sum(path.stat().st_size for path in env.rglob("*") if path.is_file() and not path.is_symlink())
        call([inside, "-c", EVERY_NAME], folder)
        result = call([inside, "run.py"], str(ROOT / "tests/wheel/own_app")).splitlines()[-1]
        print(f"{call([inside, '-V'], folder)}: {packages} packages, {size / 1e6:.0f} MB; {result}")
        only_the_strategies(env)
        if tests:
            run_tests(inside, folder)


def only_the_strategies(env: Path) -> None:
    """Without the extra `desk`, the command and the functions end with one line that names what is missing."""
    done = subprocess.run([env / "bin/fedstride", "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert "pip install 'fedstride[desk]'" in done.stderr, done
    called = [env / "bin/python", "-c", "import fedstride; from fedstride import *; fedstride.run(rounds=1)"]
    done = subprocess.run(called, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("pip install 'fedstride[desk]'"), done


def check_site(wheel: Path, python: str, extra: str, minor: str) -> None:
    """Check that what a site installs has this Flower, starts a node's commands, and trains on a table."""
    with tempfile.TemporaryDirectory(prefix="fedstride-site-") as folder:
        env = Path(folder) / "env"
        inside = str(env / "bin/python")
        uv("venv", "--python", python, str(env))
        uv("pip", "install", "--python", inside, "--only-binary", ":all:", f"{wheel}[{extra}]")
        version = call([inside, "-c", NO_DESK], folder)
        assert version.startswith(f"{minor}."), f"fedstride[{extra}] has Flower {version}, not {minor}"
        for arguments in (["node", "--help"], ["node-log", "--help"], ["node-status", "--help"]):
            call([str(env / "bin/fedstride"), *arguments], folder)
        trained = call([inside, str(ROOT / "tests/wheel/own_table.py")], folder)
        print(f"fedstride[{extra}]: Flower {version}; {trained}")


def run_tests(python: str, folder: str) -> None:
    """Run this clone's tests of the strategies with the package versions of the environment."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    tools = [text for text in groups["dev"] if text.startswith(("pytest", "hypothesis"))]
    uv("pip", "install", "--python", python, *tools)
    command = [python, "-m", "pytest", "-p", "older_flower", "-p", "no:cacheprovider", "tests/strategies"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/wheel'}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(f"    tests of the strategies: {done.stdout.strip().splitlines()[-1].strip('= ')}")
    if done.returncode:
        raise SystemExit(done.stdout[-8000:] + done.stderr[-2000:])


def uv(*arguments: str) -> None:
    """Run uv outside of this project: without the project's version constraints and without Python downloads."""
    command = ["uv", "--quiet", "--no-config", "--no-python-downloads", *arguments]
    done = subprocess.run(command, cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")


def call(command: list[str], folder: str) -> str:
    """Run a command and return its output. If it fails, exit with its output and errors."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), "--quick" in sys.argv[2:])
