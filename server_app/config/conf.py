"""Finds the folder `conf/`."""

from __future__ import annotations

from pathlib import Path

from fedstride.errors import ConfigError


def conf_dir() -> Path:
    """The folder `conf/`, which is next to the folder `server_app/` in a clone, a bundle and a wheel."""
    folder = Path(__file__).resolve().parents[2] / "conf"
    if (folder / "config.yaml").is_file():
        return folder
    raise ConfigError(f"conf/config.yaml was not found in {folder.parent}; install fedstride again")
