"""The digest of the client's code: what changes it, and what does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

DIGEST = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
import fedstride.messages.code_digest
assert str(fedstride.messages.code_digest.__file__).startswith(sys.argv[1])
print(fedstride.messages.code_digest.client_code(Path(sys.argv[1]) / "client_app", sys.argv[2:]))
"""

PARTS = "from fedstride.parts import part\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Another copy of the app."""
    for package in ("fedstride", "client_app", "strategies", "server_app"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def digest(clone: Path, *parts: Path) -> str:
    """As a process computes it that imports this copy."""
    command = [sys.executable, "-P", "-c", DIGEST, str(clone), *map(str, parts)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_copies_agree_wherever_they_are_and_however_they_were_compiled(clone: Path) -> None:
    here = digest(ROOT)
    assert len(here) == 16
    shutil.rmtree(clone / "client_app/__pycache__", ignore_errors=True)
    for file in (clone / "fedstride").rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    (clone / "server_app/app.py").write_text("")  # the server's own
    (clone / "client_app/notes.txt").write_text("no code")
    assert digest(clone) == here


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["client_app/training/loop.py", "client_app/for_server_rules/scaffold.py", "fedstride/seeds.py"]
)
def test_a_line_of_a_module_that_clients_import_changes_it(clone: Path, file: str) -> None:
    before = digest(clone)
    with (clone / file).open("a") as module:
        module.write("# changed\n")
    assert digest(clone) != before


@pytest.mark.slow
def test_a_new_module_and_a_renamed_one_change_it(clone: Path) -> None:
    before = digest(clone)
    (clone / "client_app/more.py").write_text("")
    more = digest(clone)
    (clone / "client_app/more.py").rename(clone / "client_app/other.py")
    assert len({before, more, digest(clone)}) == 3


@pytest.mark.slow
def test_the_content_of_a_parts_file_counts_and_its_folder_does_not(clone: Path, tmp_path: Path) -> None:
    one, two, other = (tmp_path / each / "mine.py" for each in ("one", "two", "other"))
    for path, text in ((one, PARTS), (two, PARTS), (other, PARTS + "# changed\n")):
        path.parent.mkdir()
        path.write_text(text)
    found = digest(clone, one)
    assert found == digest(clone, two)
    assert len({found, digest(clone, other), digest(clone)}) == 3
