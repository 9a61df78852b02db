"""One cache of prepared data for all tests of the client, and a small network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from client_app import message_settings
from fedstride.flower import identity
from fedstride.parts import Part
from fedstride.tasks.inputs import Inputs
from fedstride.tasks.registry import MODELS


@pytest.fixture(scope="session")
def client_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client-cache")


@pytest.fixture(autouse=True)
def _surroundings(client_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(client_cache))
    monkeypatch.setenv("FEDSTRIDE_STATE", str(tmp_path / "state"))
    identity.set_identity()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Tiny(torch.nn.Module):
    """A network with a BatchNorm and a dropout, small enough to train in milliseconds."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(inputs.shape[0], 3, 5, stride=4)
        self.bn = torch.nn.BatchNorm2d(3)
        self.fc = torch.nn.Linear(3 * 6 * 6, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x)).relu().flatten(1)
        return self.fc(torch.nn.functional.dropout(x, 0.2, self.training))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a registered model with buffers and dropout."""
    monkeypatch.setitem(MODELS._parts, "tiny", Part("tiny", Tiny, "Small."))
    message_settings.forget()
    yield "tiny"
    message_settings.forget()
