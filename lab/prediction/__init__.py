"""A run's model in use: it is loaded with its network and its preparation, and predicts."""
