"""Files that a deployment needs before it starts: certificates, node keys, and data files for nodes."""
