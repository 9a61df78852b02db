"""Who has signed an app: a key that this node trusts, or the reason why it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature

from fedstride.error_kinds import ErrorKind
from fedstride.errors import ConfigError
from fedstride.flower.for_nodes.connection import Bundle
from fedstride.messages.app_signatures import decode, load, signed_bytes

from ..log.log_lines import RefusedError
from .trusted_keys import public_key


def signer_of(bundle: Bundle, digest: str, text: Any, trusted: Mapping[str, str]) -> str:
    """The id of the trusted key that has signed the app, for this run or for Flower's app store.

    Raises RefusedError if there is none.
    """
    app = f"the app (SHA-256 {digest[:12]}...)"
    if text:
        try:
            signature = load(str(text))
        except ConfigError as error:
            raise _untrusted(f"{app} has no valid signature: {error}") from None
        if signature.key not in trusted:
            raise _untrusted(f"{app} is signed by {signature.key}, a key that this node does not trust")
        if not _is_signed(trusted[signature.key], digest, signature.signed_at, signature.signature):
            raise _untrusted(f"{app} is not the one that was signed by {signature.key}: it was altered")
        return signature.key
    if not bundle.signatures.get("valid_license"):
        raise _untrusted(f"{app} is not signed, and this node runs signed apps only; see fedstride sign")
    for key in sorted(trusted.keys() & bundle.signatures.keys()):
        try:
            entry = json.loads(bundle.signatures[key])
            if _is_signed(trusted[key], digest, entry["signed_at"], entry["signature"]):
                return key
        except (AttributeError, ValueError, TypeError, KeyError, RecursionError):
            continue
    raise _untrusted(f"{app} is signed in Flower's app store by no key that this node trusts")


def _untrusted(reason: str) -> RefusedError:
    return RefusedError(reason, ErrorKind.UNTRUSTED)


def _is_signed(key: str, digest: str, signed_at: int, signature: str) -> bool:
    public = public_key(key)
    if public is None:
        return False
    try:
        public.verify(decode(signature), signed_bytes(bytes.fromhex(digest), signed_at))
    except (InvalidSignature, ValueError, OverflowError):
        return False
    return True
