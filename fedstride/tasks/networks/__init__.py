"""The networks: one module for each family. `docs/networks.md` describes them, `../registry.py` names them."""
