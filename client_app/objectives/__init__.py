"""The objectives, which local training minimises, one module for each."""
