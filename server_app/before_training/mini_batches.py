"""Refuses a run in which a mini-batch would have one example where the network needs two, before its first round.

Otherwise each engine would do something else with such a client, or it would be missing from the rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.models.networks_by_name import leaves_one

from ..config.schema import Config
from ..exchange.roster import Roster


def check_mini_batches(config: Config, roster: Roster) -> None:
    """Raise ConfigError if clients that replied to the roll call say so; it names a batch size that fits all."""
    left = [client for client, facts in sorted(roster.facts.items()) if facts.get(wire.ONE_LEFT)]
    if not left:
        return
    size, label = config.client.batch_size, roster.label(left[0])
    who = f"client {label}" + (f" and of {len(left) - 1} more" if len(left) > 1 else "")
    counts = [int(facts.get(wire.NUM_EXAMPLES, 0)) for facts in roster.facts.values()]
    better = fitting(counts, size)
    step = (
        "some client has one example only, so leave it out or use a model without such a normalisation"
        if better is None
        else f"client.batch_size={better} leaves none"
    )
    raise ConfigError(
        f"client.batch_size = {size} is not allowed with model = {config.model.name!r}: a mini-batch of {who} "
        f"would have one example, and the model has a normalisation over the batch, which needs two; {step}",
        key="client.batch_size",
    )


def fitting(counts: Iterable[int], size: int) -> int | None:
    """The batch size nearest to `size` that leaves no mini-batch of one example; None if there is none."""
    known = set(counts)
    if 1 in known:
        return None
    # Few sizes do not fit: the divisors of counts less one. So a fitting one is near, however large a count is.
    nearest_first = (candidate for distance in count() for candidate in (size - distance, size + distance))
    return next(
        candidate
        for candidate in nearest_first
        if candidate > 1 and not any(leaves_one(examples, candidate) for examples in known)
    )
