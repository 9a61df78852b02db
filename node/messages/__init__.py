"""Messages and replies as bytes of objects."""
