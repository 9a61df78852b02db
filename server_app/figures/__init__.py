"""The picture that a run leaves, and how all pictures look."""
