"""Runs in Flower: calls Flower's command-line programs for the simulation, SuperLinks and bundles.

A new Flower version that changes its command line needs changes only here.
"""
