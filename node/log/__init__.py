"""A node's log: its lines, its signatures, and what it proves."""
