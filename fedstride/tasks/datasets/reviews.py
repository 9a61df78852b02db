"""The multi-domain sentiment data set: product reviews of Amazon in four domains, as published."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..files import signature
from .files import Published, Root, root_folder
from .splits import TEST_SHARE, stratified
from .text import Length, Vocabulary, text_arrays, text_key, text_spec

AMAZON = Published(
    "amazon_review",
    "sorted_data_acl",
    "https://www.cs.jhu.edu/~mdredze/datasets/sentiment (domain_sentiment_data)",
)
DOMAINS = ("books", "dvd", "electronics", "kitchen_&_housewares")
CLASSES = ("negative", "positive")
TAG = re.compile(r"</?review(?:_text)?>")
ORDER = ("<review>", "<review_text>", "</review_text>", "</review>")
"""The tags that are read, in the order in which each review has them. Other tags are skipped."""


def amazon_review(*, root: Root = None, length: Length = 64, vocabulary: Vocabulary = 20_000) -> Data:
    """Multi-domain sentiment (Blitzer et al., ACL 2007): 8,000 Amazon reviews, negative (0) or positive (1).

    Groups are the four domains, in the order of `DOMAINS`: partition=by_group gives each client one domain. The
    published data have no test set. Here, 20 % of the reviews of each domain and class are the test set, drawn
    with a fixed seed: 6,400 for training, 1,600 for testing. The text is that of <review_text>, without the title.
    `unlabeled.review` is not used. Bytes that are not UTF-8 separate words.
    """
    folder = root_folder(root, AMAZON.task) / AMAZON.folder
    files = [
        (folder / domain / f"{name}.review", group, label)
        for group, domain in enumerate(DOMAINS)
        for label, name in enumerate(CLASSES)
    ]
    AMAZON.require([file for file, _, _ in files])

    def make() -> dict[str, np.ndarray]:
        texts = [(label, group, text) for file, group, label in files for text in read(file)]
        x, y = text_arrays(((label, text) for label, _, text in texts), length, vocabulary)
        groups = np.array([group for _, group, _ in texts], dtype=np.int64)
        train, test = stratified(len(CLASSES) * groups + y)
        if not len(test):
            raise DataError(
                f"{folder} has {len(y)} reviews, which are too few for a test set: {TEST_SHARE:.0%} of each file; "
                f"get the data again from {AMAZON.source}"
            )
        return {
            "train_x": x[train],
            "train_y": y[train],
            "test_x": x[test],
            "test_y": y[test],
            "groups": groups[train],
        }

    key = {"files": signature(file for file, _, _ in files), **text_key(length, vocabulary), "share": TEST_SHARE}
    spec = text_spec(length, vocabulary, CLASSES)
    return Data(spec, **cached(AMAZON.task, key, make), full_size=6_400)


def read(path: Path) -> list[str]:
    """The texts of a file of reviews. Raises DataError, with file and line, for a damaged or an empty file.

    The file looks like XML but is not: only the tags <review> and <review_text> are read.
    """
    try:
        content = path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    texts: list[str] = []
    start = count = 0
    for count, tag in enumerate(TAG.finditer(content), 1):
        if tag.group() != ORDER[(count - 1) % len(ORDER)]:
            line = content.count("\n", 0, tag.start()) + 1
            raise DataError(
                f"{path}, line {line}: {tag.group()} follows where {ORDER[(count - 1) % len(ORDER)]} must follow; "
                "delete the file and get it again"
            )
        if tag.group() == "<review_text>":
            start = tag.end()
        elif tag.group() == "</review_text>":
            texts.append(content[start : tag.start()].strip())
    if count % len(ORDER):
        raise DataError(f"{path} is truncated: {ORDER[count % len(ORDER)]} is missing at its end; get it again")
    if not texts:
        raise DataError(f"{path} contains no reviews; get it again from {AMAZON.source}")
    return texts
