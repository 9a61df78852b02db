"""Writes the image's requirements from pyproject.toml: the extra `deployment` (no Ray), the tested versions.

`requirements.txt` and `constraints.txt` are written next to this file, so that the image installs dependencies
before the code is copied.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXTRA = "deployment"


def needed(project: dict[str, Any], extra: str) -> list[str]:
    """The requirements of an extra, including those of extras of this project that it names."""
    requirements: list[str] = []
    for text in project["optional-dependencies"][extra]:
        match = re.fullmatch(rf"{project['name']}\[([\w-]+)\]", text)
        requirements += needed(project, match[1]) if match else [text]
    return requirements


def main() -> None:
    """Read pyproject.toml in this folder and write the two files."""
    pyproject = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    requirements = [*project["dependencies"], *needed(project, EXTRA)]
    pins = pyproject["tool"]["uv"]["constraint-dependencies"]
    (HERE / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    (HERE / "constraints.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
