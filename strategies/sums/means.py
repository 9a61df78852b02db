"""What every rule needs of the clients' models: the mean update, how long updates are, averaged buffers.

Pure functions of arrays (numpy or torch). Sums run in float64 in the order of the clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedstride.arrays.float64_sums import float64, total
from fedstride.arrays.named import Arrays, Layout, epsilon, is_boolean, like, namespace

from .blocks import blockwise, squared_norms
from .updates import updates_of


class Norms(NamedTuple):
    """How far the clients of a round moved, over one set of parameters (FedNNNN paper, eq. 4-5)."""

    N: float  # ||sum_k p_k Delta_k||, norm of the mean update
    E: float  # sum_k p_k ||Delta_k||, mean norm of the clients' updates; at least N
    resolution: float  # eps ||w|| of the changed arrays: a smaller N can be the clients' rounding alone (A1-4)


@dataclass(frozen=True)
class Movement:
    """How far the clients of a round moved, over all parameters and layer by layer."""

    update: Arrays  # mean update, sum_k p_k (w_k - w), float64, parameters only, read-only
    whole: Norms
    layers: dict[str, Norms]


def mean_update(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float]) -> Arrays:
    """sum_k p_k (w_k - w), float64, parameters only, read-only."""
    return updates_of(sent, models).summed(shares)


def movement(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float]) -> Movement:
    """The mean update and its norms."""
    updates, layout = updates_of(sent, models), Layout.of(sent)
    update = updates.summed(shares)
    means = squared_norms(update)
    squares = {name: updates.squares(name) for name in layout.parameters}  # of each client
    changed = [name for name in layout.parameters if updates.is_changed(name)]
    rounding = {name: epsilon(sent[name]) ** 2 * square for name, square in squared_norms(sent, changed).items()}
    of_layer = {
        layer: [total(squares[name][k] for name in names) for k in range(len(models))]
        for layer, names in layout.layers.items()
    }
    layers = {
        layer: _norms(
            N=total(means[name] for name in names) ** 0.5,
            E=total(p * square**0.5 for p, square in zip(shares, of_layer[layer], strict=True)),
            resolution=total(rounding[name] for name in names if name in rounding) ** 0.5,
        )
        for layer, names in layout.layers.items()
    }
    of_model = [total(square[k] for square in of_layer.values()) for k in range(len(models))]
    whole = _norms(
        N=total(norms.N**2 for norms in layers.values()) ** 0.5,
        E=total(p * square**0.5 for p, square in zip(shares, of_model, strict=True)),
        resolution=total(rounding.values()) ** 0.5,
    )
    return Movement(update, whole, layers)


def _norms(N: float, E: float, resolution: float) -> Norms:
    # Mathematically N <= E. Rounding alone could break this where all clients agree, so E is at least N.
    return Norms(N, max(N, E), resolution)


def averaged_buffers(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float]) -> Arrays:
    """The buffers' averages, as FedAvg has them, in their own dtypes.

    Integers are rounded half to even. Booleans follow the majority of the shares; a tie is the sent value.
    A buffer that no client changed stays exactly as it is.
    """
    result: Arrays = {}
    updates = updates_of(sent, models)
    for name in Layout.of(sent).buffers:
        if not updates.is_changed(name):  # the shares need not sum to exactly 1
            result[name] = sent[name]
            continue
        value = updates.averaged(name, shares)
        result[name] = majority(value, sent[name]) if is_boolean(sent[name]) else like(value, sent[name])
    return result


def majority(share_of_true: Any, sent: Any) -> Any:
    """Booleans by the majority of the shares; a tie is the sent value."""
    xp = namespace(share_of_true)
    tie = xp.abs(share_of_true - 0.5) < 1e-12
    return xp.where(tie, sent, share_of_true > 0.5)


def add_step(sent: Arrays, step: Arrays, buffers: Arrays) -> Arrays:
    """The model sent + step in the sent dtypes, with these buffers, in the sent order."""
    parameters = {name: array for name, array in sent.items() if name not in buffers}
    moved = blockwise(lambda w, s: like(float64(w) + s, w), parameters, step)
    return {name: buffers[name] if name in buffers else moved[name] for name in sent}


def zeros_like(arrays: Arrays) -> Arrays:
    """Zeros in the shapes and dtypes of these arrays."""
    return {name: namespace(array).zeros_like(array) for name, array in arrays.items()}
