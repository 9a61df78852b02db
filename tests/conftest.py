"""Profiles for Hypothesis: `--hypothesis-profile=long` looks ten times as far at what clients may send."""

from hypothesis import settings

settings.register_profile("long", max_examples=10_000, deadline=None, database=None)
