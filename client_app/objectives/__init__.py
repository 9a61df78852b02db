"""What local training minimises, one file an objective."""
