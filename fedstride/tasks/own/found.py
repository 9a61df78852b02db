"""What a reader has found in the files of a site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Found:
    """The examples: x and y in the stored form, and two digests of each example, uint8 (n, 16).

    `rows` decides what is held out: equal for examples that must stay together. `contents`: of all that an example
    has in the files.
    """

    x: np.ndarray
    y: np.ndarray
    rows: np.ndarray
    contents: np.ndarray
