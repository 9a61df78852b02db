"""The folder that Flower bundles: the clone, or one put together from the installed package.

Knows where the app's code and its pyproject lie; does not know how a bundle is run. In the wheel all of the app
is inside the package, and so it is in a bundle made from it (`hatch_build.py`).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from server_app.config.compose import conf_dir


@contextlib.contextmanager
def app_folder() -> Iterator[Path]:
    """A folder with pyproject.toml and the app's code and configuration, as `flwr run` takes it."""
    home = conf_dir().parent
    if (home / "pyproject.toml").is_file():
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="fedstride-app-") as temporary:
        folder = Path(temporary)
        shutil.copytree(
            home, folder / "fedstride", ignore=shutil.ignore_patterns("__pycache__", "lab", "app.toml")
        )
        shutil.copy(home / "app.toml", folder / "pyproject.toml")
        yield folder
