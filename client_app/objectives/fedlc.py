"""FedLC: logits calibrated by the label distribution of the client (Zhang et al., ICML 2022).

    z'_c = z_c - tau n_c^(-1/4)    if the client has n_c > 0 examples of class c, else -infinity       (LC1)
    loss = CE(z', y)                                                                                   (LC2)

A rare class must win by a larger margin. The denominator of the softmax contains y itself and no class without
examples (B-21). Figures are those of z. With tau = 0, if the client has all classes, nothing is changed, so the
result is bit-identical to FedAvg's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..registry import FedLCSettings
from ..training.method import Job, Method, Plan, Received, State
from ..training.stackable_parts import LogitsChange


def margins(counts: np.ndarray, tau: float) -> np.ndarray:
    """tau n_c^(-1/4), float64 (classes,), from the number of examples of each class; infinity for 0 examples."""
    return np.where(counts > 0, tau * np.maximum(counts, 1) ** -0.25, np.inf)


@dataclass(frozen=True)
class Lowered(LogitsChange):
    """z minus the margins."""

    margins: torch.Tensor  # float64 (classes,)

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """The lowered logits."""
        return z - self.margins.to(z.dtype)


class FedLC(Method):
    """Subtracts margins from the logits of the loss. Evaluation is not affected."""

    def __init__(self, settings: FedLCSettings) -> None:
        self.tau = settings.tau

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The logits z', with the counts of the client's training examples."""
        class_margins = margins(job.examples.class_counts(), self.tau)
        if not class_margins.any():
            return Plan()
        return Plan(logits=Lowered(torch.from_numpy(class_margins).to(job.device)))
