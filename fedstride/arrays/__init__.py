"""Models as named arrays: their dtypes, values that are not finite, devices, and packing for a message."""
