"""Names of the records and keys that travel between server and client, in one place.

Knows no more than names; what the values mean is said beside each.
"""

from __future__ import annotations

from typing import Final

# Records of a message
ARRAYS: Final = "arrays"  # ArrayRecord: the model, down and up
CONFIG: Final = "config"  # ConfigRecord: what the client needs, as plain values
METRICS: Final = "metrics"  # MetricRecord: what the client reports

# Keys of the ConfigRecord
SERVER_ROUND: Final = "server-round"  # int, from 1 (Flower's own name)
SEED: Final = "seed"  # int, the run's seed
NUM_CLIENTS: Final = "clients"  # int, clients of the experiment
RUN: Final = "run"  # str, 16 hexadecimal digits: names the run, below which a client keeps its state
ACCEPTED: Final = "accepted-round"  # int: the last round whose reply of this client was accepted; 0 = none
OLDEST: Final = "oldest-round"  # int: no older state of this client can be named any more
PARTS: Final = "parts"  # list[str]: files with parts of the user's own, in the app's bundle
HALVES: Final = "halves"  # list[str]: what the server's rules need of a client beside training, by name

# Keys of the ConfigRecord and of a node's own node-config: how a client protects its update
CLIPPING_NORM: Final = "clipping-norm"  # float > 0: the longest update that leaves
NOISE_MULTIPLIER: Final = "noise-multiplier"  # float >= 0: noise of so many times the clipping norm, by the client
NOISE_SEED: Final = "noise-seed"  # int: draws that noise again, for experiments; otherwise nobody can

# What a half of a server rule is told, and what it hands back: plain values as keys of the ConfigRecord, arrays
# as ArrayRecords of their own beside the model, both called `HALF.NAME` (as `scaffold.control`)


def of_half(half: str, name: str) -> str:
    """The key of a plain value, or the name of an ArrayRecord, that belongs to a half."""
    return f"{half}.{name}"


def done(half: str) -> str:
    """The metric (1) by which a reply says that this half was really done."""
    return f"done/{half}"


# Keys of the MetricRecord
NUM_EXAMPLES: Final = "num-examples"  # int > 0 (Flower's own name)
CLIENT_ID: Final = "client-id"  # int: the partition id, where the client has one
TRAIN_LOSS: Final = "train/loss"  # mean loss of the examples trained on, as they were met
TRAIN_ACCURACY: Final = "train/accuracy"  # the same for the share of right answers
TRAIN_STEPS: Final = "train/steps"  # optimiser steps
TRAIN_SECONDS: Final = "seconds/train"  # wall seconds of local training
STATE_LOST: Final = "state/lost"  # 1 where the state that the server named was not there: it began anew
STATE_HELD: Final = "state/held"  # 1 where the client's disk did not take its state, which it holds in memory
CLIPPED: Final = "privacy/clipped"  # 1.0 where the update was longer than the clipping norm, else 0.0
EVAL_LOSS: Final = "local/loss"  # federated evaluation
EVAL_ACCURACY: Final = "local/accuracy"

# Facts of the roll call (ConfigRecord of a QUERY's reply)
ROLL_CALL: Final = "roll-call"

# What the ServerApp logs, and whoever follows its log reads
FOLDER_LINE: Final = "the run's folder is %s"
FINAL_LINE: Final = "final test accuracy %.2f %%, folder %s"
