"""Repeats a paper's table or figure: its cells in the order that decides most, within a budget of time."""
