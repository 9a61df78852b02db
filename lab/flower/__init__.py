"""Runs in Flower: the simulation, SuperLinks over their connection, and bundles.

A new Flower version that changes its command line needs changes only here.
"""
