"""Local SGD: the learning rate eta for every step and every neuron."""

from __future__ import annotations

from ..training.method import Method


class SGD(Method):
    """Changes nothing."""
