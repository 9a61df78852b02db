"""Names of the records and keys that travel between server and client, in one place.

Knows no more than names; what the values mean is said beside each.
"""

from __future__ import annotations

from typing import Final

# Records of a message
ARRAYS: Final = "arrays"  # ArrayRecord: the model, down and up
CONFIG: Final = "config"  # ConfigRecord: what the client needs, as plain values
METRICS: Final = "metrics"  # MetricRecord: what the client reports

STATE: Final = "client-state"  # ConfigRecord: what a client keeps from round to round, down and up

# Keys of the ConfigRecord
SERVER_ROUND: Final = "server-round"  # int, from 1 (Flower's own name)
SEED: Final = "seed"  # int, the run's seed
NUM_CLIENTS: Final = "clients"  # int, clients of the experiment
RATE_FACTORS: Final = "rate-factors"  # list[float]: the round is len() mini-batches, step j at lr * factor j

# Keys of the ConfigRecord and of a node's own node-config: how a client protects its update
CLIPPING_NORM: Final = "clipping-norm"  # float > 0: the longest update that leaves
NOISE_MULTIPLIER: Final = "noise-multiplier"  # float >= 0: noise of so many times the clipping norm, by the client
NOISE_SEED: Final = "noise-seed"  # int: draws that noise again, for experiments; otherwise nobody can

# Keys of the MetricRecord
NUM_EXAMPLES: Final = "num-examples"  # int > 0 (Flower's own name)
CLIENT_ID: Final = "client-id"  # int: the partition id, where the client has one
TRAIN_LOSS: Final = "train/loss"  # mean loss of the examples trained on, as they were met
TRAIN_ACCURACY: Final = "train/accuracy"  # the same for the share of right answers
TRAIN_STEPS: Final = "train/steps"  # optimiser steps
TRAIN_SECONDS: Final = "seconds/train"  # wall seconds of local training
CLIPPED: Final = "privacy/clipped"  # 1.0 where the update was longer than the clipping norm, else 0.0
EVAL_LOSS: Final = "local/loss"  # federated evaluation
EVAL_ACCURACY: Final = "local/accuracy"

# Facts of the roll call (ConfigRecord of a QUERY's reply)
ROLL_CALL: Final = "roll-call"

# What the ServerApp logs, and whoever follows its log reads
FOLDER_LINE: Final = "the run's folder is %s"
FINAL_LINE: Final = "final test accuracy %.2f %%, folder %s"
