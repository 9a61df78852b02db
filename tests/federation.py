"""A federation in memory for the tests of the strategies: nodes, replies, rounds.

It is simple on purpose, without a ClientApp and without a network. A reply is a Message that is built by hand.
A client's update is noise that depends only on the round, so an oracle with its own trajectory gets the same
updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import reference as ref
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from hypothesis import settings
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import host, to_record, views
from fedstride.flower import identity
from fedstride.flower.strategy_internals import chain
from fedstride.messages import wire
from strategies.shell.client_states import by_client
from strategies.shell.flower_strategy import Shell

identity.set_identity()

NODES = (40, 7, 25)  # in no particular order, as in a Grid
EXAMPLES = (10, 30, 60)  # of the clients in the order of their ids
SHARES = [0.1, 0.3, 0.6]
UNIFORM = [1.0 / 3.0] * 3
OPEN: dict[str, Any] = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}

PROPERTY = settings(max_examples=40, deadline=None, database=None, derandomize=True)

TOLERANCE = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-10}

Training = Callable[[Model, int], list[Model]]
"""The models of the clients, in the order of their ids, from the model sent and the round."""

SCAFFOLD, FEDDYN = "scaffold", "feddyn"

KEPT = "kept by clients"
"""An attribute of a message: what each honest client keeps that the rule expects to, by node."""

COUNTER: tuple[int, ...] = (1,)
"""The shape of BatchNorm's `num_batches_tracked`."""


# ---------------------------------------------------------------- models


def make_model(dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Model:
    """Convolution, biases, BatchNorm with its buffers, a parameter without a dot, a boolean buffer."""
    model = ref.make_model(np.random.default_rng(seed), dtype)
    model["bn1.num_batches_tracked"] = model["bn1.num_batches_tracked"].reshape(COUNTER)
    return {**model, "fc.mask": np.array([True, False, True, False])}


def only_parameters(model: Model) -> Model:
    return {name: model[name] for name in ref.parameters(model)}


def widened(model: Model) -> Model:
    """The same model in float64; integers and booleans as they are."""
    return {name: ref.f64(a) if a.dtype.kind == "f" else np.array(a) for name, a in model.items()}


def noisy(seed: int = 0, m: int = 3, size: float = 0.1) -> Training:
    return lambda sent, server_round: ref.make_clients(np.random.default_rng([seed, server_round]), sent, m, size)


def idle(sent: Model, server_round: int) -> list[Model]:
    return [dict(sent)] * 3


def bits(model: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal where two models are equal bit for bit, their order included."""
    return {"order": list(model)} | {
        name: (str(array.dtype), array.shape, array.tobytes())
        for name, array in ((name, np.asarray(value)) for name, value in model.items())
    }


def assert_close(got: Mapping[str, Any], want: Model, like: Model, tolerance: float | None = None) -> None:
    """`got` has the names, order, shapes and dtypes of `like` and the values of `want`."""
    assert list(got) == list(like)
    for name, array in like.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        within = tolerance or TOLERANCE.get(str(array.dtype), 0.0)
        np.testing.assert_allclose(got[name], want[name], rtol=within, atol=within, err_msg=name)


class Quadratic:
    """A proxy set without a network: half the squared distance to the half of the model itself."""

    def __len__(self) -> int:
        return 6

    def gradient(self, model: Model, positions: np.ndarray, seed: int) -> Any:
        from strategies.fedlaw import Gradient

        G = {name: 0.5 * ref.f64(model[name]) / len(positions) for name in ref.parameters(model)}
        return Gradient(float(sum((g**2).sum() for g in G.values())), G, {})

    def losses(self, model: Model) -> np.ndarray:
        halves = [0.5 * ref.f64(model[name]) for name in ref.parameters(model)]
        return np.full(len(self), sum((half[np.isfinite(half)] ** 2).sum() for half in halves) / 2)


def to_torch(model: Mapping[str, Any]) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {name: torch.tensor(np.asarray(array)) for name, array in model.items()}


def assert_same_numbers(got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """torch tensors against numpy arrays, to 1e-12."""
    assert list(got) == list(want)
    for name, tensor in got.items():
        assert str(tensor.dtype) == f"torch.{want[name].dtype}", name
        np.testing.assert_allclose(tensor.numpy(), want[name], rtol=1e-12, atol=1e-12, err_msg=name)


# ---------------------------------------------------------------- the worked round of docs/methods.md


def toy(a_weight: object, a_bias: object, b_weight: object) -> Model:
    values = {"a.weight": a_weight, "a.bias": a_bias, "b.weight": b_weight}
    return {name: np.array(value, dtype=np.float64) for name, value in values.items()}


WORKED = toy([[1, -2], [0.5, 3]], [0, 1], [[2, -1]])
WORKED_DELTAS = [
    toy([[0.1, 0.2], [-0.1, 0.0]], [0.1, 0.0], [[0.3, -0.1]]),
    toy([[-0.2, 0.1], [0.1, 0.3]], [0.0, -0.1], [[-0.1, 0.2]]),
    toy([[0.1, -0.1], [0.2, 0.1]], [0.2, 0.1], [[0.2, 0.1]]),
]


def worked(sent: Model, server_round: int) -> list[Model]:
    return [{name: sent[name] + delta[name] for name in sent} for delta in WORKED_DELTAS]


def printed(value: object) -> Any:
    """Equal to a number printed with ten digits after the point."""
    return pytest.approx(value, rel=0, abs=0.51e-10)


# ---------------------------------------------------------------- messages


class MemoryGrid(Grid):
    """Names its nodes; nothing is sent through it."""

    def __init__(self, nodes: Iterable[int] = NODES) -> None:
        self.nodes = list(nodes)

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


def _asked(node: int) -> Message:
    return Message(RecordDict(), dst_node_id=node, message_type=MessageType.TRAIN)


def answer(node: int, records: Mapping[str, Any]) -> Message:
    return Message(RecordDict(dict(records)), reply_to=_asked(node))


def reply(
    node: int,
    model: Model,
    examples: Any = 10,
    metrics: Mapping[str, Any] | None = None,
    to: Message | None = None,
) -> Message:
    """A reply; with `to`, that of a client which does all that this message asks in addition to training."""
    reported = {wire.NUM_EXAMPLES: examples, **(metrics or {})}
    records: dict[str, Any] = {wire.ARRAYS: to_record(model)}
    if to is not None:
        reported |= {wire.done(half): 1 for half in halves_in(to)} | numbers_of(to, node)
        records |= handed_back(to, model, node)
    return answer(node, {**records, wire.METRICS: MetricRecord(reported)})


def reply_with(number: str, value: Any, to: Message, node: int, model: Model, examples: Any = 10) -> Message:
    """The reply to a message that asks for this number, with this value; None: without the number."""
    found = reply(node, model, examples, to=to)
    metrics = found.content.metric_records[wire.METRICS]
    del metrics[number]
    if value is not None:
        metrics[number] = value
    return found


def halves_in(message: Message) -> list[str]:
    """What a message asks for in addition to training."""
    (config,) = message.content.config_records.values()
    return list(config.get(wire.HALVES, []))


def numbers_of(message: Message, node: int) -> dict[str, Any]:
    """The numbers that are asked for; each client has other ones."""
    k = node % 10
    possible = {
        "fednova": {"fednova/a": 1.0 + k, wire.TRAIN_STEPS: 2 + k},
        "q_fedavg": {"q_fedavg/loss": 0.5 + 0.1 * k},
        "feddisco": {"feddisco/labels": [3, k, 0, 2 * k + 1]},
    }
    return {name: value for half in halves_in(message) for name, value in possible.get(half, {}).items()}


def handed_back(message: Message, model: Model, node: int) -> dict[str, ArrayRecord]:
    """The records that are asked for, of a client that is honest and has its state.

    For SCAFFOLD, something of the form of delta_k that the update decides, or c_k+ that follows from it.
    """
    (config,) = message.content.config_records.values()
    sent, kept = model_in(message), vars(message).get(KEPT, {}).get(node, {})
    found: dict[str, Model] = {}
    if SCAFFOLD in halves_in(message):
        control = views(message.content[wire.of_half(SCAFFOLD, "control")])
        delta = {n: (0.5 * (ref.f64(sent[n]) - ref.f64(model[n]))).astype(c.dtype) for n, c in control.items()}
        if config.get(wire.of_half(SCAFFOLD, "recover")):
            found[wire.of_half(SCAFFOLD, "client_control")] = {n: kept.get(n, 0) + d for n, d in delta.items()}
        else:
            found[wire.of_half(SCAFFOLD, "delta")] = delta
    if names := config.get(wire.of_half(FEDDYN, "names")):
        found[wire.of_half(FEDDYN, "client_memory")] = {
            n: remembered(kept.get(n, 0.0), model[n], sent[n])
            for n in names  # type: ignore[union-attr]
        }
    return {name: to_record(arrays) for name, arrays in found.items()}


def remembered(u: Any, w_k: Any, w: Any) -> Any:
    """u_k + (w_k - w) in the dtype of the model, as the client half computes it: torch has no other rounding."""
    trained = np.isfinite(w)
    wide = np.asarray(ref.f64(u) + (ref.f64(np.where(trained, w_k, 0)) - ref.f64(np.where(trained, w, 0))))
    return (wide.astype(np.float32) if w.dtype == np.float16 else wide).astype(w.dtype)


def failure(node: int, reason: str = "boom", code: int = 2) -> Message:
    return Message(Error(code, reason), reply_to=_asked(node))


def fingerprint(message: Message) -> Any:
    """All that a message carries, to see that it was left alone."""
    if message.has_error():
        return message.error.code, message.error.reason
    return [
        (key, [(name, a.dtype, a.shape, a.stype, a.data) for name, a in record.items()])
        if isinstance(record, ArrayRecord)
        else (key, list(record.items()))
        for key, record in message.content.items()
    ]


# ---------------------------------------------------------------- rounds


class Round(NamedTuple):
    messages: list[Message]
    sent: Model  # what the messages carry
    config: dict[str, Any]  # and what they say
    replies: list[Message]
    returned: Model | None
    metrics: dict[str, Any]


def in_order(replies: list[Message]) -> list[Message]:
    return replies


def backwards(replies: list[Message]) -> list[Message]:
    return replies[::-1]


def configure(
    strategy: Strategy, server_round: int, model: Model, config: ConfigRecord | None = None, nodes: Any = NODES
) -> list[Message]:
    config = ConfigRecord() if config is None else config
    messages = list(strategy.configure_train(server_round, to_record(model), config, MemoryGrid(nodes)))
    for part in (part for each in chain(strategy) if isinstance(each, Shell) for part in each.stack.parts):
        kept = by_client({k: host(a) for k, a in (getattr(part.state, "clients", None) or {}).items()})
        for message in messages if kept else ():
            setattr(message, KEPT, kept)
    return messages


def model_in(message: Message) -> Model:
    return views(next(iter(message.content.array_records.values())))


def play(
    strategy: Strategy,
    server_round: int,
    model: Model,
    train: Training,
    arrange: Callable[[list[Message]], list[Message]] = backwards,
) -> Round:
    """One round. `arrange` gets the replies in the order of client ids and says what arrives, and how."""
    messages = configure(strategy, server_round, model)
    sent = model_in(messages[0])
    sent_config = dict(next(iter(messages[0].content.config_records.values())))
    models = train(sent, server_round)
    replies = [
        reply(node, w_k, n, to=messages[0]) for node, w_k, n in zip(sorted(NODES), models, EXAMPLES, strict=False)
    ]
    arrived = arrange(replies)
    record, metrics = strategy.aggregate_train(server_round, arrived)
    returned = None if record is None else views(record)
    return Round(messages, sent, sent_config, arrived, returned, dict(metrics or {}))


def rounds(
    strategy: Strategy,
    model: Model,
    train: Training,
    numbers: Iterable[int] = range(1, 5),
    arrange: Callable[[list[Message]], list[Message]] = backwards,
) -> list[Round]:
    """Some rounds, each with the model that the one before it returned."""
    done: list[Round] = []
    for server_round in numbers:
        done.append(play(strategy, server_round, model, train, arrange))
        model = model if done[-1].returned is None else done[-1].returned
    return done


class Expected(NamedTuple):
    """An oracle's round."""

    returned: Model
    sent_next: Model
    metrics: Mapping[str, Any] = {}


Oracle = Callable[[Model, Sequence[Model]], Expected]


def follow(
    strategy: Strategy, start: Model, oracle: Oracle, train: Training | None = None, count: int = 5
) -> None:
    """Some rounds, compared with an oracle that keeps its own trajectory in float64."""
    train = train or noisy()
    tolerance = TOLERANCE[str(next(iter(start.values())).dtype)]
    model, oracle_sent = start, widened(start)
    for server_round in range(1, count + 1):
        done = play(strategy, server_round, model, train)
        assert_close(done.sent, oracle_sent, start)
        want = oracle(oracle_sent, train(oracle_sent, server_round))
        assert done.returned is not None
        assert_close(done.returned, want.returned, start)
        for key, value in want.metrics.items():
            assert done.metrics[key] == pytest.approx(value, rel=tolerance, abs=tolerance), key
        model, oracle_sent = done.returned, want.sent_next


def fedavg_oracle(sent: Model, clients: Sequence[Model], shares: Sequence[float] = SHARES) -> Model:
    mean = ref.weighted_sum([ref.difference(client, sent) for client in clients], shares)
    return ref.build(sent, mean, ref.average_buffers(sent, clients, shares))


# ---------------------------------------------------------------- arbitrary cohorts


class AnyCohort(NamedTuple):
    sent: Model
    clients: list[Model]
    shares: list[float]


@st.composite
def cohorts(draw: st.DrawFn, m: int | None = None) -> AnyCohort:
    """A small float64 model of two layers and 1 to 4 clients; sixteenths, so that sums are exact."""
    sixteenths = st.integers(-160, 160).map(lambda k: k / 16.0)

    def array(*shape: int) -> Any:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(sixteenths, min_size=size, max_size=size))).reshape(shape)

    def model() -> Model:
        return {"a.weight": array(2, 2), "a.bias": array(2), "b": array(3)}

    count = m or draw(st.integers(1, 4))
    examples = draw(st.lists(st.integers(1, 100), min_size=count, max_size=count))
    return AnyCohort(model(), [model() for _ in range(count)], [n / sum(examples) for n in examples])


# ---------------------------------------------------------------- whatever a client sends


def numbers(finite: bool) -> st.SearchStrategy[Any]:
    floats = st.floats(allow_nan=not finite, allow_infinity=not finite)
    whole = st.integers(-(2**63), 2**63 - 1)
    return st.one_of(whole, floats, st.lists(floats, max_size=3), st.lists(whole, max_size=3))


@st.composite
def anything(draw: st.DrawFn, node: int, model: Model, finite: bool = False, to: Message | None = None) -> Message:
    """A good reply with some things about it changed; `finite`: its metrics but not its count are finite."""
    good = {wire.ARRAYS: to_record(model), **({} if to is None else handed_back(to, model, node))}
    content: dict[str, Any] = {}
    for key, record in good.items():
        arrays: dict[str, Any] = dict(record)
        for name in draw(st.lists(st.sampled_from(sorted(record)), max_size=2)):
            arrays |= draw(_tampered(name, record[name]))
            if draw(st.integers(0, 5)) == 0:
                arrays.pop(name)
        content[key] = ArrayRecord(arrays)
    reported = {wire.NUM_EXAMPLES: draw(st.one_of(st.just(10), numbers(False)))}
    reported |= {} if to is None else numbers_of(to, node)
    reported |= draw(
        st.dictionaries(st.sampled_from(["loss", wire.CLIENT_ID, "x/y_min"]), numbers(finite), max_size=2)
    )
    content[wire.METRICS] = MetricRecord(reported)
    for key in draw(st.lists(st.sampled_from(sorted(content)), max_size=1)):
        if draw(st.booleans()):
            content.pop(key)
        else:
            content[f"{key} again"] = content[key]
    return failure(node, draw(st.text())) if draw(st.integers(0, 9)) == 0 else answer(node, content)


@st.composite
def _tampered(draw: st.DrawFn, name: str, good: Array) -> dict[str, Array]:
    how = draw(st.sampled_from(["flip", "cut", "bytes", "declare", "rename", "value"]))
    if how == "rename":
        return {draw(st.text(max_size=5)): good}
    if how == "value":
        value = good.numpy()
        with np.errstate(over="ignore"):
            value.flat[0] = draw(st.floats() if value.dtype.kind == "f" else st.integers(0, 1))
        return {name: Array(value)}
    data, shape, dtype = good.data, good.shape, good.dtype
    if how == "flip":
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
    elif how == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    elif how == "bytes":
        data = draw(st.binary(max_size=200))
    else:
        shape = tuple(draw(st.lists(st.integers(-2, 3), max_size=3)))
        dtype = draw(st.sampled_from(["float32", "object", "", "V8"]))
    return {name: Array(dtype, shape, good.stype, data)}


# ---------------------------------------------------------------- a Grid whose clients learn noise


class LearningGrid(MemoryGrid):
    """Answers at once, in the order of the node ids turned round; keeps all that was sent."""

    def __init__(self, train: Training, nodes: Iterable[int] = NODES) -> None:
        super().__init__(nodes)
        self.train = train
        self.log: list[Message] = []
        self.kept: dict[int, Model] = {}  # what the clients handed back last, by node

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = []
        for message in sorted(messages, key=lambda message: -message.metadata.dst_node_id):
            self.log.append(message)
            place = sorted(self.nodes).index(message.metadata.dst_node_id)
            reported = {wire.NUM_EXAMPLES: EXAMPLES[place], "loss": float(place)}
            server_round = message.content["config"][wire.SERVER_ROUND]
            content: dict[str, Any] = {}
            if message.metadata.message_type == MessageType.TRAIN:
                model = self.train(model_in(message), server_round)[place]
                reported |= {wire.done(half): 1 for half in halves_in(message)}
                reported |= numbers_of(message, message.metadata.dst_node_id)
                node = message.metadata.dst_node_id
                setattr(message, KEPT, self.kept)
                more = handed_back(message, model, node)
                for record in more.values():
                    self.kept[node] = views(record)
                content = {wire.ARRAYS: to_record(model), **more}
            content[wire.METRICS] = MetricRecord(reported)
            replies.append(Message(RecordDict(content), reply_to=message))
        return replies
