"""The loop of a node: a message comes, is logged, is answered by a process of its own, and the reply is logged.

Nothing of a message is executed or joined here, and no arrays or data are read. Of records with plain values, the
first ones are read, for the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedstride.error_kinds import ErrorKind, Fault, parsed
from fedstride.errors import RunError
from fedstride.flower.for_nodes.connection import (
    AnnouncedRun,
    AnswerError,
    Arrived,
    KeyRefusedError,
    Link,
    MessageHead,
    NotThereYetError,
    RunGoneError,
    TooLargeError,
    UnreachableError,
)
from fedstride.messages import wire
from fedstride.processes.polling import Growing

from .apps.installed_apps import Apps, InstalledApp
from .health import Health
from .log import log_lines as logged
from .log.log_lines import NodeLog, RefusedError
from .messages import replies
from .messages.message_parts import NO_ANSWER, Until, fetched, handed_over, persistent
from .messages.replies import Contents, FinishedReply, FormError, form_of
from .policy.file_access import Access
from .policy.permission import PolicyTerms
from .processes.frames import Answer, Request
from .processes.message_processes import DiedError, Processes
from .processes.output import ProcessOutputs
from .processes.site_rows import ReadError, RowsReader
from .signed_runs.message_checks import SignedRuns

IDLE = (0.03, 3.0)
"""Shortest and longest pause, in seconds, between two questions for a message."""

RUNS = 8
"""Runs that are remembered, with their apps."""

MOST_KEY, MOST_VALUE, MOST_OVERRIDES = 60, 200, 800
"""Characters of another key and its value, and of all, in the log."""

STATES = 2**30
"""Bytes of the states of clients that are remembered."""

_log = logging.getLogger("flwr").log


Owner = tuple[int | str, str, str]
"""Whose a state is: the run series that the SuperLink names, or the word of a signed run; the app; who signed."""


class PermittedRun(NamedTuple):
    """A run whose app may run here."""

    run: AnnouncedRun
    app: InstalledApp


class Node:
    """A connected node."""

    def __init__(
        self,
        link: Link,
        node_log: NodeLog,
        apps: Apps,
        access: Access,
        processes: Processes,
        outputs: ProcessOutputs,
        reader: RowsReader | None,
        terms: PolicyTerms,
        health: Health,
        config: dict[str, Any],
        sleep: Callable[[float], None] = time.sleep,
        signed: SignedRuns | None = None,
    ) -> None:
        self._link, self._node_log, self._apps, self._access = link, node_log, apps, access
        self._processes, self._outputs, self._health = processes, outputs, health
        self._reader, self._terms, self._config, self._sleep, self._signed = reader, terms, config, sleep, signed
        self._runs: OrderedDict[int, PermittedRun] = OrderedDict()
        self._states: OrderedDict[Owner, bytes] = OrderedDict()  # of the clients
        self._idle = Growing(*IDLE)
        self._is_failing = False

    def serve(self) -> None:
        """Answer messages for ever. Raises LinkError when the SuperLink does not accept this node any more."""
        self._health.waits()
        while True:
            self.step()

    def step(self) -> None:
        """Ask for a message once. Answer it, or wait a little."""
        self._processes.look()
        arrived = self._received()
        if arrived is None:
            self._sleep(self._idle.pause())
            return
        self._answer(arrived)
        self._health.waits()
        self._idle.restart()

    def _received(self) -> Arrived | None:
        """The next message. Of several errors in a row only the first is logged, and later that it is over."""
        try:
            arrived = self._link.receive()
        except RunGoneError:  # a run has ended while the SuperLink looked for its messages
            arrived = None
        except (UnreachableError, AnswerError, TooLargeError) as error:
            if not self._is_failing:
                _log(logging.WARNING, NO_ANSWER, error)
            self._is_failing = True
            return None
        if self._is_failing:
            _log(logging.INFO, "the SuperLink answers again")
        self._is_failing = False
        self._health.heard()
        return arrived

    # ---------------------------------------------------------------- one message

    def _answer(self, arrived: Arrived) -> None:
        """Answer a message, with an error if it cannot be processed. No error of a message ends the node."""
        head, until = arrived.head, Until.of(arrived.head)
        _log(logging.INFO, "Receiving: %s message (ID: %s) of run %s", head.kind, head.id, head.run)
        self._health.does(f"answers a {head.kind} message of run {head.run}")
        since = time.monotonic()
        try:
            reply = self._reply(arrived, until)
        except RefusedError as error:
            _log(logging.ERROR, "message %s is refused: %s", head.id, error)
            reply = replies.refusal(head, self._link.node_id, error.told, str(error))
        except (RunGoneError, UnreachableError, NotThereYetError) as error:
            _log(logging.WARNING, "message %s did not arrive whole: %s", head.id, error)
            self._node_log.refused(head.id, f"it did not arrive whole, or its run ended ({error})")
            return
        except (KeyRefusedError, RunError):  # of the node, not of the message
            raise
        except Exception as error:
            _log(logging.ERROR, "message %s cannot be processed", head.id, exc_info=error)
            reason = f"{type(error).__name__}: {error}"
            reply = replies.refusal(head, self._link.node_id, Fault(ErrorKind.NODE), reason)
        self._send(head, reply, time.monotonic() - since, until)

    def _reply(self, arrived: Arrived, until: Until) -> FinishedReply:
        """The reply of the message's process. Raises RefusedError and LinkError."""
        head = arrived.head
        if until.left() <= 0:
            raise RefusedError("the message's time was over when it arrived; check the clocks", ErrorKind.LATE)
        try:
            run, app = self._known(head, until)
            objects = fetched(self._link, head.run, arrived.objects, until)
            persistent(lambda: self._link.confirm(head.run, head.id), until)
        except (AnswerError, TooLargeError) as error:
            raise RefusedError(str(error)) from error
        try:
            contents = Contents.of_message(head.id, objects)
            self._node_log.asks(head.id, contents.shown())
            word = contents.run
            question = None
            if self._signed is None:
                self._terms.check(contents)
            else:
                question = self._signed.question(head, run, app, objects, lambda: self._terms.check(contents))
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if question is not None and question.kept is not None:
            return self._checked(head, question.kept, contents)
        folder = self._prepared(head.kind, contents, until)
        unpacked = self._apps.unpacked(app)
        signed_by = "" if question is None else question.signer.text
        place = self._access.of(app, unpacked, word, run.series, folder, signed_by)
        show = self._outputs.of(head.run, head.id, bool(app.signer))
        owner = (run.series, app.id, app.signer) if question is None else question.owner
        request = Request(self._settings(head, run, unpacked), objects, self._states.get(owner, b""))
        try:
            answer = self._processes.answer(request, until.left(), place, show)
            reply = self._checked(head, answer, contents)
        except (DiedError, FormError) as error:
            _log(logging.ERROR, "message %s has no reply: %s", head.id, error)
            return replies.error_reply(
                head, self._link.node_id, replies.CRASHED, Fault(ErrorKind.ENDED), str(error)
            )
        self._remember(owner, answer.state)
        if self._signed is not None and question is not None:
            self._signed.keep(question, answer)
        return reply

    def _settings(self, head: MessageHead, run: AnnouncedRun, unpacked: Path) -> dict[str, Any]:
        return {
            "message": head.id,
            "folder": str(unpacked),
            "run": head.run,
            "node": self._link.node_id,
            "series": run.series,
            "node_config": dict(self._config),
            "overrides": dict(run.overrides),
        }

    def _prepared(self, kind: str, contents: Contents, until: Until) -> Path | None:
        """A folder with the site's examples in the form that the message asks for, or with what it says of them.

        None if the app reads the data itself. Raises RefusedError.
        """
        if self._reader is None or (form := form_of(contents.settings)) is None:
            return None
        try:
            if contents.settings.get(wire.DESCRIPTION):
                described = self._reader.described(form, until.left())
                for line in described.lines:
                    _log(logging.WARNING, "the data: %s", line)
                return described.folder
            rows = self._reader.of(form, until.left())
        except (ReadError, DiedError) as error:
            raise RefusedError(f"the data cannot be read: {error}", ErrorKind.DATA) from error
        self._terms.check_rows(kind, contents.settings, rows.examples, rows.held)
        return rows.folder

    def _checked(self, head: MessageHead, answer: Answer, contents: Contents) -> FinishedReply:
        """The reply, if all of it may leave this node. Raises RefusedError and FormError."""
        if answer.error is not None:
            keys = {key for record in contents.records.values() for key in record}
            told = parsed(answer.error[1], keys) or Fault(ErrorKind.APP)
            return replies.error_reply(head, self._link.node_id, wire.FAILED, told, answer.error[1])
        try:
            said = Contents.of_reply(answer.root, answer.objects)
        except ValueError:
            raise FormError("its content is not a RecordDict") from None
        self._terms.check_reply(said)
        reply = replies.reply_of(head, self._link.node_id, answer.root, answer.objects)
        return reply._replace(examples=said.examples)

    def _known(self, head: MessageHead, until: Until) -> PermittedRun:
        """The message's run and its app, which are asked for once. The message is logged before it is fetched."""
        known = self._runs.pop(head.run, None)
        run = known.run if known else persistent(lambda: self._link.run(head.run), until)
        try:
            if known is None:
                bundle = persistent(lambda: self._link.bundle(run.app_hash, run.id), until)
                known = PermittedRun(run, self._apps.of(run, bundle))
        finally:
            self._node_log.arrived(_logged(head, run, known))
        self._runs[head.run] = known
        while len(self._runs) > RUNS:
            _, old = self._runs.popitem(last=False)
            if all(old.app.hash != other.app.hash for other in self._runs.values()):
                self._apps.forget(old.app)
        return known

    def _remember(self, owner: Owner, state: bytes) -> None:
        """Keep the state that an app left for its next message of this run series."""
        self._states.pop(owner, None)
        if state:
            self._states[owner] = state
        while sum(map(len, self._states.values())) > STATES:
            forgotten, _ = self._states.popitem(last=False)
            _log(
                logging.WARNING, "the state of run series %s is forgotten: the states are too large", forgotten[0]
            )

    # ---------------------------------------------------------------- its reply

    def _send(self, head: MessageHead, reply: FinishedReply, seconds: float, until: Until) -> None:
        """Log the reply, then send it. If it cannot be logged, an error is sent instead."""
        try:
            self._node_log.leaves(_leaving(head, reply))
        except RefusedError as error:
            _log(logging.ERROR, "the reply to message %s is held back: %s", head.id, error)
            reply = replies.refusal(head, self._link.node_id, error.told, str(error))
        try:
            announced = persistent(lambda: self._link.send(reply.message, reply.tree, seconds), until)
            missing = {
                object_id: reply.contents[object_id]
                for object_id in announced.missing
                if object_id in reply.contents
            }
            handed_over(self._link, head.run, announced.session, missing, until)
        except KeyRefusedError:
            raise
        except Exception as error:  # whatever it is, the next message is another one
            _log(logging.WARNING, "the reply to message %s could not be sent: %s", head.id, error)
            return
        _log(logging.INFO, "Sent the reply to message %s", head.id)


def _logged(head: MessageHead, run: AnnouncedRun, known: PermittedRun | None) -> logged.ArrivedMessage:
    return logged.ArrivedMessage(
        id=head.id,
        run=head.run,
        task=head.kind,
        app=f"{known.app.id} {known.app.version}" if known else "",
        app_hash=run.app_hash,
        overrides=_written(run.overrides),
    )


def _written(overrides: Mapping[str, Any]) -> str:
    """The overrides of a run as JSON, in which no value looks like another one; long ones are cut.

    If anything is cut, the digest of the whole follows.
    """
    whole = json.dumps(dict(overrides), sort_keys=True)
    cut = {
        key[:MOST_KEY]: value[:MOST_VALUE] if isinstance(value, str) and key != wire.OVERRIDES else value
        for key, value in overrides.items()
    }
    text = json.dumps(cut, sort_keys=True)
    if text == whole and len(text) <= MOST_OVERRIDES:
        return text
    return f"{text[:MOST_OVERRIDES]} ... (cut; SHA-256 of the whole: {hashlib.sha256(whole.encode()).hexdigest()})"


def _leaving(head: MessageHead, reply: FinishedReply) -> logged.LoggedReply:
    return logged.LoggedReply(
        to=head.id,
        bytes=reply.size,
        examples=reply.examples,
        error=reply.error,
        refused=reply.refused,
    )
