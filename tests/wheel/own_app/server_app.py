"""Her server: fedstride's strategies alone, and around one of her own."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from strategies.careful import Careful

from fedstride import FedLWS, FedNNNN, NormAnalysis, TwoDLRD

ROUNDS = 30
SETTLES = {
    "hers": Careful(),
    "FedLWS around hers": FedLWS(strategy=Careful(), beta=0.01),
    "FedNNNN": FedNNNN(beta=0.5, gamma=0.5),
    "all": NormAnalysis(TwoDLRD(FedLWS(FedNNNN(beta=0.5, gamma=0.5), beta=0.01), local_steps=10)),
}

results: dict[str, np.ndarray] = {}
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One federation after the other, from the same model."""
    for name, strategy in SETTLES.items():
        start = ArrayRecord({"layer.weight": Array(np.array([5.0, -5.0], dtype=np.float32))})
        done = strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS)
        results[name] = done.arrays["layer.weight"].numpy()
