"""Runs from Python, in a program or a notebook: the same keys, checks, folders and bits as the command."""
