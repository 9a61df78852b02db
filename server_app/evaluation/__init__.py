"""What is measured beside training, at the server and at the clients."""
