"""A client's examples, and what it says of them."""
