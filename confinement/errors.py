"""The one error of this package."""

from __future__ import annotations


class ConfinementError(Exception):
    """A step of the confinement failed. The text is one line. The process is partly confined, and must end."""
