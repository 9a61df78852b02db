"""Provides the folder that Flower bundles: a copy of the app, made from the clone or from the installed package.

Flower looks at each file below the folder that it bundles: in a clone, also at those of the environment and of all
runs. In the wheel, the complete app is inside the package `fedstride`, and so it is in a bundle made from it
(`hatch_build.py`).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedstride.user_parts import find
from server_app.config.conf import conf_dir

PACKAGES = ("fedstride", "strategies", "client_app", "server_app", "conf")
INCLUDE = "fab-include = ["


@contextlib.contextmanager
def app_folder(parts: str | None = None) -> Iterator[Path]:
    """A folder with pyproject.toml and the app's code and configuration, for `flwr run`.

    `parts`: a file with user-defined parts; it becomes part of the bundle.
    """
    home = conf_dir().parent
    is_clone = (home / "pyproject.toml").is_file()
    with tempfile.TemporaryDirectory(prefix="fedstride-app-") as temporary:
        folder = Path(temporary)
        ignored = shutil.ignore_patterns("__pycache__", "lab", "node", "confinement", "superlink", "app.toml")
        for package in PACKAGES if is_clone else ():
            shutil.copytree(home / package, folder / package, ignore=ignored)
        if not is_clone:
            shutil.copytree(home, folder / "fedstride", ignore=ignored)
        text = (home / ("pyproject.toml" if is_clone else "app.toml")).read_text(encoding="utf-8")
        if parts is not None:
            (folder / "own_parts").mkdir()
            shutil.copy(find(parts), folder / "own_parts")
            text = text.replace(INCLUDE, f'{INCLUDE}\n    "own_parts/**",')
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        yield folder
