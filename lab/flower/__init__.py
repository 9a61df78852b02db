"""Flower's own commands, called as programs: its simulation, its SuperLinks, its bundle.

A new Flower is met here.
"""
