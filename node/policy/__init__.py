"""What a node allows: its own files, what a message may ask, and what a process may reach."""
