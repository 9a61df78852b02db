"""What runs have left, read and compared: folders, which runs are alike, tables, and the forms tables come in."""
