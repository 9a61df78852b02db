"""A node with only its own files trains on them, for each task of the nodes' own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_talk import round_config, train
from flwr.app import Context, RecordDict
from PIL import Image

from client_app import from_message
from fedstride.messages import wire
from fedstride.tasks import data
from fedstride.tasks.forms.wav import FULL_SCALE
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import to_arrays
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS


def image_folder(folder: Path) -> Path:
    for name, value in (("dog", 255), ("cat", 0)):
        (folder / name).mkdir(parents=True)
        Image.new("L", (5, 4), value).save(folder / name / "one.png")
    return folder


def table(folder: Path) -> Path:
    (folder / "mine.csv").write_text("sex,age,label\nf,40,dog\nm,60,cat\n")
    return folder / "mine.csv"


def texts(folder: Path) -> Path:
    (folder / "mine.csv").write_text("label,text\ndog,it barks\ncat,it purrs\n")
    return folder / "mine.csv"


def sounds(folder: Path) -> Path:
    np.savez(folder / "mine.npz", x=np.full((2, 1, 10), [[[FULL_SCALE // 2]], [[-FULL_SCALE]]]), y=[1, 0])
    return folder / "mine.npz"


CASES: dict[str, tuple[Any, str, dict[str, Any], Any]] = {
    "own_images": (image_folder, "mlp", {"shape": [1, 4, 5]}, {-1.0, 1.0}),
    "own_table": (
        table,
        "mlp",
        {"columns": ["age", "sex=f|m"], "mean": [50.0, 0, 0], "std": [10.0, 1, 1]},
        {-1, 0, 1},
    ),
    "own_texts": (texts, "textcnn", {"length": 2, "vocabulary": 50}, None),
    "own_sounds": (sounds, "mlp", {"features": "waveform", "rate": 100, "seconds": 0.1}, {0.5, -1.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_training_on_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    bring, model, settings, values = CASES[name]
    settings = {
        key: [float(v) for v in each] if key in ("mean", "std") else each for key, each in settings.items()
    }
    task = TASKS.config(name)(classes=["cat", "dog"], **settings)
    own = PARTITIONS.config("own")()
    spec = data.load(task).spec
    config = round_config(partition=own, clients=2, model=model, **TASKS.flatten(task), **spec.flatten())
    folder = tmp_path / "data"
    folder.mkdir()
    node = Context(
        run_id=1,
        node_id=9,
        node_config={"data": str(bring(folder)), "partition-id": 0},
        state=RecordDict(),
        run_config={},
    )
    job = from_message.read(config, node)
    x, y = job.examples.batch(np.arange(2))
    assert sorted(y.tolist()) == [0, 1] and x.dtype == (torch.int64 if values is None else torch.float32)
    assert values is None or set(x.flatten().tolist()) == values
    spec = data.load(task).spec
    start = to_arrays(networks_by_name.build(MODELS.config(model)(), spec.inputs, spec.outputs, 1))
    after, metrics = train(config, start, node)
    assert metrics[wire.NUM_EXAMPLES] == 2
    assert any(not np.array_equal(after[each], start[each]) for each in start)
