"""From what a user asks for to a checked configuration. Knows Hydra and the parts; does not know what is built."""
