"""The command `fedstride`: one module for each of its subcommands, and their shared options."""
