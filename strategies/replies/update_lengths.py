"""How long the parts of a reply may be: the bounds of a round, and what the next rounds know of lengths.

The bounds themselves are functions of numbers (`length_bounds.py`); here they are applied to replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flwr.app import RecordDict

from fedstride.arrays.float64_sums import float64
from fedstride.arrays.named import Arrays, Layout, is_floating, like

from ..sums.blocks import difference, norm
from .cohort import Expected, Rejected, Reply
from .length_bounds import quantile, reference
from .reply_messages import as_it_came, model_key, shallow
from .screening_settings import Screening

MODEL, BUFFERS = "the model", "the buffers"
"""Keys of the reference lengths in what is learnt. An expected record has its own name."""

WITHIN = "within/"
"""Before a client's id: how many of its last replies in a row were within `screening.factor`, at most `STEADY`."""

STEADY = 3
"""After so many replies in a row within `screening.factor`, one may be as long as `screening.burst` allows."""


def bound_lengths(
    replies: list[Reply],
    sent: Arrays,
    expected: Expected,
    screening: Screening,
    learnt: Mapping[str, float],
) -> tuple[list[Reply], list[Rejected], dict[str, float]]:
    """The replies that are not too long in any part, or were shortened; the others; and what was learnt.

    The parts are the parameters, the floating-point buffers and each expected record.
    """
    if not replies or (screening.factor is None and screening.clip is None):
        return replies, [], dict(learnt)
    parts = [_measured(part, replies, learnt) for part in _parts(sent, expected)]
    allowed = [allowed_of(reply.client_id, screening, learnt) for reply in replies]
    faults = [_fault(i, limit, parts) for i, limit in enumerate(allowed)]
    inside = [i for i, fault in enumerate(faults) if fault is None]
    # A round with fewer replies than the quorum changes nothing.
    after = {**learnt, **(_references(parts, inside) if len(replies) >= screening.quorum else {})}
    if screening.factor is not None and len(inside) >= screening.quorum:
        _count_steady(after, replies, parts, screening.factor)
    if screening.clip is not None:
        shorter = [_shortened(r, i, parts, allowed[i].factor, screening.clip) for i, r in enumerate(replies)]
        return shorter, [], after
    good = [reply for reply, fault in zip(replies, faults, strict=True) if fault is None]
    far = [Rejected(r.node_id, fault) for r, fault in zip(replies, faults, strict=True) if fault is not None]
    return good, far, after


# ---------------------------------------------------------------- the parts of a reply


class _Part(NamedTuple):
    """A part of a reply whose length is bounded for itself."""

    name: str  # the key of its reference length
    what: str  # in a reason
    scale: Callable[[], float]  # the norm of what was sent, 0 if the part is itself a change
    length: Callable[[Reply], float]
    shorten: Callable[[Reply, float], Reply]  # by a factor


def _parts(sent: Arrays, expected: Expected) -> list[_Part]:
    layout = Layout.of(sent)
    buffers = [name for name in layout.buffers if is_floating(sent[name])]
    parts = [_model_part(MODEL, "an update", sent, layout.parameters, lambda reply: reply.length)]
    if buffers:
        change = "a change of the buffers"
        parts.append(
            _model_part(BUFFERS, change, sent, buffers, lambda reply: norm(difference(reply.model, sent, buffers)))
        )
    return parts + [_record_part(record) for record in expected.returns]


def _model_part(
    name: str, what: str, sent: Arrays, names: Sequence[str], length: Callable[[Reply], float]
) -> _Part:
    def scale() -> float:
        return norm({name: sent[name] for name in names})

    return _Part(name, what, scale, length, lambda reply, factor: _with_shorter(reply, sent, names, factor))


def _record_part(record: str) -> _Part:
    def shorten(reply: Reply, factor: float) -> Reply:
        arrays = {name: like(factor * float64(array), array) for name, array in reply.extras[record].items()}
        return replace(reply, extras={**reply.extras, record: arrays})

    return _Part(record, f"a record {record!r}", lambda: 0.0, lambda reply: reply.extra_lengths[record], shorten)


def _with_shorter(reply: Reply, sent: Arrays, names: Sequence[str], factor: float) -> Reply:
    """The reply with w + factor (w_k - w) in these arrays, in the message that other strategies see too."""
    shorter = {
        name: like(float64(sent[name]) + factor * (float64(reply.model[name]) - float64(sent[name])), sent[name])
        for name in names
    }
    model = {**reply.model, **shorter}
    message = shallow(reply.message)
    message.content = RecordDict({**reply.message.content, model_key(reply): as_it_came(model, sent)})
    parameters = Layout.of(sent).parameters
    return replace(reply, model=model, message=message, length=norm(difference(model, sent, parameters)))


# ---------------------------------------------------------------- bounds


@dataclass(frozen=True)
class _Measured:
    """A part, its length in each reply, and its reference length."""

    part: _Part
    lengths: list[float]
    scale: float  # the part's, where it is needed
    before: float | None  # the reference length before the round
    normal: float | None  # and in this round; None if it is not known

    def is_longer(self, i: int, factor: float | None) -> bool:
        """Whether it is longer in reply number i than this factor allows."""
        return self.normal is not None and factor is not None and self.lengths[i] > factor * self.normal


def _measured(part: _Part, replies: Sequence[Reply], learnt: Mapping[str, float]) -> _Measured:
    lengths = [part.length(reply) for reply in replies]
    before = learnt.get(part.name)
    scale = 0.0 if before else part.scale()  # of use only in the first round
    return _Measured(part, lengths, scale, before, reference(lengths, before, scale))


class Allowed(NamedTuple):
    """How many times the reference length a client's reply may have, and which setting says so."""

    factor: float | None
    setting: str


def allowed_of(client: int, screening: Screening, learnt: Mapping[str, float]) -> Allowed:
    """Honest clients make a single long step now and then; a client that attacks makes them in every round."""
    steady = learnt.get(f"{WITHIN}{client}", 0.0) >= STEADY
    if screening.factor is not None and steady and screening.burst > screening.factor:
        return Allowed(screening.burst, "screening.burst")
    return Allowed(screening.factor, "screening.factor")


def _fault(i: int, allowed: Allowed, parts: Sequence[_Measured]) -> str | None:
    """Why reply number i is too long; None if it is not."""
    for measured in parts:
        if measured.is_longer(i, allowed.factor):
            return (
                f"{measured.part.what} of norm {measured.lengths[i]:.4g}, more than {allowed.factor:g} times "
                f"{measured.normal:.4g}, the largest median of a round so far ({allowed.setting})"
            )
    return None


def _references(parts: Sequence[_Measured], inside: Sequence[int]) -> dict[str, float]:
    """The reference lengths after the round.

    Learnt from replies within the bounds, so that a rejected one leaves no trace. If there is none, the
    references grow, because what all clients do is not the attack of one.
    """
    references = {}
    for measured in parts:
        if measured.normal is not None:
            lengths = [measured.lengths[i] for i in inside]
            after = reference(lengths, measured.before, measured.scale) if lengths else None
            references[measured.part.name] = after or measured.normal
    return references


def _count_steady(
    learnt: dict[str, float], replies: Sequence[Reply], parts: Sequence[_Measured], factor: float
) -> None:
    """Count, in what is learnt, each client's replies in a row within the factor. A longer one ends the row."""
    for i, reply in enumerate(replies):
        key = f"{WITHIN}{reply.client_id}"
        if any(measured.is_longer(i, factor) for measured in parts):
            learnt.pop(key, None)
        else:
            learnt[key] = min(learnt.get(key, 0.0) + 1.0, float(STEADY))


def _shortened(reply: Reply, i: int, parts: Sequence[_Measured], factor: float | None, clip: float) -> Reply:
    """Reply number i with every part shortened to the quantile `clip` of its lengths, and to its bound."""
    for measured in parts:
        limit = quantile(measured.lengths, clip)
        if factor is not None and measured.normal is not None:
            limit = min(limit, factor * measured.normal)
        length = measured.lengths[i]
        if length > limit:
            note = f"{measured.part.what} of norm {length:.4g} was shortened to {limit:.4g} (screening.clip)"
            reply = replace(measured.part.shorten(reply, limit / length), notes=(*reply.notes, note))
    return reply
