"""The apps that a node runs, and whose signature it demands."""
