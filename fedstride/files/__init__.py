"""Files that are written whole, private, or written by anyone."""
