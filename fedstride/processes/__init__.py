"""How processes start, wait, end, and write to a terminal."""
