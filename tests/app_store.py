"""A signature in the form in which Flower's SuperLink hands over those of its app store."""

from __future__ import annotations

import json

from fedstride.messages.app_signatures import Signature


def for_flower(signature: Signature) -> dict[str, str]:
    """By the id of the key, as Flower's own node verifies it."""
    return {signature.key: json.dumps({"signed_at": signature.signed_at, "signature": signature.signature})}
