"""A task's network: built by name, its arrays, and how it computes."""
