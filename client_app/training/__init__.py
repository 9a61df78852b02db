"""Local training: the interface of methods, and the loop that executes what they plan."""
