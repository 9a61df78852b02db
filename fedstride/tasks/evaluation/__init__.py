"""Figures of a model on examples, and the examples on which they are measured."""
