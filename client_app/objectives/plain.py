"""The loss as it is: mean cross-entropy of the mini-batch."""

from __future__ import annotations

from ..method import Method


class Plain(Method):
    """Adds nothing."""
