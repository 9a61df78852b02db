"""The work as a benchmark of FLGo, which imports it by its name."""
