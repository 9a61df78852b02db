"""A model that no node accepts is refused before a round."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedstride.errors import ConfigError
from fedstride.messages import wire
from server_app.before_training.model_size import check_size


def record(*sizes: int) -> ArrayRecord:
    return ArrayRecord({str(n): Array(np.zeros(size, np.float32)) for n, size in enumerate(sizes)})


@pytest.mark.parametrize("sizes", [(3_000,), (1_000, 2_000), (1,) * 300])
def test_arrays_count_together(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]) -> None:
    arrays = record(*sizes)
    monkeypatch.setattr(wire, "MESSAGE_BYTES", arrays.count_bytes())
    check_size("mlp", arrays)
    monkeypatch.setattr(wire, "MESSAGE_BYTES", arrays.count_bytes() - 1)
    with pytest.raises(ConfigError, match=r"model = 'mlp' has .* GiB of arrays that are sent, but a node accepts"):
        check_size("mlp", arrays)
