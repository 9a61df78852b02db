"""What every rule needs of a cohort: the mean update, its length and the clients', averaged buffers.

Pure functions of arrays (numpy or torch); sums run in float64 in the order of the clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from fedstride.arrays import Arrays, Layout, float64, is_boolean, like, mean, squared_norm, total


@dataclass(frozen=True)
class Movement:
    """How far a cohort moved (FedNNNN paper, eq. 4-5), whole and layer by layer."""

    update: Arrays  # mean update, sum_k p_k (w_k - w), float64, parameters only
    N: float  # its norm
    E: float  # mean norm of the clients' updates, sum_k p_k ||w_k - w||
    layer_N: dict[str, float]
    layer_E: dict[str, float]


def movement(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float]) -> Movement:
    """N, E and the mean update of a cohort: one pass over the replies, an array at a time."""
    layout = Layout.of(sent)
    update: Arrays = {}
    squares = [dict.fromkeys(layout.layers, 0.0) for _ in models]
    for layer, names in layout.layers.items():
        for name in names:
            start = float64(sent[name])
            summed = None
            for k, (model, share) in enumerate(zip(models, shares, strict=True)):
                delta = float64(model[name]) - start
                squares[k][layer] += squared_norm(delta)
                summed = share * delta if summed is None else summed + share * delta
            update[name] = summed
    layer_N = {
        layer: total(squared_norm(update[name]) for name in names) ** 0.5 for layer, names in layout.layers.items()
    }
    layer_E = {
        layer: total(p * square[layer] ** 0.5 for p, square in zip(shares, squares, strict=True))
        for layer in layout.layers
    }
    N = total(length**2 for length in layer_N.values()) ** 0.5
    E = total(p * total(square.values()) ** 0.5 for p, square in zip(shares, squares, strict=True))
    # N <= E holds exactly; rounding alone could say otherwise where all clients agree.
    return Movement(update, N, max(N, E), layer_N, {k: max(layer_N[k], v) for k, v in layer_E.items()})


def averaged_buffers(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float]) -> Arrays:
    """The buffers' averages, as FedAvg has them, in their own dtypes.

    Integers are rounded half to even; booleans follow the majority of the shares, a tie the sent value.
    """
    result: Arrays = {}
    for name in Layout.of(sent).buffers:
        value = mean([model[name] for model in models], shares)
        result[name] = majority(value, sent[name]) if is_boolean(sent[name]) else like(value, sent[name])
    return result


def majority(share_of_true: Any, sent: Any) -> Any:
    """Booleans by the majority of the shares; a tie is the sent value."""
    xp = array_namespace(share_of_true)
    tie = xp.abs(share_of_true - 0.5) < 1e-12
    return xp.where(tie, sent, share_of_true > 0.5)


def moved(sent: Arrays, step: Arrays, buffers: Arrays) -> Arrays:
    """The model sent + step in the sent dtypes, with these buffers, in the sent order."""
    return {
        name: buffers[name] if name in buffers else like(float64(array) + step[name], array)
        for name, array in sent.items()
    }
