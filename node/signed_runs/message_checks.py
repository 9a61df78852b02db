"""The messages of signed runs: whether each is one of those that were signed, and was not asked before.

All of it is done in the node's process, before data are read and before the app has a process. What does not fit
is refused with one of few words; the reason is for the node's own log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedstride.error_kinds import ErrorKind
from fedstride.flower.for_nodes.connection import AnnouncedRun, MessageHead
from fedstride.messages import wire
from fedstride.messages.key_fingerprints import fingerprint
from fedstride.messages.signed_runs import UnlikeError

from .. import own_files
from ..apps.installed_apps import InstalledApp
from ..log.log_lines import NodeLog, RefusedError
from ..policy.policy_file import ASK
from ..processes.frames import Answer
from ..settings import NodeSettings
from .approvals import ApprovalBasis, Approvals
from .ledger import Ledger, Question, ReplayError
from .message_content import asked
from .signers import Signatures, members_of, signers_of

_log = logging.getLogger("flwr").log


class SignedRuns:
    """Checks messages against what was signed. `approvals`: None if nobody has to approve a run."""

    def __init__(
        self,
        signatures: Signatures,
        ledger: Ledger,
        approvals: Approvals | None,
        node_log: NodeLog,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._signatures, self._ledger, self._approvals = signatures, ledger, approvals
        self._node_log, self._now = node_log, now

    def question(
        self,
        head: MessageHead,
        run: AnnouncedRun,
        app: InstalledApp,
        contents: Mapping[str, bytes],
        allow: Callable[[], None],
    ) -> Question:
        """What a message asks, with the answer that it got before. A first question is written down.

        `allow`: raises RefusedError for what the policy does not allow. It is called only for a message that was
        signed, so that others learn nothing of the policy, and before anything is written, so that the message can
        come again. Raises RefusedError for a message that was not signed, and while the run is still to be
        approved.
        """
        try:
            return self._question(head, run, app, contents, allow)
        except (UnlikeError, ValueError) as error:
            raise RefusedError(str(error), ErrorKind.NOT_SIGNED) from None
        except ReplayError as error:
            raise RefusedError(str(error), ErrorKind.REPLAY) from None
        except OSError as error:
            raise RefusedError(f"{error.filename}: {error.strerror or error}", ErrorKind.STORAGE) from None

    def _question(
        self,
        head: MessageHead,
        run: AnnouncedRun,
        app: InstalledApp,
        contents: Mapping[str, bytes],
        allow: Callable[[], None],
    ) -> Question:
        signer, signed = self._signatures.of(run, app, self._now())
        terms = signed.terms
        said = asked(head.id, contents)
        if said.kind != head.kind:
            raise UnlikeError(f"it is announced as {head.kind!r}, and is {said.kind!r}")
        form = terms.form_of(said)
        allow()
        self._ledger.begin(terms, signer.id, run.id)
        if self._approvals is not None and (waits := self._approvals.waits(signer, signed)):
            raise RefusedError(waits, ErrorKind.APPROVAL)
        self._node_log.asks(head.id, {"signer": signer.name})
        question = Question(signer, app.id, terms, form, int(said.config.get(wire.SERVER_ROUND, 0)), said.config)
        if self._ledger.ask(question):
            return question
        kept = self._ledger.kept(question)
        if kept is None:
            raise ReplayError(f"{form.name} of round {question.round} was answered, and the reply is not kept")
        _log(logging.WARNING, "message %s was answered before; the same reply is sent again", head.id)
        return question._replace(kept=kept)

    def keep(self, question: Question, answer: Answer) -> None:
        """Keep the answer, in case the message comes again."""
        try:
            self._ledger.keep(question, answer)
        except OSError as error:
            _log(logging.WARNING, "a reply cannot be kept (%s), so it is sent once", error.strerror or error)


def signed_runs(settings: NodeSettings, node_log: NodeLog) -> SignedRuns | None:
    """What checks the runs of this node; None if its policy names no signer, so that every run is answered.

    Raises ConfigError for files of keys, and for a ledger, that cannot be used.
    """
    policy, home, now = settings.policy, settings.home, time.time
    signers = signers_of(policy)
    if not signers:
        return None
    site = ApprovalBasis(settings.terms, () if settings.site is None else (settings.site.path,))
    return SignedRuns(
        Signatures(signers, _own(settings.key), members_of(policy)),
        Ledger(home / own_files.LEDGER, home / own_files.REPLIES, policy.limits.disk, now()),
        Approvals(home / own_files.APPROVALS, site) if policy.approve == ASK else None,
        node_log,
        now,
    )


def _own(key: EllipticCurvePrivateKey | None) -> str:
    """The fingerprint of this node's key; empty if it makes one for this process alone."""
    if key is None:
        return ""
    return fingerprint(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
