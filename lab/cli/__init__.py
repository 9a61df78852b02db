"""The command `fedstride`: a module for each of its subcommands, or for a few, and their shared options."""
