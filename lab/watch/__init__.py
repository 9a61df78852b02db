"""Follows one run in the terminal: what is known of it, where that is read, and how it is shown."""
