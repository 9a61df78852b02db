"""The desk: what runs here, what runs in Flower, what runs have left, and the command `fedstride`."""
