"""What a client measures beside training."""
