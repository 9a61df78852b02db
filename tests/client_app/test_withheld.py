"""What is not said of a few examples, and does not follow from what is said."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from client_app import withheld
from fedstride.errors import ConfigError, DataError
from fedstride.scores import SCORES
from fedstride.tasks import class_moments
from fedstride.tasks.goals import scores_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.tensors import Examples

COUNTS = st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any)


@given(COUNTS, st.integers(1, 30))
def test_label_counts(counts: list[int], least: int) -> None:
    before = np.array(counts)
    after = withheld.label_counts(before, least)
    assert after.sum() == before.sum()  # so that the number of examples says nothing
    others = np.arange(len(counts)) != before.argmax()
    assert not ((after[others] > 0) & (after[others] < least)).any()
    if ((before == 0) | (before >= least)).all():
        assert np.array_equal(after, before)


def test_two_inputs_that_differ_in_a_few_examples_are_said_alike() -> None:
    said = {tuple(withheld.label_counts(np.array([100 - n, n]), 20)) for n in range(20)}
    assert said == {(100, 0)}


@given(COUNTS.filter(lambda counts: len(counts) > 1), st.integers(1, 30))
def test_class_moments(counts: list[int], least: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    found = class_moments.of_examples(np.random.default_rng(1).normal(size=(len(labels), 3)), labels)
    if max(counts) < least:
        with pytest.raises(ConfigError, match=f"no class has min_rows = {least} examples"):
            withheld.class_moments(found, least)
        return
    said = withheld.class_moments(found, least)
    assert said.classes.tolist() == [c for c, count in enumerate(counts) if count >= least]
    assert said.counts.tolist() == [count // least * least for count in counts if count >= least]
    assert np.array_equal(said.means, found.means[found.counts >= least])


def of_classes(counts: list[int], target: Target = Target.CLASS) -> Examples:
    labels = np.repeat(np.arange(len(counts)), counts)
    if target is Target.LABELS:
        y = np.stack([labels == n for n in range(len(counts))], 1).astype(np.uint8)
    else:
        y = labels.astype(np.int64)
    spec = Spec(Inputs(Kind.TABLE, (1,)), len(counts), target)
    return Examples(np.zeros((len(y), 1), np.float32), y, spec, device=torch.device("cpu"))


FIGURES = {"loss": 0.3, "accuracy": 0.5, "f1": [0.5] * 6, "balanced_accuracy": [0.5] * 4}


def test_figures_of_classes_need_enough_of_each() -> None:
    assert withheld.figures(FIGURES, of_classes([60, 40]), 20) == FIGURES
    assert withheld.figures(FIGURES, of_classes([60, 19]), 20) == {"loss": 0.3, "accuracy": 0.5}
    assert withheld.figures(FIGURES, of_classes([60, 0]), 20) == FIGURES
    assert withheld.figures(FIGURES, of_classes([60, 3]), 1) == FIGURES
    few = FIGURES | {"f1": [0.6, 0.4, 0.99, 0.01, 0.59, 0.01]}  # one example is predicted to be of class 1
    assert "f1" not in withheld.figures(few, of_classes([60, 40]), 20)


def test_figures_of_labels_need_enough_with_and_without_each() -> None:
    labels = of_classes([50, 60], Target.LABELS)
    assert withheld.figures(FIGURES, labels, 50) == FIGURES
    assert withheld.figures(FIGURES, labels, 51) == {"loss": 0.3, "accuracy": 0.5}


def rates_of(logits: torch.Tensor, labels: torch.Tensor) -> list[float]:
    spec = Spec(Inputs(Kind.TABLE, (1,)), 2)
    sums = scores_of(spec, ["auroc"])["auroc"](torch.stack([-logits / 2, logits / 2], 1), labels)
    return [float(value) / len(labels) for value in sums]


@given(st.integers(2, 40), st.integers(0, 1000), st.integers(40, 300))
def test_no_bin_is_of_fewer_examples(least: int, seed: int, count: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=draw) < 0.4).long()
    logits = 3 * torch.randn(count, generator=draw) + 2 * labels
    before = rates_of(logits, labels)
    after = withheld.merged(before, count, least)
    bins = round(1 / before[0])
    pair = np.array(after[1:]).reshape(2, bins) * count
    edges = [0, *(np.flatnonzero(np.abs(np.diff(pair, axis=1)).sum(0) > 1e-9) + 1), bins]
    sizes = [pair[:, a:b].sum() for a, b in itertools.pairwise(edges)]
    assert all(size < 1e-9 or size >= least - 1e-6 for size in sizes) or len(sizes) == 1
    assert pair.sum() == pytest.approx(count)
    assert abs(SCORES["auroc"].of(after) - SCORES["auroc"].of(before)) <= 0.5


def test_merged_bins_keep_the_auroc_of_many_examples() -> None:
    draw = torch.Generator().manual_seed(3)
    labels = (torch.rand(4000, generator=draw) < 0.4).long()
    before = rates_of(torch.randn(4000, generator=draw) + 2 * labels, labels)
    after = withheld.merged(before, 4000, 20)
    assert SCORES["auroc"].of(after) == pytest.approx(SCORES["auroc"].of(before), abs=0.001)


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(2, 40))
def test_every_step_is_of_enough_examples(sizes: list[int], least: int) -> None:
    steps = [(np.arange(size) + 100 * number, 0.1 + number) for number, size in enumerate(sizes)]
    if 0 < sum(sizes) < least:
        with pytest.raises(
            ConfigError, match=f"of {sum(sizes)} examples, and this node demands min_rows"
        ) as caught:
            list(withheld.of_enough(steps, least))
        assert caught.value.key == "client.batch_size"
        return
    found = list(withheld.of_enough(steps, least))
    assert all(len(positions) >= least for positions, _ in found)
    same = [position for positions, _ in steps for position in positions]
    assert [position for positions, _ in found for position in positions] == same
    if all(size >= least for size in sizes):
        assert [rate for _, rate in found] == [rate for _, rate in steps]


def test_a_short_last_batch_is_joined_to_the_one_before() -> None:
    steps = [(np.arange(30), 0.1), (np.arange(30, 60), 0.2), (np.arange(60, 61), 0.3)]
    assert [(len(positions), rate) for positions, rate in withheld.of_enough(steps, 20)] == [(30, 0.1), (31, 0.2)]


@pytest.mark.parametrize(
    ("sizes", "enough"), [((20, None), True), ((19, None), False), ((20, 20), True), ((200, 19), False)]
)
def test_training_and_measuring_are_of_enough_examples(sizes: tuple[int, int | None], enough: bool) -> None:
    withheld.check_sizes(*sizes, 1)
    if enough:
        withheld.check_sizes(*sizes, 20)
    else:
        with pytest.raises(DataError, match="min_rows = 20"):
            withheld.check_sizes(*sizes, 20)
