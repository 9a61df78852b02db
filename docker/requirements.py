"""What the image installs, from pyproject.toml: the dependencies without Ray, and the tested versions.

Writes `requirements.txt` and `constraints.txt` beside itself. Ray runs simulations at a desk; a SuperLink and its
SuperNodes never start it, and it is a tenth of the image.
"""

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
SIMULATION = "flwr[simulation]"


def main() -> None:
    """Read pyproject.toml in this folder, write the two files."""
    pyproject = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [text.replace(SIMULATION, "flwr") for text in pyproject["project"]["dependencies"]]
    pins = pyproject["tool"]["uv"]["constraint-dependencies"]
    (HERE / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    (HERE / "constraints.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
