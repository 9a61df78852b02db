"""Signed runs: who may start one, which messages belong to it, and the approval of a person."""
