"""What the operator of the server runs: Flower's SuperLink behind a guard (`fedstride superlink`)."""
