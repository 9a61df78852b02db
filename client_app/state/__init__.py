"""What a client keeps between rounds, on its own disk."""
