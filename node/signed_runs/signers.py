"""Whose runs a node answers: the keys that its policy names, and whether one of them has signed a run for it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedstride.error_kinds import ErrorKind
from fedstride.errors import ConfigError
from fedstride.flower.for_nodes.connection import AnnouncedRun
from fedstride.messages import signed_runs
from fedstride.messages.app_signatures import decode, key_id
from fedstride.messages.key_fingerprints import fingerprints

from ..apps.installed_apps import InstalledApp
from ..apps.trusted_keys import public_key
from ..log.log_lines import RefusedError
from ..policy.policy_file import Policy, check_owner


class AllowedSigner(NamedTuple):
    """Somebody whose runs are answered."""

    name: str  # in the policy
    id: str  # of the key, see `app_signatures.key_id`
    text: str  # the key in the form of OpenSSH
    key: Ed25519PublicKey


def signers_of(policy: Policy) -> list[AllowedSigner]:
    """The keys that a policy names. Raises ConfigError for a file that has none."""
    return [_signer(name, path) for name, path in policy.signers.items()]


def members_of(policy: Policy) -> tuple[str, ...] | None:
    """The fingerprints of the keys of a study's nodes; None if the policy names none. Raises ConfigError."""
    if policy.members is None:
        return None
    check_owner(policy.members, "the members file")
    return fingerprints(policy.members, "the members file")


class Signatures:
    """Which signed runs are for this node.

    `fingerprint`: that of this node's key; empty if it has none that outlasts it. `members`: see `members_of`.
    """

    def __init__(
        self, signers: Collection[AllowedSigner], fingerprint: str, members: Collection[str] | None
    ) -> None:
        self._signers = {signer.id: signer for signer in signers}
        self._own, self._members = fingerprint, members

    def of(
        self, run: AnnouncedRun, app: InstalledApp, now: float
    ) -> tuple[AllowedSigner, signed_runs.SignedTerms]:
        """Who has signed this run, and what. Raises RefusedError if it may not be answered here, now."""
        text = run.overrides.get(signed_runs.RUN_CONFIG)
        if not text:
            raise RefusedError("it has no signature", ErrorKind.UNSIGNED)
        try:
            signed = signed_runs.load(text)
        except ConfigError as error:
            raise RefusedError(str(error), ErrorKind.SIGNATURE) from None
        signer = self._verified(signed)
        others = {key: value for key, value in run.overrides.items() if key != signed_runs.RUN_CONFIG}
        if signed.terms.app != app.hash:
            raise RefusedError(
                f"it is signed for the app {signed.terms.app}, and this is {app.hash}", ErrorKind.OTHER_RUN
            )
        if others != signed.terms.run_config:
            raise RefusedError("its configuration is not the one that was signed", ErrorKind.OTHER_RUN)
        if fault := signed.terms.fault(now):
            raise RefusedError(fault, ErrorKind.OTHER_RUN)
        self._check_nodes(signed.terms.nodes)
        return signer, signed

    def _verified(self, signed: signed_runs.SignedTerms) -> AllowedSigner:
        signer = self._signers.get(signed.key)
        if signer is None:
            raise RefusedError(
                f"it is signed by {signed.key}, which the policy does not name", ErrorKind.SIGNATURE
            )
        try:
            signer.key.verify(decode(signed.signature), signed_runs.to_sign(signed.body))
        except (InvalidSignature, ValueError):
            reason = f"it is not what {signer.name!r} has signed: it was altered"
            raise RefusedError(reason, ErrorKind.SIGNATURE) from None
        return signer

    def _check_nodes(self, nodes: Collection[str]) -> None:
        if nodes and self._own not in nodes:
            reason = f"it names {len(nodes)} nodes, and not this one ({self._own or 'no key'})"
            raise RefusedError(reason, ErrorKind.OTHER_NODES)
        if self._members is None:
            return
        others = sorted(set(nodes) - set(self._members))
        if others or not nodes:
            reason = f"{others[0]} is no member" if others else "it names no nodes, and the policy has members"
            raise RefusedError(reason, ErrorKind.OTHER_NODES)


def _signer(name: str, path: Path) -> AllowedSigner:
    what = f"the key of the signer {name!r}"
    check_owner(path, what)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"{what}, {path}, cannot be read: {reason}") from error
    key = public_key(text)
    if key is None:
        raise ConfigError(
            f"{what}, {path}, is no Ed25519 key in the form of OpenSSH; fedstride sign key writes one"
        )
    return AllowedSigner(name, key_id(key.public_bytes(Encoding.Raw, PublicFormat.Raw)), text, key)
