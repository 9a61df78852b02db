"""What a client reports of its representations: the moments of each class, for a calibration after training."""

from __future__ import annotations

import math

import numpy as np
import torch

from fedstride.errors import ConfigError
from fedstride.tasks.evaluation.measuring import EVALUATION_BATCH
from fedstride.tasks.models.last_layer import last_layer, without_last_layer
from fedstride.tasks.spec import Target
from fedstride.tasks.statistics import class_moments

from ..data import small_counts
from ..from_message import Work


@torch.no_grad()
def moments_of_classes(job: Work) -> dict[str, np.ndarray]:
    """Count, mean and covariance of the last layer's inputs, for each class of the training examples.

    The model is in eval mode, and the examples are not augmented. Raises ConfigError if this client adds noise
    itself, without classes, or without a last linear layer.
    """
    if job.protection.is_local or math.isfinite(job.protection.clipping_norm):
        raise ConfigError(
            "this client protects what it sends, so it does not report moments of its data; set calibration=none"
        )
    if job.examples.spec.target is not Target.CLASS:
        raise ConfigError("this task has no single class for each example, so there are no moments of classes")
    features = without_last_layer(job.model, last_layer(job.model, job.examples.spec.inputs))
    batches = [(features(x).flatten(1).cpu(), y.cpu()) for x, y in job.examples.in_order(EVALUATION_BATCH)]
    vectors, labels = (torch.cat(column).numpy() for column in zip(*batches, strict=True))
    return small_counts.class_moments(class_moments.of_examples(vectors, labels), job.min_rows).packed()
