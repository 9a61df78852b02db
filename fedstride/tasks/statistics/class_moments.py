"""Mean and covariance of the representations of each class: of one client, and of all clients together.

For a class c of which client k has n_k examples (CCVR; Luo et al., NeurIPS 2021):

    mu_k = mean,   Sigma_k = unbiased covariance (divisor n_k - 1; zero if n_k = 1)                       (CC1)
    mu   = sum_k (n_k / N) mu_k,   N = sum_k n_k                                                          (CC2)
    Sigma = [sum_k (n_k - 1) Sigma_k + sum_k n_k (mu_k - mu)(mu_k - mu)^T] / (N - 1);  zero if N = 1      (CC3)

These are mean and unbiased covariance of all examples together. The second sum of (CC3) is usually written as
sum_k n_k mu_k mu_k^T - N mu mu^T, which is the same number, but loses digits if the means are large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ReplyError

Arrays = Mapping[str, np.ndarray]

NAMES = ("classes", "counts", "means", "covariances")


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Of each class that has examples, in increasing order.

    classes and counts: int64 (n,); means: float64 (n, d); covariances: float64 (n, d, d).
    """

    classes: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def packed(self) -> dict[str, np.ndarray]:
        """As arrays of a message: float32, and of each covariance the upper triangle, row by row."""
        rows, columns = np.triu_indices(self.means.shape[1])
        return {
            "classes": self.classes,
            "counts": self.counts,
            "means": self.means.astype(np.float32),
            "covariances": self.covariances[:, rows, columns].astype(np.float32),
        }


def of_examples(features: np.ndarray, labels: np.ndarray) -> ClassMoments:
    """(CC1) of one client: features (m, d), labels (m,)."""
    classes, counts = np.unique(labels, return_counts=True)
    by_class = [features[labels == c].astype(np.float64) for c in classes]
    means = np.array([rows.mean(axis=0) for rows in by_class])
    deviations = [rows - mean for rows, mean in zip(by_class, means, strict=True)]
    covariances = np.array([d.T @ d / max(len(d) - 1, 1) for d in deviations])
    return ClassMoments(classes.astype(np.int64), counts.astype(np.int64), means, covariances)


def template(classes: int, size: int) -> dict[str, np.ndarray]:
    """Arrays of the largest form that `packed` can have, with `classes` classes and d = `size`."""
    half = size * (size + 1) // 2
    shapes = {
        "classes": (classes,),
        "counts": (classes,),
        "means": (classes, size),
        "covariances": (classes, half),
    }
    kinds = (np.int64, np.int64, np.float32, np.float32)
    return {name: np.zeros(shapes[name], kind) for name, kind in zip(NAMES, kinds, strict=True)}


def unpacked(arrays: Arrays, classes: int, size: int, most: int) -> ClassMoments:
    """What `packed` made. `most`: the client's number of examples. Raises ReplyError for anything else."""
    largest = template(classes, size)
    if set(arrays) != set(NAMES):
        raise ReplyError(f"moments of classes with the arrays {sorted(arrays)}, not {sorted(NAMES)}")
    for name, array in arrays.items():
        kind, length = largest[name].dtype, len(arrays["classes"]) if arrays["classes"].ndim == 1 else -1
        if array.dtype != kind or array.shape != (length, *largest[name].shape[1:]):
            raise ReplyError(f"{name} of the moments of classes has dtype {array.dtype} and shape {array.shape}")
        if not np.isfinite(array).all():
            raise ReplyError(f"{name} of the moments of classes is not finite")
    owned, counts = arrays["classes"], arrays["counts"]
    if not len(owned) or owned.min() < 0 or owned.max() >= classes or (np.diff(owned) <= 0).any():
        raise ReplyError(f"moments of the classes {owned[:20].tolist()}, of {classes} classes")
    if counts.min() < 1 or counts.max() > most or counts.sum() > most:
        raise ReplyError(f"moments of classes with {counts[:20].tolist()} examples, of {most}")
    rows, columns = np.triu_indices(size)
    covariances = np.zeros((len(owned), size, size))
    covariances[:, rows, columns] = covariances[:, columns, rows] = arrays["covariances"]
    return ClassMoments(owned, counts, arrays["means"].astype(np.float64), covariances)


def pooled(parts: Sequence[ClassMoments]) -> ClassMoments:
    """(CC2) and (CC3): the moments of all examples together. Their order must be fixed for equal bits."""
    classes = np.unique(np.concatenate([part.classes for part in parts]))
    by_class = [
        _pooled_class([(part, int(i)) for part in parts for i in np.flatnonzero(part.classes == c)])
        for c in classes
    ]
    counts, means, covariances = (np.array(column) for column in zip(*by_class, strict=True))
    return ClassMoments(classes, counts, means, covariances)


def _pooled_class(members: Sequence[tuple[ClassMoments, int]]) -> tuple[int, np.ndarray, np.ndarray]:
    total = sum(int(part.counts[i]) for part, i in members)
    mean = sum((part.counts[i] / total * part.means[i] for part, i in members), start=np.zeros(()))
    scatter = np.zeros((len(mean), len(mean)))
    for part, i in members:
        away = part.means[i] - mean
        scatter += (part.counts[i] - 1) * part.covariances[i] + part.counts[i] * np.outer(away, away)
    return total, mean, scatter / max(total - 1, 1)
