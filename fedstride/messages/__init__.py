"""What is in messages between server and clients: names, limits, signatures."""
