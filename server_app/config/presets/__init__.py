"""The papers' experiments as configurations of a run."""
