"""The messages of a run as they are signed: composed by the code that sends them, at the submitter's desk too.

A run's first messages are made here, for one node that does not exist. What the parts of the run declare as
varying may change from then on, all else may not. The server compares what it was told with what it would send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.messages.records import array_records, config_records
from fedstride.messages.signed_runs import RUN_CONFIG, MessageForm, Terms, form_of_arrays, is_value, load, same
from fedstride.messages.varying_values import Varies
from fedstride.tasks.statistics import over_sites
from strategies.norm_analysis import NormAnalysis

from .build import build_strategy, message_config
from .evaluation import ccvr, membership
from .exchange.frozen_arrays import Delivery
from .exchange.sending import CohortGrid
from .preparation import Prepared, at_server_of
from .rounds import is_due, varies

ONE_NODE = CohortGrid(cast(Grid, None), [1])
"""A strategy that makes messages asks its grid for nothing but the nodes."""


def signed_terms(run_config: Mapping[str, Any]) -> Terms | None:
    """The terms of a signed run, of which only nodes verify the signature; None if it is not signed.

    Raises ConfigError if they cannot be read.
    """
    text = run_config.get(RUN_CONFIG)
    return load(text).terms if text else None


def check(terms: Terms, prepared: Prepared, *, describes: bool = False) -> None:
    """Raise ConfigError if this run would not send what was signed: its nodes would refuse it.

    `describes`: whether it only asks what the data are like.
    """
    word = None if prepared.checkpoint is None else prepared.checkpoint.run
    if terms.resumes != (word is not None):
        raise ConfigError(
            "the run is signed as a new one, or as one that is resumed, and is the other; sign it again"
        )
    if word not in (None, terms.run):
        raise ConfigError(f"the run is signed with the word {terms.run}, but the run that is resumed has {word}")
    forms = forms_of(prepared, terms.run, describes=describes)
    if difference := next(_differences(terms.forms, forms), ""):
        raise ConfigError(
            f"this server would send another message than was signed ({difference}), and nodes would refuse it; "
            "use the same versions and data at the desk that signs and at the SuperLink"
        )
    if (terms.rounds, terms.messages) != (prepared.config.rounds, messages_of(prepared, forms)):
        raise ConfigError("the run is signed for another number of rounds or messages; sign it again")


def forms_of(prepared: Prepared, word: str, *, describes: bool = False) -> tuple[MessageForm, ...]:
    """All forms of this run's messages. `word`: of the run. `describes`: it only asks what the data are like."""
    if describes:
        return (_of_description(prepared, word),)
    config, spec = prepared.config, prepared.spec.with_statistics(prepared.statistics)
    delivery = Delivery(prepared.evaluation.frozen)
    strategy = build_strategy(config, prepared.evaluation.model, spec, at_server_of(config, prepared.evaluation))
    initial = prepared.evaluation.initial
    sent = message_config(config, spec, word, delivery.values)
    known = over_sites.varies(spec)
    in_rounds = varies(config.rounds)
    in_round = {wire.SERVER_ROUND: in_rounds[wire.SERVER_ROUND]}

    def form(name: str, message: Message, varying: Mapping[str, Varies]) -> MessageForm:
        return _form(name, message, strategy.configrecord_key, varying, delivery.record)

    def query(records: Mapping[str, ArrayRecord], more: Mapping[str, Any]) -> Message:
        asked = message_config(config, spec, word, {**delivery.values, **more})
        content = RecordDict({**records, wire.CONFIG: asked})
        return Message(content, dst_node_id=1, message_type=MessageType.QUERY)

    forms = [form("roll call", query({}, {}), known)]
    if known:
        forms.append(form("roll call for statistics", query({}, {wire.MOMENTS: True}), {}))
    for message in strategy.configure_train(1, initial, sent, ONE_NODE) if config.rounds else ():
        forms.append(form("training", message, {**known, **in_rounds, **_of_parts(strategy)}))
    if config.evaluate_clients:
        for message in strategy.configure_evaluate(1, initial, sent, ONE_NODE):
            if prepared.second is not None:
                prepared.second.add([message], strategy.configrecord_key)
            asks = membership.VARIES if config.rounds else {}
            forms.append(form("evaluation", message, {**known, **in_round, **asks}))
    if prepared.calibration is not None:
        forms.append(form("calibration", query({wire.ARRAYS: initial}, ccvr.ASKED), {**known, **in_round}))
    return tuple(forms)


def _of_description(prepared: Prepared, word: str) -> MessageForm:
    config, spec = prepared.config, prepared.spec.with_statistics(prepared.statistics)
    asked = message_config(config, spec, word, {wire.DESCRIPTION: True})
    message = Message(RecordDict({wire.CONFIG: asked}), dst_node_id=1, message_type=MessageType.QUERY)
    return _form("description", message, wire.CONFIG, {}, ArrayRecord())


def messages_of(prepared: Prepared, forms: Iterable[MessageForm]) -> int:
    """How many messages of these forms a node gets, at most."""
    config, calibration = prepared.config, prepared.calibration
    rounds = range(1, config.rounds + 1)
    count = 0
    for form in forms:
        if form.kind == MessageType.TRAIN:
            count += config.rounds
        elif form.kind == MessageType.EVALUATE:
            count += sum(is_due(server_round, config) for server_round in rounds) if rounds else 1
        elif wire.SERVER_ROUND in form.varies and calibration is not None:
            count += sum(map(calibration.is_due, rounds))
        else:
            count += 1
    return count


def _of_parts(strategy: NormAnalysis) -> dict[str, Varies]:
    """What the strategies of a run declare as varying."""
    varying: dict[str, Varies] = {}
    for part in (strategy, *strategy.nested()):
        varying |= getattr(part, "varies", {})  # Flower's own declare nothing: they send the model alone
    return varying


def _form(
    name: str, message: Message, config_key: str, varying: Mapping[str, Varies], frozen: ArrayRecord
) -> MessageForm:
    config = config_records(message.content)[config_key]
    records = {key: _digest(record) for key, record in array_records(message.content).items()}
    may_bring = {wire.FROZEN: _digest(frozen)} if frozen and records else {}
    fixed: dict[str, Any] = {key: value for key, value in config.items() if key not in varying}
    if bad := next((key for key, value in fixed.items() if not is_value(value)), None):
        raise ConfigError(
            f"the run cannot be signed: its messages have {bad} = {fixed[bad]!r}, which must be a finite number, "
            "a text, a bool, or a list of them"
        )
    return MessageForm(
        name, message.metadata.message_type, fixed, varying, {**records, **may_bring}, tuple(may_bring)
    )


def _digest(record: ArrayRecord) -> str:
    return form_of_arrays((name, array.dtype, array.shape) for name, array in record.items())


def _differences(signed: Iterable[MessageForm], sent: Iterable[MessageForm]) -> Iterator[str]:
    """How the forms of messages differ, in words."""
    theirs, ours = {form.name: form for form in signed}, {form.name: form for form in sent}
    for name in sorted(theirs.keys() ^ ours.keys()):
        yield f"{name}: {'not signed' if name in ours else 'not sent'}"
    for name in sorted(theirs.keys() & ours.keys()):
        one, other = theirs[name], ours[name]
        for key in sorted(one.fixed.keys() | other.fixed.keys()):
            if key not in one.fixed or key not in other.fixed or not same(one.fixed[key], other.fixed[key]):
                yield f"{name}: {key}"
        if one != other:
            yield f"{name}: its arrays, or what may vary"
