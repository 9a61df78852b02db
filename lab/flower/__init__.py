"""Runs in Flower: the simulation by Flower's command-line programs, SuperLinks over their connection, and bundles.

A new Flower version that changes its command line needs changes only here.
"""
