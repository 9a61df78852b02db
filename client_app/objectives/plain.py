"""The plain objective: mean cross-entropy of the mini-batch, without an additional term."""

from __future__ import annotations

from ..training.method import Method


class Plain(Method):
    """Changes nothing."""
