"""The folder that Flower bundles: the files of the resulting bundle."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

import hatch_build
from lab.flower import bundle
from lab.flower.bundle import app_folder

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/own_strategy.py"


def files(folder: Path) -> dict[str, str]:
    """The texts of the bundle that Flower makes of this folder, by name."""
    made = build_fab_from_disk(folder)
    opened = zipfile.ZipFile(io.BytesIO(made if isinstance(made, bytes) else made[0]))
    return {name: opened.read(name).decode(errors="replace") for name in opened.namelist()}


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "found"), [(None, []), (str(EXAMPLE), ["own_parts/own_strategy.py"])])
def test_user_defined_parts_are_in_the_bundle(parts: str | None, found: list[str]) -> None:
    """Flower leaves out folders with certain names, such as `parts`, without a message."""
    with app_folder(parts) as folder:
        names = list(files(folder))
    assert [name for name in names if name.startswith("own_parts/")] == found
    assert {"conf/config.yaml", "server_app/app.py", "client_app/app.py", "strategies/registry.py"} <= set(names)


@pytest.mark.slow
def test_a_bundle_of_a_clone_has_what_flower_bundles_of_the_clone_itself() -> None:
    with app_folder() as folder:
        assert folder != ROOT
        assert files(folder) == files(ROOT)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as the wheel installs it, and a command `fedstride` that runs from it."""
    home = tmp_path / "site-packages/fedstride"
    hatch_build.stage(ROOT, home)
    assert (home / "lab/attacks/rules.py").is_file()
    monkeypatch.setattr(bundle, "conf_dir", lambda: home / "conf")
    return home


def check_without_attacks(found: dict[str, str], settings: str) -> None:
    """Of attacks, a bundle has the names and settings only, so that a configuration can be read."""
    assert settings in found
    assert not [name for name in found if "lab" in Path(name).parts or "attacks" in Path(name).parts]
    for name, text in found.items():
        if name.endswith(".py"):
            assert "class SignFlip" not in text and "def on_flipped_labels" not in text, name


@pytest.mark.slow
@pytest.mark.parametrize("parts", [None, str(EXAMPLE)])
def test_a_bundle_of_a_clone_has_no_attacks(parts: str | None) -> None:
    with app_folder(parts) as folder:
        check_without_attacks(files(folder), "server_app/config/attacks.py")


@pytest.mark.slow
@pytest.mark.parametrize("parts", [None, str(EXAMPLE)])
def test_a_bundle_of_the_installed_wheel_has_no_attacks(installed: Path, parts: str | None) -> None:
    with app_folder(parts) as folder:
        check_without_attacks(files(folder), "fedstride/server_app/config/attacks.py")
        assert not (folder / "fedstride/lab").exists()
