"""Recordings as examples: the samples, or log-mel features of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import ConfigError, require
from ...forms.logmel import LogMel
from ...forms.wav import FULL_SCALE, fitted
from ...forms.wav import read as samples_of
from ...inputs import Kind
from ...spec import Spec
from .many_files import each_of

SUFFIXES = (".wav",)


def read(files: Sequence[Path], spec: Spec) -> np.ndarray:
    """The recordings, cut or filled with zeros at the end to the length of the task's examples.

    Signals (n, 1, samples): int16, or float32 up to the task's scale if this is not that of 16 bits. Frames
    float32 (n, frames, bands): log-mel features. Raises DataError, with the file, for a recording of another form,
    and ConfigError if the task does not say the rate or has several channels.
    """
    require(spec.reading.rate >= 1, "the task's sampling rate", spec.reading.rate, "at least 1; use an .npz file")
    return _signals(files, spec) if spec.inputs.kind is Kind.SIGNAL else _frames(files, spec)


def _signals(files: Sequence[Path], spec: Spec) -> np.ndarray:
    channels, samples = spec.inputs.shape
    if channels != 1:
        raise ConfigError(f"recordings are read with one channel, but the task has {channels}; use an .npz file")
    x = np.empty((len(files), 1, samples), np.int16 if spec.scale == FULL_SCALE else np.float32)
    rate = spec.reading.rate
    for row, signal in enumerate(each_of(files, SUFFIXES, lambda file: fitted(samples_of(file, rate), samples))):
        x[row, 0] = signal if spec.scale == FULL_SCALE else signal * (spec.scale / FULL_SCALE)
    return x


def _frames(files: Sequence[Path], spec: Spec) -> np.ndarray:
    frames, bands = spec.inputs.shape
    log_mel = LogMel(spec.reading.rate, spec.reading.window, spec.reading.step, bands)
    samples = (
        log_mel.window_samples + (frames - 1) * log_mel.step_samples
    )  # those after the last frame do not count
    x = np.empty((len(files), frames, bands), np.float32)
    rate = spec.reading.rate
    for row, signal in enumerate(each_of(files, SUFFIXES, lambda file: fitted(samples_of(file, rate), samples))):
        x[row] = log_mel(signal / FULL_SCALE)
    return x
