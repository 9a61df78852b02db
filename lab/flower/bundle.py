"""The folder that Flower bundles: the checkout, or one put together from an installed wheel.

Knows where the packages, `conf/` and the app's pyproject are; does not know how a bundle is run.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fedstride.errors import RunError
from server_app.config.compose import conf_dir

PACKAGES = ("fedstride", "strategies", "client_app", "server_app", "lab")


@contextlib.contextmanager
def app_folder() -> Iterator[Path]:
    """A folder with pyproject.toml, the packages and conf/, as `flwr run` takes it."""
    conf = conf_dir()
    if (conf.parent / "pyproject.toml").is_file():
        yield conf.parent
        return
    with tempfile.TemporaryDirectory(prefix="fedstride-app-") as temporary:
        folder = Path(temporary)
        for package in PACKAGES:
            shutil.copytree(_home(package), folder / package, ignore=shutil.ignore_patterns("__pycache__", "conf"))
        shutil.copytree(conf, folder / "conf")
        shutil.copy(_home("fedstride") / "app.toml", folder / "pyproject.toml")
        yield folder


def _home(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise RunError(f"the package {package!r} is not installed: install fedstride again")
    return Path(spec.origin).parent
