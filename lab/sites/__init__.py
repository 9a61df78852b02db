"""What sites said of their data before a run: compared, as a table, and as a page."""
