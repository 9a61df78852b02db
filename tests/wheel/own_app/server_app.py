"""The app's server: strategies of fedstride alone, and around a strategy of the app."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from strategies.careful import Careful

from fedstride import FedLWS, FedNNNN, NormAnalysis, TwoDLRD

ROUNDS = 30
STRATEGIES = {
    "own": Careful(),
    "FedLWS around own": FedLWS(strategy=Careful(), beta=0.01),
    "FedNNNN": FedNNNN(beta=0.5, gamma=0.5),
    "all": NormAnalysis(TwoDLRD(FedLWS(FedNNNN(beta=0.5, gamma=0.5), beta=0.01), local_steps=10)),
}

results: dict[str, np.ndarray] = {}
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one federation for each strategy, from the same model."""
    for name, strategy in STRATEGIES.items():
        start = ArrayRecord({"layer.weight": Array(np.array([5.0, -5.0], dtype=np.float32))})
        done = strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS)
        results[name] = done.arrays["layer.weight"].numpy()
