"""The plain objective: the mean loss of the task over the mini-batch, without an additional term."""

from __future__ import annotations

from ..training.method import Method


class Plain(Method):
    """Changes nothing."""
