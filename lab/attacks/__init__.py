"""Attacks by clients, for runs on this machine: what they compute, and a Grid in which they happen."""
