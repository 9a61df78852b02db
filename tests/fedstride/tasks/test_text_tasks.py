"""Texts as tokens, and the readers of text data sets: the real bytes where they are at hand, else small files."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import REAL, load, real, refused

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import data
from fedstride.tasks.datasets import news, reviews
from fedstride.tasks.datasets.splits import stratified
from fedstride.tasks.forms.tokens import number, tokens, words
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.registry import MODELS

pytestmark = pytest.mark.usefixtures("forgotten_data")


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" \t\n.,-_\\", []),
        ("Don't stop: 76ers, Record-Low_6!", ["don", "t", "stop", "76ers", "record", "low", "6"]),
        ("dwindling\\band", ["dwindling", "band"]),  # a backslash is a line break in AG News
        ("ÉCOLE Straße Ελλάδα Москва 東京 ٣", ["école", "straße", "ελλάδα", "москва", "東京", "٣"]),
        ("e\u0301cole", ["école"]),  # the composed form
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert list(words(text)) == found


def test_numbers_of_words_do_not_change() -> None:
    """They are in stored arrays and in trained embeddings."""
    assert tokens(["The cat, the CAFÉ 42"], 8, 20_000).tolist() == [[13640, 10688, 13640, 19718, 7354, 0, 0, 0]]
    assert number("the", 65_536) == 1 + zlib.crc32(b"the") % 65_535
    assert tokens(["the"], 1, 2).tolist() == [[1]]


def test_long_and_empty_texts() -> None:
    found = tokens(["a " * 1000, "", "a"], 3, 100)
    first = number("a", 100)
    assert found.tolist() == [[first] * 3, [0, 0, 0], [first, 0, 0]]
    assert tokens([], 3, 100).shape == (0, 3)
    assert tokens(iter(["a"]), 3, 100).shape == (1, 3)


@pytest.mark.parametrize(("vocabulary", "dtype"), [(2, np.uint16), (65_536, np.uint16), (65_537, np.int32)])
def test_the_smallest_type_that_holds_the_numbers(vocabulary: int, dtype: type) -> None:
    found = tokens([" ".join(map(str, range(5000)))], 5000, vocabulary)
    assert found.dtype == dtype
    assert found.min() >= 1 and found.max() < vocabulary


def test_a_share_of_the_words_has_the_number_of_another_one() -> None:
    """The formula in the docstring of the module."""
    count, vocabulary = 10_000, 20_000
    numbers = tokens([" ".join(f"w{k}" for k in range(count))], count, vocabulary)[0]
    shared = (np.bincount(numbers)[numbers] > 1).mean()
    assert shared == pytest.approx(1 - (1 - 1 / (vocabulary - 1)) ** (count - 1), abs=0.02)


@pytest.mark.parametrize(("length", "vocabulary"), [(0, 100), (1, 1)])
def test_sizes_that_are_not_possible(length: int, vocabulary: int) -> None:
    with pytest.raises(ConfigError, match="must be at least"):
        tokens(["a"], length, vocabulary)


# ---------------------------------------------------------------- AG News, the real bytes


@pytest.mark.slow
@real
def test_ag_news() -> None:
    found = load("ag_news", REAL)
    assert found.spec.inputs == Inputs(Kind.TOKENS, (64,), 20_000)
    assert (found.spec.outputs, found.spec.names[3]) == (4, "sci/tech")
    assert np.bincount(found.test_y).tolist() == [1900] * 4
    assert np.bincount(found.train_y).tolist() == [2942, 2754, 2764, 3081]
    assert found.subset == "a subset: 11,541 of 120,000 training examples"
    assert isinstance(found.train_x, np.memmap) and found.train_x.dtype == np.uint16
    assert (
        found.train_x[0, :9].tolist()
        == tokens(["Wall St. Bears Claw Back Into the Black (Reuters)"], 9, 20_000)[0].tolist()
    )


@pytest.mark.slow
@real
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("textcnn", {"embedding": 8, "filters": 4}),
        ("lstm", {"embedding": 8, "width": 8}),
        ("transformer", {"width": 8, "heads": 2}),
    ],
)
def test_the_networks_take_the_texts(model: str, settings: dict[str, int]) -> None:
    found = load("ag_news", REAL, length=16, vocabulary=500)
    x, y = Examples(found.test_x, found.test_y, found.spec, device=torch.device("cpu")).batch(np.arange(5))
    assert (x.dtype, x.shape, y.dtype) == (torch.int64, (5, 16), torch.int64)
    network = MODELS.make(MODELS.config(model)(**settings), found.spec.inputs, found.spec.outputs)
    logits = network(x)
    assert logits.shape == (5, 4) and torch.isfinite(logits).all()


@pytest.mark.slow
@real
def test_a_changed_test_set_has_another_checksum(tmp_path: Path) -> None:
    folder = tmp_path / "ag_news_csv"
    folder.mkdir()
    write(folder / "train.csv", [(1, "a", "b")])
    content = (REAL / "ag_news_csv" / "test.csv").read_bytes()
    packed = folder / "test.csv.gz"
    packed.write_bytes(gzip.compress(content, 1))
    assert len(load("ag_news", tmp_path).test_y) == 7600
    packed.write_bytes(gzip.compress(content.replace(b"Fears", b"Bears", 1), 1))
    assert f"{packed} is damaged: it does not have the published MD5" in refused("ag_news", tmp_path)


# ---------------------------------------------------------------- files of comma-separated values


def write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def test_classes_begin_at_zero_and_columns_are_joined(tmp_path: Path) -> None:
    write(tmp_path / "ag_news_csv" / "train.csv", [(1, "A title", 'It said "so",\nthen.'), (4, "É", "")])
    write(tmp_path / "ag_news_csv" / "test.csv", [(2, "x", "y")])
    found = load("ag_news", tmp_path, length=6)
    assert found.train_y.tolist() == [0, 3]
    assert found.train_x.tolist() == tokens(["A title It said so then", "é"], 6, 20_000).tolist()
    assert found.subset == "a subset: 2 of 120,000 training examples"


def test_files_of_a_subset_are_read_in_order_without_duplicates(tmp_path: Path) -> None:
    folder = tmp_path / "ag_news_csv"
    write(folder / "train_b.csv", [(1, "one  two"), (2, "one two"), (3, "four")])
    write(folder / "train_a.csv", [(1, "one", "two"), (1, "three", "")])
    write(folder / "test.csv", [(1, "one", "two"), (1, "one", "two")])
    found = load("ag_news", tmp_path, length=2)
    assert found.train_y.tolist() == [0, 0, 1, 2]
    assert found.train_x.tolist() == tokens(["one two", "three", "one two", "four"], 2, 20_000).tolist()
    assert len(found.test_y) == 2  # as it is published
    write(folder / "train.csv", [(4, "x", "y")])
    data._load.cache_clear()
    assert load("ag_news", tmp_path).train_y.tolist() == [3]


def test_line_breaks_of_sogou_news_are_blanks(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / "sogou_news_csv" / f"{name}.csv", [(5, "ti2 mu4", "yi1\\nna4 " + "er4 " * 50_000)])
    found = load("sogou_news", tmp_path, length=5)  # the text is longer than the default limit of csv
    assert found.train_x.tolist() == tokens(["ti2 mu4 yi1 na4 er4"], 5, 20_000).tolist()
    assert found.train_y.tolist() == [4]
    assert found.spec.outputs == 5
    assert csv.field_size_limit() == 131_072


def test_settings_are_part_of_the_cache_entry(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / "ag_news_csv" / f"{name}.csv", [(1, "a", "b")])
    assert load("ag_news", tmp_path).train_x.shape == (1, 64)
    wide = load("ag_news", tmp_path, length=3, vocabulary=70_000)
    assert (wide.train_x.shape, wide.train_x.dtype) == ((1, 3), np.int32)
    assert wide.spec.inputs == Inputs(Kind.TOKENS, (3,), 70_000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'"1","a","b"\n"5","a","b"\n', "train.csv, line 2: class '5' is not allowed: it must be 1 to 4"),
        (b'"1","a","b"\n"world","a","b"\n', "line 2: class 'world' is not allowed"),
        (b'"1","a","b"\n"2"\n', "line 2: the row has no text"),
        (b'"1","a","b"\n"2","a","b', "after line 1: damaged or truncated"),
        (b'"1","a","b"\n"2","\xff","b"\n', "the bytes are not UTF-8"),
        (b"", "train.csv contains no texts"),
        (b"\n\n", "train.csv contains no texts"),
    ],
)
def test_a_file_that_is_not_whole(tmp_path: Path, content: bytes, said: str) -> None:
    write(tmp_path / "ag_news_csv" / "test.csv", [(1, "a", "b")])
    (tmp_path / "ag_news_csv" / "train.csv").write_bytes(content)
    text = refused("ag_news", tmp_path)
    assert said in text and str(tmp_path) in text


def test_a_truncated_packed_file(tmp_path: Path) -> None:
    write(tmp_path / "ag_news_csv" / "test.csv", [(1, "a", "b")])
    packed = gzip.compress(b'"1","a","b"\n' * 1000)
    (tmp_path / "ag_news_csv" / "train.csv.gz").write_bytes(packed[:-9])
    assert "train.csv.gz is damaged or cannot be read" in refused("ag_news", tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "ag_news_csv" / "train_a.csv", [(1, "a")])
    text = refused("ag_news", tmp_path)
    assert "test.csv missing in" in text and "train" not in text.split(" missing")[0]
    assert "train.csv, test.csv missing in" in refused("sogou_news", tmp_path)


def test_a_file_with_all_rows_must_have_the_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "AG_FILES", (news.PublishedFile(2, "0" * 32), news.PublishedFile(2, "0" * 32)))
    write(tmp_path / "ag_news_csv" / "train.csv", [(1, "a", "b")])
    write(tmp_path / "ag_news_csv" / "test.csv", [(1, "a", "b")] * 2)
    assert "test.csv is damaged: it does not have the published MD5" in refused("ag_news", tmp_path)


# ---------------------------------------------------------------- Amazon reviews


def review(text: str) -> str:
    title = "<rating>\n5.0\n</rating>\n<title>\nno\n</title>"
    return f"<review>\n{title}\n<review_text>\n{text}\n</review_text>\n</review>\n"


def write_reviews(root: Path, count: int = 5) -> None:
    for domain in reviews.DOMAINS:
        for label in reviews.CLASSES:
            path = root / "sorted_data_acl" / domain / f"{label}.review"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(review(f"{domain} {label} {k} R&D") for k in range(count)), encoding="utf-8")


def test_amazon_review(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    found = load("amazon_review", tmp_path, length=8)
    assert (len(found.train_y), len(found.test_y)) == (32, 8)
    assert np.bincount(found.train_y).tolist() == [16, 16]
    assert np.bincount(found.test_y).tolist() == [4, 4]  # one of each domain and class
    assert found.groups is not None
    assert np.bincount(found.groups).tolist() == [8] * 4
    assert found.subset == "a subset: 32 of 6,400 training examples"
    for x, y, group in zip(found.train_x, found.train_y, found.groups, strict=True):
        begin = tokens([f"{reviews.DOMAINS[group]} {reviews.CLASSES[y]}"], 8, 20_000)[0]
        assert x[: (begin > 0).sum()].tolist() == begin[begin > 0].tolist()
    data._load.cache_clear()
    assert np.array_equal(load("amazon_review", tmp_path, length=8).test_x, found.test_x)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "contains no reviews"),
        (review("a")[:-10], "is truncated: </review> is missing at its end"),
        (review("a").split("</review_text>")[0], "is truncated: </review_text> is missing"),
        (review("a") + "<review_text>b</review_text>", "line 12: <review_text> follows where <review> must"),
        (review("a").replace("</review_text>\n", "") + review("b"), "line 10: </review> follows"),
    ],
)
def test_a_damaged_file_of_reviews(tmp_path: Path, content: str, said: str) -> None:
    write_reviews(tmp_path)
    path = tmp_path / "sorted_data_acl" / "dvd" / "positive.review"
    path.write_text(content)
    text = refused("amazon_review", tmp_path)
    assert said in text and str(path) in text


def test_reviews_in_another_encoding_or_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.review"
    path.write_bytes(b"<review><review_text>caf\xe9 au lait</review_text></review>")
    (text,) = reviews.read(path)
    assert list(words(text)) == ["caf", "au", "lait"]


def test_a_missing_domain_or_too_few_reviews(tmp_path: Path) -> None:
    write_reviews(tmp_path, count=1)
    assert "too few for a test set" in refused("amazon_review", tmp_path)
    (tmp_path / "sorted_data_acl" / "books" / "negative.review").unlink()
    assert "books/negative.review missing; get the data from http" in refused("amazon_review", tmp_path)


def test_a_test_set_has_the_share_of_each_stratum() -> None:
    strata = np.random.default_rng(0).permutation(np.repeat([0, 1, 5], [50, 20, 3]))
    train, test = stratified(strata)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(73))
    assert np.bincount(strata[test], minlength=6).tolist() == [10, 4, 0, 0, 0, 1]
    assert np.array_equal(stratified(strata)[1], test)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.review").mkdir()
    with pytest.raises(DataError, match=r"x.review cannot be read"):
        reviews.read(tmp_path / "x.review")
