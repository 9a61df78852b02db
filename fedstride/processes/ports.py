"""The ports of a SuperLink and a SuperNode, where nobody has chosen others. `docker/compose.yaml` has its own."""

SUBMITTING = 8000
"""Of a SuperLink: for those who submit; with Flower from 1.40 on, also for nodes."""

NODES = 9092
"""Of a SuperLink with Flower 1.39: for nodes."""

SUPERNODE = 9094
"""Of `flower-supernode`, on its own machine."""

FLWR_RUN = 39091
"""Of the SuperLink that `flwr run` starts."""
