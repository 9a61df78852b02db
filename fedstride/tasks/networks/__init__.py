"""The networks: one module for each family. `docs/networks.md` describes them, `../parts.py` has their names."""
