"""A task of one's own: stripes, upright or flat, drawn from a fixed seed. A reader of files looks the same.

fedstride run parts=examples/own_task.py task=stripes model=mlp partition=iid
"""

from typing import Annotated

import numpy as np

from fedstride import Data, Setting, part


@part(task="stripes")
def stripes(*, noise: Annotated[float, Setting("deviation of the grey values", least=0)] = 40.0) -> Data:
    """Upright and flat stripes of 8 x 8 grey values, 1,000 to train on and 200 to test."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, 1200)
    upright = np.tile([[60, 190] * 4], (8, 1))
    clean = np.where(labels[:, None, None] == 1, upright, upright.T)
    images = (clean + rng.normal(0.0, noise, clean.shape)).clip(0, 255).astype(np.uint8)[:, None]
    x, y = images, labels.astype(np.int64)
    return Data(x[:1000], y[:1000], x[1000:], y[1000:], classes=2, mean=(0.5,), std=(0.3,))
