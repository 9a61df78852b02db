"""AG News and Sogou News: files of comma-separated values, as published. A subset is read as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..files import files_in, signature
from ..forms import csv_rows
from .files import Published, Root, check_md5, root_folder
from .text import Length, Vocabulary, text_arrays, text_key, text_spec

AG = Published("ag_news", "ag_news_csv", "https://s3.amazonaws.com/fast-ai-nlp/ag_news_csv.tgz")
SOGOU = Published("sogou_news", "sogou_news_csv", "https://s3.amazonaws.com/fast-ai-nlp/sogou_news_csv.tgz")

AG_CLASSES = ("world", "sports", "business", "sci/tech")
SOGOU_CLASSES = ("sports", "finance", "entertainment", "automobile", "technology")


@dataclass(frozen=True)
class PublishedFile:
    """A file as published: its number of rows and its MD5."""

    rows: int
    md5: str


AG_FILES = (
    PublishedFile(120_000, "b1a00f826fdfbd249f79597b59e1dc12"),
    PublishedFile(7_600, "d52ea96a97a2d943681189a97654912d"),
)
SOGOU_FILES = (
    PublishedFile(450_000, "f36156164e6eac2feda0e30ad857eef0"),
    PublishedFile(60_000, "59e493c41cee050329446d8c45615b38"),
)
"""The files train.csv and test.csv."""


def ag_news(*, root: Root = None, length: Length = 64, vocabulary: Vocabulary = 20_000) -> Data:
    """AG News (Zhang et al. 2015): 120,000 and 7,600 news articles of 4 classes: title and description.

    Classes are numbered from 0; the files number them from 1. If `train.csv` is missing, all other `train*.csv`
    are read together as a subset: sorted by name, without duplicates. Texts are equal if they differ in white
    space only. A file with the published number of rows must have the published MD5.
    """
    return _data(AG, AG_FILES, AG_CLASSES, root, length, vocabulary, line_break="")


def sogou_news(*, root: Root = None, length: Length = 64, vocabulary: Vocabulary = 20_000) -> Data:
    r"""Sogou News (Zhang et al. 2015): 450,000 and 60,000 Chinese news articles in Pinyin, 5 classes.

    A text is title and content. Line breaks are written as `\n` in the files, and are blanks here. (In AG News, a
    backslash alone is a line break, and the letter n after it belongs to the next word.) Subsets and checksums:
    as in AG News.
    """
    return _data(SOGOU, SOGOU_FILES, SOGOU_CLASSES, root, length, vocabulary, line_break="\\n")


def _data(
    published: Published,
    whole: tuple[PublishedFile, PublishedFile],
    classes: tuple[str, ...],
    root: str | None,
    length: int,
    vocabulary: int,
    *,
    line_break: str,
) -> Data:
    names = _train_names(root_folder(root, published.task) / published.folder)
    *train, test = published.locate(root, [*names, "test.csv"], False)
    subset = names != ["train.csv"]

    def rows(paths: list[Path]) -> Iterator[tuple[int, str]]:
        for path in paths:
            for label, text in read(path, len(classes)):
                yield label, text.replace(line_break, " ") if line_break else text

    def make() -> dict[str, np.ndarray]:
        arrays = {}
        for prefix, paths, complete in (("train", train, whole[0]), ("test", [test], whole[1])):
            texts = _without_duplicates(rows(paths)) if subset and prefix == "train" else rows(paths)
            x, y = text_arrays(texts, length, vocabulary)
            if not len(y):
                raise DataError(f"{paths[0]} contains no texts; get it again from {published.source}")
            if len(y) >= complete.rows and len(paths) == 1:  # a subset has no published checksum
                check_md5(paths[0], complete.md5, unpacked=True)
            arrays[f"{prefix}_x"], arrays[f"{prefix}_y"] = x, y
        return arrays

    key = {"files": signature([*train, test]), **text_key(length, vocabulary)}
    return Data(
        text_spec(length, vocabulary, classes), **cached(published.task, key, make), full_size=whole[0].rows
    )


def _train_names(folder: Path) -> list[str]:
    """The files of the training set: `train.csv`, else all `train*.csv`, sorted by name."""
    entries = files_in(folder) if folder.is_dir() else []
    names = {entry.name.removesuffix(".gz") for entry in entries}
    parts = sorted(name for name in names if name.startswith("train") and name.endswith(".csv"))
    return ["train.csv"] if "train.csv" in names or not parts else parts


def _without_duplicates(rows: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The first of all rows with the same class and the same text; differences in white space are ignored."""
    seen = set()
    for label, text in rows:
        row = (label, " ".join(text.split()))
        if row not in seen:
            seen.add(row)
            yield label, text


def read(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    """The rows of a file: class from 0, and the other columns joined by a blank.

    Raises DataError, with file and line, for a class outside 1 to `classes`, a row without a text, a truncated row
    or bytes that are not UTF-8.
    """
    numbers = {str(label + 1): label for label in range(classes)}
    for line, row in csv_rows.rows(path, "delete it and get it again"):
        if row[0].strip() not in numbers:
            raise DataError(
                f"{path}, line {line}: class {row[0][:20]!r} is not allowed: it must be 1 to {classes}"
            )
        if len(row) < 2:
            raise DataError(f"{path}, line {line}: the row has no text; delete the file and get it again")
        yield numbers[row[0].strip()], " ".join(row[1:])
