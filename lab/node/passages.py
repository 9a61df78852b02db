"""Where messages come into a SuperNode and replies leave it (Flower 1.39): each is logged before it goes on.

Two functions of Flower's loop are wrapped, and the place where its state is made, which is before it connects.
`seams.problem` checks that they are as expected.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import grpc

from fedstride import wire
from fedstride.errors import ConfigError, last_line
from fedstride.flower.objects import head_of
from fedstride.replacing import replaced
from fedstride.signatures import FORMAT, RUN_CONFIG, load
from node.accounts import Accounts, Arrived, RefusedError, Reply

from .seams import LOOP, MAIN

MOST_HEAD, MOST_PLAIN = 2**20, 2**20  # bytes of an object that are looked at
SHOWN = {
    wire.SERVER_ROUND: "round",
    wire.STRATEGY: "strategy",
    wire.PRIVACY: "privacy",
    wire.CLIPPING_NORM: "clipping_norm",
    wire.NOISE_MULTIPLIER: "noise_multiplier",
}
"""The keys of a message's configuration that are logged, each with its name in the log."""

REFUSALS = (7, wire.REFUSED)
"""The codes of a message that is not processed; 7 is Flower's, for an app that no trusted key has signed."""

_log = logging.getLogger("flwr").log


@contextlib.contextmanager
def accounted(begin: Callable[[], Accounts]) -> Iterator[None]:
    """Within this context, a SuperNode accounts for its messages. `begin` is called before it connects."""
    loop, main = importlib.import_module(LOOP), importlib.import_module(MAIN)
    passages = _Passages(loop, begin)
    with (
        replaced(main, NodeStateFactory=passages.before(main.NodeStateFactory)),
        replaced(loop, _pull_and_store_message=passages.into(loop._pull_and_store_message)),
        replaced(loop, _push_messages=passages.out_of(loop._push_messages)),
    ):
        yield


class _Passages:
    def __init__(self, loop: Any, begin: Callable[[], Accounts]) -> None:
        self._loop = loop
        self._begin = begin
        self._accounts: Any = None
        self._open: dict[str, Any] = {}  # the messages without a reply, by id

    def before(self, factory: Callable[..., Any]) -> Callable[..., Any]:
        """A `NodeStateFactory` that begins the accounts first."""

        def made(**options: Any) -> Any:
            self._accounts = self._begin()
            return factory(**options)

        return made

    def into(self, pull: Callable[..., Any]) -> Callable[..., Any]:
        """A `_pull_and_store_message` that accounts for the message before Flower does anything with it."""

        def accounted_pull(
            *,
            state: Any,
            object_store: Any,
            receive: Any,
            get_run: Any,
            get_fab: Any,
            trusted_entities: Any,
            **others: Any,
        ) -> Any:
            came: list[Any] = []

            def receive_one() -> Any:
                if (found := receive()) is not None:
                    came.append(found)
                    message = found[0]
                    run_id = message.metadata.run_id
                    self._accounts.arrived(_arrived(message, state.get_run(run_id) or get_run(run_id)))
                    self._open[message.metadata.message_id] = message
                return found

            def get_signed(fab_hash: str, run_id: int) -> Any:
                fab = get_fab(fab_hash, run_id)
                if trusted_entities:
                    self._check_signature(
                        fab, get_run(run_id).override_config.get(RUN_CONFIG, ""), trusted_entities
                    )
                return fab

            try:
                run_id = pull(
                    state=state,
                    object_store=object_store,
                    receive=receive_one,
                    get_run=get_run,
                    get_fab=get_signed,
                    trusted_entities=trusted_entities,
                    **others,
                )
            except RefusedError as error:
                return self._refuse(came[0][0], str(error), state, object_store)
            except grpc.RpcError as error:
                if not came:
                    raise
                reason = f"the SuperLink did not hand over the run or its app ({error.code().name})"
                return self._refuse(came[0][0], reason, state, object_store)
            for message, tree in came:
                if run_id is None:
                    self._open.pop(message.metadata.message_id, None)
                    self._accounts.refused(
                        message.metadata.message_id, "it did not arrive whole, or its run ended"
                    )
                else:
                    self._accounts.asks(message.metadata.message_id, _asked(_contents(tree, object_store)))
            return run_id

        return accounted_pull

    def out_of(self, push: Callable[..., Any]) -> Callable[..., Any]:
        """A `_push_messages` that accounts for a reply before the first byte of it is sent."""

        def accounted_push(*, state: Any, object_store: Any, send: Any, push_object: Any) -> None:
            def send_one(message: Any, tree: Any, seconds: float) -> Any:
                to = message.metadata.reply_to_message_id
                original = self._open.pop(to, None)
                if original is None:  # its refusal, which is logged as far as possible
                    return send(message, tree, seconds)
                contents = list(self._whole(tree, object_store))
                try:
                    self._accounts.leaves(_reply(message, contents))
                except RefusedError as error:
                    return self._send_refusal(original, str(error), seconds, send, push_object)
                return send(message, tree, seconds)

            push(state=state, object_store=object_store, send=send_one, push_object=push_object)

        return accounted_push

    def _check_signature(self, fab: Any, text: Any, trusted_entities: Mapping[str, str]) -> None:
        """Give Flower the signature that came with the run, if a trusted key made it; raises RefusedError if not.

        Flower verifies it again. Flower's SuperLink hands over signatures of its app store only; these are left
        to Flower.
        """
        app = f"the app (SHA-256 {hashlib.sha256(fab.content).hexdigest()[:12]}...)"
        if not text and fab.verifications.get("valid_license"):
            return
        if not text:
            raise RefusedError(f"{app} is not signed, and this node runs signed apps only; see fedstride sign")
        try:
            signature = load(str(text))
        except ConfigError as error:
            raise RefusedError(f"{app} has no valid signature: {error}") from None
        if signature.key not in trusted_entities:
            raise RefusedError(f"{app} is signed by {signature.key}, a key that this node does not trust")
        fab.verifications.clear()
        fab.verifications.update({"valid_license": FORMAT, **signature.for_flower})
        if not self._loop._verify_fab(fab, trusted_entities):
            raise RefusedError(f"{app} is not the one that was signed by {signature.key}: it was altered")

    def _refuse(self, message: Any, reason: str, state: Any, object_store: Any) -> int:
        """Reply with an error instead of processing the message; the id of its run."""
        from flwr.app import Error, Message

        _log(logging.ERROR, "message %s is refused: %s", message.metadata.message_id, reason)
        self._loop._insert_message(Message(Error(wire.REFUSED, reason), reply_to=message), state, object_store)
        return int(message.metadata.run_id)

    def _whole(self, tree: Any, object_store: Any) -> Iterator[bytes]:
        """The contents of all objects of a reply, when its process has handed over all of them."""
        for each in _ids(tree):
            while (content := object_store.get(each)) == b"":
                self._loop.time.sleep(0.5)
            yield content or b""

    def _send_refusal(
        self, original: Any, reason: str, seconds: float, send: Any, push_object: Any
    ) -> tuple[set[str], str]:
        """Send an error instead of a reply. Nothing is left for Flower's loop to send."""
        from flwr.app import Error, Message
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )

        _log(logging.ERROR, "the reply to message %s is held back: %s", original.metadata.message_id, reason)
        refusal = Message(Error(wire.REFUSED, reason), reply_to=original)
        with no_object_id_recompute():
            refusal.metadata.__dict__["_message_id"] = refusal.object_id
            objects = get_all_nested_objects(refusal)
            missing, session = send(refusal, get_object_tree(refusal), seconds)
            for each in missing:
                push_object(original.metadata.run_id, session, each, objects[each].deflate())
        return set(), session


def _arrived(message: Any, run: Any) -> Arrived:
    return Arrived(
        id=message.metadata.message_id,
        run=message.metadata.run_id,
        task=str(message.metadata.message_type),
        app=f"{run.fab_id} {run.fab_version}",
        app_hash=run.fab_hash,
        overrides=" ".join(f"{key}={value}" for key, value in run.override_config.items()),
    )


def _reply(message: Any, contents: list[bytes]) -> Reply:
    error = f"code {message.error.code}: {last_line(message.error.reason)}" if message.has_error() else ""
    counts = [record[wire.NUM_EXAMPLES] for record in _plain_records(contents) if wire.NUM_EXAMPLES in record]
    return Reply(
        to=message.metadata.reply_to_message_id,
        bytes=sum(map(len, contents)),
        examples=next((count for count in counts if type(count) is int), None),
        error=error,
        refused=message.has_error() and message.error.code in REFUSALS,
    )


def _asked(contents: list[bytes]) -> dict[str, Any]:
    records = _plain_records(contents)
    return {name: record[key] for record in records for key, name in SHOWN.items() if key in record}


def _plain_records(contents: Iterable[bytes]) -> list[Any]:
    """The records of plain values among these objects. Those that are too large, or no records, are left out."""
    from flwr.app import ConfigRecord, MetricRecord

    kinds: dict[str, Any] = {kind.__name__: kind for kind in (ConfigRecord, MetricRecord)}
    found = []
    for content in contents:
        if len(content) > MOST_PLAIN:
            continue
        with contextlib.suppress(Exception):  # what the app or the server wrote may be anything
            kind, _, _ = head_of(content, MOST_HEAD)
            if kind in kinds:
                found.append(kinds[kind].inflate(content))
    return found


def _contents(tree: Any, object_store: Any) -> list[bytes]:
    return [object_store.get(each) or b"" for each in _ids(tree)]


def _ids(tree: Any) -> list[str]:
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

    return list(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
