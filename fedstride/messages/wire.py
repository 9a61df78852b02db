"""Names of the records and keys in messages between server and client, with the meaning of their values."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES: Final = 4 * 2**30
"""Most bytes of a message that a node accepts, and of its reply."""

# Records of a message
ARRAYS: Final = "arrays"  # ArrayRecord: the model, down and up
CONFIG: Final = "config"  # ConfigRecord: the client's configuration, as plain values
# An ArrayRecord `FROZEN` has the arrays that are not trained, down only, for a client that does not have them.
METRICS: Final = "metrics"  # MetricRecord: the metrics that the client reports
AGAINST: Final = "against"  # ArrayRecord: a second model to measure, down only; begins its figures and statistics

UNUSABLE: Final = 900  # code of the error in place of a reply that the server does not use; Flower's are below 9

FAILED: Final = 2  # Flower's code of an error that a ClientApp raises

REFUSED: Final = (
    901  # code of the error with which a node refuses a message: no log, or no trusted signature of the app
)

WAITS: Final = 902  # code of the error of a node where a person has still to approve the run

# Keys of the ConfigRecord
SERVER_ROUND: Final = "server-round"  # int, from 1 (Flower's own name)
SEED: Final = "seed"  # int, the run's seed
NUM_CLIENTS: Final = "clients"  # int, number of clients of the run
RUN: Final = "run"  # str, 16 hexadecimal digits: the run's id, which is also the folder of a client's states
ACCEPTED: Final = "accepted-round"  # int: the last round in which this client's reply was accepted; 0: none
OLDEST: Final = "oldest-round"  # int: the client may delete its states of earlier rounds
TRAIN: Final = "train-names"  # list[str]: patterns of the names that are trained and sent; without it, all
FROZEN: Final = "frozen"  # str: digest of the other arrays; in a roll-call reply, of those that the client has
STRATEGY: Final = "strategy-name"  # str: the run's strategy, as in tables; for the log of a node
PRIVACY: Final = "privacy-name"  # str: the run's privacy; for the log of a node
PARTS: Final = "parts"  # list[str]: names of files with user-defined parts, in the app's bundle
HALVES: Final = "halves"  # list[str]: names of the client halves that the server's rules need

CHANGED_DATA: Final = "changed-data"  # bool: a client goes on whose own data are not those with which it began

# Keys of the ConfigRecord and of a node's node-config: how a client protects its update
CLIPPING_NORM: Final = "clipping-norm"  # float > 0: maximum norm of an update
NOISE_MULTIPLIER: Final = "noise-multiplier"  # float >= 0: stddev of the client's noise / clipping norm
NOISE_SEED: Final = "noise-seed"  # int: makes the noise repeatable, for experiments; without it, it is secret

# Values for a client half and values that it returns: plain values are keys of the ConfigRecord, arrays are
# separate ArrayRecords next to the model. Both are named `HALF.NAME`, as in `scaffold.control`.


def of_half(half: str, name: str) -> str:
    """The key of a plain value, or the name of an ArrayRecord, that belongs to a client half."""
    return f"{half}.{name}"


def of_second(name: str) -> str:
    """The key of a statistic of the second model's task, as in `against.mean`."""
    return f"{AGAINST}.{name}"


def done(half: str) -> str:
    """The metric with which a client reports that it executed this half (value 1)."""
    return f"done/{half}"


HOLDOUT: Final = "holdout"  # share of each client's examples that training never sees
FOLD: Final = "fold"  # which interval of that share; absent: the first
SPLIT_SEED: Final = "split-seed"  # int: draws them, where a site has no secret of its own for that
CLASS_MOMENTS: Final = "class-moments"  # bool: asks for moments of each class; names the reply's ArrayRecord
DESCRIPTION: Final = "description"  # bool: asks what a site's data are like; begins the keys of the reply
MEMBERSHIP: Final = "membership"  # int 1: asks for a membership test; begins the keys of the answer
MOMENTS: Final = "moments"  # bool: the roll call asks for moments of the examples; begins the reply's keys

# Keys of the MetricRecord
NUM_EXAMPLES: Final = "num-examples"  # int > 0 (Flower's own name)
CLIENT_ID: Final = "client-id"  # int: the partition id, or the node id of a client that has no partition id
TRAIN_LOSS: Final = "train/loss"  # mean loss of the training examples, each before the step that uses it
TRAIN_ACCURACY: Final = "train/accuracy"  # share of correct predictions, measured in the same way
TRAIN_STEPS: Final = "train/steps"  # number of optimiser steps
TRAIN_SECONDS: Final = "seconds/train"  # wall seconds of local training
STATE_LOST: Final = "state/lost"  # 1 if the state that the server named was missing; the client used an empty one
STATE_HELD: Final = "state/held"  # 1 if the client could not write its state to disk and keeps it in memory
RELEASES: Final = "privacy/releases"  # how many different releases a client with its own noise has made in the run
CLIPPED: Final = "privacy/clipped"  # 1.0 if the update was longer than the clipping norm, else 0.0
FROZEN_HELD: Final = "frozen/held"  # 1 if the client could not write the frozen arrays to its cache
WITHOUT_DATA: Final = frozenset(
    {CLIENT_ID, STATE_LOST, STATE_HELD, FROZEN_HELD, RELEASES}
)  # metrics that say nothing of data
TEXTS_OF_ROWS: Final = ("status", "reason", "note")  # texts in a client's row of the records: no metric's name
CLIENTS_OF_ROWS: Final = ("client", "node")  # a client's number or name there, or a list of them: no metric's name
MEASURED: Final = "local/num-examples"  # of a client, in the records: the examples behind its `local/` figures
DIFFERENCE: Final = (
    "difference"  # before `/` and a figure: the first model's less the second's, see differences.py
)
LOCAL: Final = "local"  # before `/` and a figure of federated evaluation: loss, accuracy, or a list of rates

MEMBERSHIP_AREA: Final = "membership/auroc"  # list: the AUROC of the test, and its interval if it has one
MEMBERSHIP_ROWS: Final = "membership/rows"  # list of two: the training rows, and the others, that were compared
NOT_ALLOWED: Final = "membership/not-allowed"  # 1: no test, the node does not allow it
FEW_ROWS: Final = "membership/few-rows"  # 1: no test, the node has too few rows of a kind

# Keys of a node's node-config. `MEMBERSHIP` is one too: bool, the node allows the test
DESK: Final = "desk"  # bool: server, node and data are those of one user; set by engines, not by people
REPEATS: Final = "repeats"  # bool: a run beside this one says the same of the client's data; set by engines

# Key of a node's node-config and of its reply to the roll call
PACKED: Final = "packed"  # "yes" in the reply to the roll call: this client understands a packed model
ONE_LEFT: Final = "one-left"  # "yes" in the reply to the roll call: a mini-batch would have one example, which the
# network cannot be trained with
FEW_HELD: Final = "few-held"  # "yes" in the reply to the roll call: fewer examples are held out than the site says
# something of, so the client trains and cannot measure
CODE: Final = "client-code"  # str in the reply to the roll call: digest of the client's code, see `code_digest.py`
NAME: Final = "name"  # str: the node's name, of the form that `node_names.py` describes

# ConfigRecord of the reply to a QUERY (the roll call): client id, number of examples, device, versions
ROLL_CALL: Final = "roll-call"

OVERRIDES: Final = "overrides"  # key of the run config: all overrides that were submitted, in one text
SUBMISSION: Final = "submission"  # key of the run config: who submitted the run, and a random word that marks it

CLIENT_STATES: Final = "clients"
"""In the folder of a run: what the clients of its machine keep."""

CHECK: Final = "check"  # key of the run config: "yes" if the run only asks what the sites' data are like

# Lines in the ServerApp's log that `fedstride submit`, `check`, `runs`, `fetch` and `simulate` read
FOLDER_LINE: Final = "the run's folder is %s"
FINAL_LINE: Final = "final %s: %s, folder %s"  # the displayed name of a metric, and its value
SUBMISSION_LINE: Final = "submitted by %s"
ERROR_LINE: Final = "%s: %s"  # the kind of an error that ends the run, and its text
PROGRESS_LINE: Final = "progress %s"  # JSON: how the clients of a round stand, see server_app/reports/progress.py
SITE_LINE: Final = "described %s"  # JSON: what a site said of its data, see server_app/data_descriptions.py
END_LINE: Final = "the run is ended by %s"  # who: SIGTERM, or one of the next two
BY_THE_USER: Final = "the user"
BY_THE_SUPERLINK: Final = "the end of its SuperLink"
