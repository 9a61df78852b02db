"""Tasks (data sets), partitions of their examples over clients, and networks, each found by name."""
