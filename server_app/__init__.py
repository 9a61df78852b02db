"""The ServerApp: executes one run, from its configuration to its folder of results."""
