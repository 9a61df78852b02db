"""Composes the checked configuration of a run from a user's overrides, in Hydra's grammar."""
