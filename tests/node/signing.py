"""Signed runs without a SuperLink: a key, a run that it has signed, and nodes that check each message of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from leaving import keys_in
from memory import BUNDLE, sha

from fedstride.flower.for_nodes.connection import AnnouncedRun, MessageHead
from fedstride.messages.app_signatures import encode, key_id
from fedstride.messages.packed_arrays import Packer
from fedstride.messages.signed_runs import DAY, MessageForm, SignedTerms, Terms, to_sign
from lab.engine.local_grid import LocalGrid
from node.apps.installed_apps import InstalledApp
from node.log.log_lines import NodeLog
from node.signed_runs.approvals import Approvals
from node.signed_runs.ledger import Ledger, Question
from node.signed_runs.message_checks import SignedRuns
from node.signed_runs.signers import AllowedSigner, Signatures
from server_app.preparation import Prepared
from server_app.signed_messages import forms_of, messages_of

KEY = Ed25519PrivateKey.generate()
OTHER_KEY = Ed25519PrivateKey.generate()
APP = InstalledApp("test/acts", "1.0.0", "", sha(BUNDLE), BUNDLE)
WORD = "0123456789abcdef"
RUN_CONFIG = {"overrides": "rounds=2", "submission": "anna@desk 1f"}
OWN, OTHER = "SHA256:" + "A" * 43, "SHA256:" + "B" * 43


def signer_of(key: Ed25519PrivateKey, name: str = "study") -> AllowedSigner:
    public = key.public_key()
    text = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return AllowedSigner(name, key_id(public.public_bytes(Encoding.Raw, PublicFormat.Raw)), text, public)


def terms_of(forms: tuple[MessageForm, ...], **other: Any) -> Terms:
    now = int(time.time())
    terms = Terms(
        APP.hash,
        RUN_CONFIG,
        WORD,
        False,
        3,
        20,
        forms,
        (OWN,),
        sha(str(time.time()).encode())[:32],
        now,
        now + DAY,
    )
    return replace(terms, **other)


def signed_text(terms: Terms, key: Ed25519PrivateKey = KEY) -> str:
    body = terms.body()
    return SignedTerms(terms, signer_of(key).id, encode(key.sign(to_sign(body))), body).dump()


def run_of(text: str, run: int = 7, **other: str) -> AnnouncedRun:
    return AnnouncedRun(run, 3, APP.hash, {**RUN_CONFIG, **({"signed_run": text} if text else {}), **other})


def objects(message: Message) -> dict[str, bytes]:
    """The objects of a message, as a SuperLink has them."""
    return {each: found.deflate() for each, found in get_all_nested_objects(message).items()}


def head_of(message: Message, run: int = 7) -> MessageHead:
    metadata = message.metadata
    return MessageHead(message.object_id, run, 1, 5, "1", metadata.message_type, time.time(), 60.0, 1, None)


class Checking:
    """What a node checks, with a ledger of its own in this folder."""

    def __init__(
        self,
        folder: Path,
        own: str = OWN,
        members: Iterable[str] | None = None,
        approvals: Approvals | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.node_log = NodeLog(None)
        self.ledger = Ledger(folder / "ledger", folder / "replies", most_bytes, time.time())
        keys = None if members is None else tuple(members)
        self.runs = SignedRuns(Signatures([signer_of(KEY)], own, keys), self.ledger, approvals, self.node_log)

    def question(self, message: Message, run: AnnouncedRun) -> Question:
        return self.runs.question(head_of(message, run.id), run, APP, objects(message), lambda: None)


class CheckedGrid(LocalGrid):
    """A Grid in this process whose nodes check each message, as it is and packed, before it is answered."""

    def __init__(
        self,
        app: ClientApp,
        folder: Path,
        prepared: Prepared,
        data: Iterable[Path] = (),
        *,
        describes: bool = False,
    ) -> None:
        config = prepared.config
        super().__init__(app, config.clients, data=[str(each) for each in data])
        forms = forms_of(prepared, WORD, describes=describes)
        count = messages_of(prepared, forms)
        self.terms = terms_of(forms, rounds=config.rounds, messages=count)
        self.run_signed = run_of(signed_text(self.terms))
        self.folder, self.nodes = folder, dict[int, Checking]()
        self.configs: list[Mapping[str, Any]] = []
        self.left: set[str] = set()  # the names of all that was in replies
        self.replies: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        listed = list(messages)
        for message in listed:
            node = message.metadata.dst_node_id
            if node not in self.nodes:
                self.nodes[node] = Checking(self.folder / str(node))
            content = message.content
            question = self.nodes[node].question(message, self.run_signed)
            self.configs.append(question.config)
            message.content = Packer().packed(content)
            assert question.terms.form_of(asked_in(message)) == question.form
            message.content = content
        return super().push_messages(listed)

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        assert reply.has_content(), reply.error.reason
        self.left |= keys_in(reply)
        self.replies.append(reply)
        return reply


def asked_in(message: Message) -> Any:
    from node.signed_runs.message_content import asked

    return asked(message.object_id, objects(message))
