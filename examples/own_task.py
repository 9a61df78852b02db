"""A user-defined task: vertical and horizontal stripes, drawn from a fixed seed.

A task that reads files from disk has the same form.

fedstride run parts=examples/own_task.py task=stripes model=mlp partition=iid
"""

from typing import Annotated

import numpy as np

from fedstride import Data, Setting, Spec, part


@part(task="stripes")
def stripes(*, noise: Annotated[float, Setting("standard deviation of the grey values", least=0)] = 40.0) -> Data:
    """Vertical and horizontal stripes of 8 x 8 grey values, 1,000 images for training and 200 for testing."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, 1200)
    vertical = np.tile([[60, 190] * 4], (8, 1))
    stripes_only = np.where(labels[:, None, None] == 1, vertical, vertical.T)
    noisy = stripes_only + rng.normal(0.0, noise, stripes_only.shape)
    images = noisy.clip(0, 255).astype(np.uint8)[:, None]
    x, y = images, labels.astype(np.int64)
    spec = Spec.images((1, 8, 8), classes=2, mean=(0.5,), std=(0.3,))
    return Data(spec, x[:1000], y[:1000], x[1000:], y[1000:])
