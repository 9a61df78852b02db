"""Which graphics cards a worker process sees."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from lab.engine.engine import _Start
from server_app.config.compose import compose


@pytest.mark.parametrize(
    ("device", "visible", "seen"),
    [
        ("cuda", "4,7", ["4", "7", "4"]),  # each worker has one card
        ("auto", "4,7", ["4", "7", "4"]),
        ("cuda", None, ["0", "1", "0"]),
        ("cuda:1", "4,7", ["4,7"] * 3),  # the second of them is the one that the setting names
        ("cuda:1", None, [None] * 3),
        ("cpu", "4,7", ["4,7"] * 3),
    ],
)
def test_a_named_card_is_there_in_each_worker(
    monkeypatch: pytest.MonkeyPatch, device: str, visible: str | None, seen: list[str | None]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    found = []
    for worker in range(3):
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        _Start(compose([f"client.device={device}"]))(worker)
        found.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
    assert found == seen
