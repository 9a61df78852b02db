"""What a part of a strategy computed, brought into the form of the sent model, and refused if not finite."""

from __future__ import annotations

from logging import WARNING

from fedstride.arrays.finite import first_not_finite
from fedstride.arrays.named import Arrays, is_boolean, like
from fedstride.arrays.on_device import device_in, placed
from fedstride.errors import RunError
from fedstride.flower.logs import log

from ..sums.means import majority

NOT_FINITE = {"screening/not_finite": 1}
"""The metric of a round whose result was not used, because it contained NaN or infinity."""


def conformed(model: Arrays, sent: Arrays, who: str) -> Arrays:
    """The model with the sent names, order, shapes and dtypes, where the sent one is.

    Raises RunError for other names or shapes. Averages of booleans become their majority.
    """
    if set(model) != set(sent):
        odd = sorted(set(model) ^ set(sent))[:5]
        raise RunError(f"{who} returned a model whose arrays differ from the sent one's: {odd}")
    result = placed(model, device_in(sent.values()))
    for name, array in sent.items():
        if result[name].shape != array.shape:
            raise RunError(f"{who} returned {name!r} of shape {result[name].shape}, sent was {array.shape}")
        if is_boolean(array) and not is_boolean(result[name]):
            result[name] = majority(result[name], array)
    return {name: like(result[name], array) for name, array in sent.items()}


def is_usable(server_round: int, name: str, *models: Arrays | None) -> bool:
    """Whether all values of the models that a strategy computed are finite; logs the first array that is not.

    A round with another result is void: a model that is not finite must never replace one that is.
    """
    for model in models:
        array_name = first_not_finite(model or {})
        if array_name is not None:
            log(
                WARNING,
                "round %d: %s computed a model in which %r contains NaN or infinity; the round changes nothing",
                server_round,
                name,
                array_name,
            )
            return False
    return True
