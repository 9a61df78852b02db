"""The command `fedstride`, one module a group."""
