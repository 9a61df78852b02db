"""What each script gets and what it reports; needs only numpy. Knows no rival."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Given(NamedTuple):
    """The work: data as the network gets them, the initial weights and the settings."""

    x: list[np.ndarray]  # of each client: float32 (n, 1, 28, 28), normalised
    y: list[np.ndarray]  # int64 (n,)
    test_x: np.ndarray  # empty: nothing is evaluated
    test_y: np.ndarray
    weights: dict[str, np.ndarray]
    rounds: int
    epochs: int
    batch_size: int
    lr: float


@functools.cache
def given(data: str = "", rounds: int = 0) -> Given:
    """The work of this process, `SCRIPT DATA RESULTS ROUNDS`, or with these data; read once in a process."""
    with np.load(data or sys.argv[1]) as file:
        arrays = {name: file[name] for name in file.files}
    ends = arrays["ends"][:-1]
    return Given(
        np.split(arrays["x"], ends),
        np.split(arrays["y"], ends),
        arrays["test_x"],
        arrays["test_y"],
        {name.removeprefix("weights/"): value for name, value in arrays.items() if name.startswith("weights/")},
        rounds or int(sys.argv[3]),
        int(arrays["epochs"]),
        int(arrays["batch_size"]),
        float(arrays["lr"]),
    )


def report(accuracy: float) -> None:
    """The result of a round: a line in the file, whose time is what is measured."""
    with Path(sys.argv[2]).open("a") as file:
        file.write(json.dumps({"test/accuracy": accuracy}) + "\n")
