"""The desk: an engine in this process, and the command `fedstride`."""
