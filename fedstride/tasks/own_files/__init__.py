"""Reads a node's own examples, for any task, from a file or a folder on this machine."""

from .description import description, of_arrays
from .loading import NodeData, load

__all__ = ["NodeData", "description", "load", "of_arrays"]
