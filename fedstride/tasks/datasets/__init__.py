"""Readers of data sets in the layouts in which they are published."""
