"""Reads a node's own examples, for any task, from a file or a folder on this machine."""

from .loading import NodeData, load

__all__ = ["NodeData", "load"]
