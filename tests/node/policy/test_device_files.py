"""The device files of graphics cards, found in a folder as /dev is with some cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.policy import device_files


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    for name in ("null", "nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "sda"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, ["nvidia0", "nvidia1", "nvidia10"]),
        ("1", ["nvidia1"]),
        ("10, 0", ["nvidia0", "nvidia10"]),
        ("GPU-8c5a", ["nvidia0", "nvidia1", "nvidia10"]),
        ("", []),
        ("7", []),
    ],
)
def test_the_cards_that_are_visible_and_what_they_share(dev: Path, visible: str | None, cards: list[str]) -> None:
    found = device_files.found(dev, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [each.name for each in found] == [*cards, *(["nvidiactl", "nvidia-uvm"] if cards else [])]


def test_a_machine_without_a_card(tmp_path: Path) -> None:
    (tmp_path / "null").touch()
    assert device_files.found(tmp_path, {}) == () == device_files.found(tmp_path / "nowhere", {})
