"""Log-mel features of sound: the energy in bands of the mel scale, over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...errors import require

FLOOR = 1e-6
"""Added to an energy before the logarithm."""


def mel(hertz: np.ndarray | float) -> np.ndarray:
    """The mel scale of O'Shaughnessy (1987): 2595 log10(1 + f / 700)."""
    return np.asarray(2595.0 * np.log10(1.0 + np.asarray(hertz) / 700.0))


@dataclass(frozen=True)
class LogMel:
    """Log-mel features of signals with `rate` samples per second.

        s_t = |FFT(hann * x[t step : t step + window])|^2       window and step in samples
        y[t, b] = log(s_t . f_b + 1e-6)

    The Hann window is periodic. The FFT has the next power of two of the window, filled with zeros. f_b are
    `bands` triangles, equally wide on the mel scale, from 0 to half of the rate; each has the height 1, and its
    ends are the peaks of its neighbours. Only whole windows count, so nothing is added at the ends of the signal.
    `window` and `step` are in milliseconds. All is computed in float64.
    Raises ConfigError if a window has fewer than two samples or a step none, or if a band is so narrow that it
    contains no frequency of the FFT.
    """

    rate: int
    window: float = 25.0
    step: float = 10.0
    bands: int = 40

    def __post_init__(self) -> None:
        require(self.window_samples >= 2, "task.window", self.window, f"at least {2000 / self.rate} ms")
        require(self.step_samples >= 1, "task.step", self.step, f"at least {1000 / self.rate} ms")
        require(self.bands >= 1, "task.bands", self.bands, "at least 1")
        empty = int((self.filters.sum(0) == 0).sum())
        require(
            empty == 0,
            "task.bands",
            self.bands,
            f"smaller, or task.window longer: {empty} bands contain no frequency of the FFT",
        )

    @property
    def window_samples(self) -> int:
        """Samples of a frame."""
        return round(self.rate * self.window / 1000)

    @property
    def step_samples(self) -> int:
        """Samples from the start of one frame to that of the next."""
        return round(self.rate * self.step / 1000)

    @property
    def fft_size(self) -> int:
        """Length of the FFT: the next power of two."""
        return 1 << (self.window_samples - 1).bit_length()

    @cached_property
    def filters(self) -> np.ndarray:
        """The bands' weights of the frequencies of the FFT: float64 (fft_size / 2 + 1, bands)."""
        frequencies = mel(np.fft.rfftfreq(self.fft_size, 1 / self.rate))[:, None]
        edges = np.linspace(0.0, mel(self.rate / 2), self.bands + 2)
        width = edges[1]
        return np.asarray(np.maximum(0.0, 1.0 - np.abs(frequencies - edges[1:-1]) / width))

    def shape(self, samples: int) -> tuple[int, int]:
        """(frames, bands) for a signal of this length. Raises ConfigError if it is shorter than a window."""
        require(
            samples >= self.window_samples, "task.window", self.window, f"at most {1000 * samples / self.rate} ms"
        )
        return 1 + (samples - self.window_samples) // self.step_samples, self.bands

    def __call__(self, signal: np.ndarray) -> np.ndarray:
        """Features float32 (frames, bands) of a signal (samples,) in [-1, 1]."""
        self.shape(len(signal))
        size = self.window_samples
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
        frames = np.lib.stride_tricks.sliding_window_view(signal.astype(np.float64), size)[:: self.step_samples]
        energy = np.abs(np.fft.rfft(frames * hann, self.fft_size)) ** 2
        return np.asarray(np.log(energy @ self.filters + FLOOR), dtype=np.float32)
