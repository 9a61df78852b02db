"""FedRS: restricted softmax (Li, Zhan, KDD 2021).

    loss = CE(a z, y)                                                                   (RS1)
    a_c  = 1 if the client has an example of class c, else alpha in [0, 1]
    a_c  = (n_c / max n) (1 - alpha) + alpha                                            with `soft`

The rows of the classifier that belong to classes without examples are pushed away less. The whole logit is scaled,
the bias included, and figures are those of the unscaled logits (B-20). With alpha = 1, or if the client has all
classes, nothing is changed, so the result is bit-identical to FedAvg's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..registry import FedRSSettings
from ..training.method import Job, Method, Plan, Received, State
from ..training.stackable_parts import LogitsChange


def scales(counts: np.ndarray, alpha: float, *, soft: bool = False) -> np.ndarray:
    """a, float64 (classes,), from the client's number of examples of each class, of which one is positive."""
    if soft:
        return np.asarray(counts / counts.max() * (1.0 - alpha) + alpha)
    return np.where(counts > 0, 1.0, alpha)


@dataclass(frozen=True)
class ScaledLogits(LogitsChange):
    """a z."""

    factors: torch.Tensor  # a, float64 (classes,)

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """The scaled logits."""
        return z * self.factors.to(z.dtype)


class FedRS(Method):
    """Scales the logits of the loss. Evaluation is not affected."""

    def __init__(self, settings: FedRSSettings) -> None:
        self.settings = settings

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The logits a z, with the counts of the client's training examples."""
        a = scales(job.examples.class_counts(), self.settings.alpha, soft=self.settings.soft)
        if (a == 1.0).all():
            return Plan()
        return Plan(logits=ScaledLogits(torch.from_numpy(a).to(job.device)))
