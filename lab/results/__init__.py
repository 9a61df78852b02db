"""Reads and compares run folders: which runs belong together, tables of results, and their output formats."""
