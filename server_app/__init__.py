"""The ServerApp: one run, from its configuration to the folder it leaves."""
