"""Files of a node's own as examples: one module for each kind of file."""
