"""What is found out, read and checked before the first round."""
