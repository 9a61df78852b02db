"""What is not said of a few examples, and does not follow from what is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from client_app.data import small_counts
from fedstride.errors import ConfigError, DataError
from fedstride.figures import figure_states
from fedstride.figures.metrics import fact
from fedstride.figures.score_bins import unpacked
from fedstride.tasks.evaluation.measuring import Evaluation, evaluate
from fedstride.tasks.goals import goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics import class_moments

COUNTS = st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any)


@given(COUNTS, st.integers(1, 30))
def test_label_counts(counts: list[int], least: int) -> None:
    before = np.array(counts)
    after = small_counts.label_counts(before, least)
    assert after.sum() == before.sum()  # so that the number of examples says nothing
    others = np.arange(len(counts)) != before.argmax()
    assert not ((after[others] > 0) & (after[others] < least)).any()
    if ((before == 0) | (before >= least)).all():
        assert np.array_equal(after, before)


def test_two_inputs_that_differ_in_a_few_examples_are_said_alike() -> None:
    said = {tuple(small_counts.label_counts(np.array([100 - n, n]), 20)) for n in range(20)}
    assert said == {(100, 0)}


@given(COUNTS.filter(lambda counts: len(counts) > 1), st.integers(1, 30))
def test_class_moments(counts: list[int], least: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    found = class_moments.of_examples(np.random.default_rng(1).normal(size=(len(labels), 3)), labels)
    if max(counts) < least:
        with pytest.raises(ConfigError, match=f"no class has min_rows = {least} examples"):
            small_counts.class_moments(found, least)
        return
    said = small_counts.class_moments(found, least)
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


RATES = {"accuracy": [0.5], "f1": [0.5] * 6, "balanced_accuracy": [0.5] * 4}
FIGURES = {"loss": 0.3, **RATES, "accuracy": 0.5}


def evaluated(rates: dict[str, list[float]], ranked: tuple[np.ndarray, np.ndarray] | None = None) -> Evaluation:
    """With the figures of these rates, and the AUROC of these scores."""
    return Evaluation(0.3, (*rates, *([] if ranked is None else ["auroc"])), rates, ranked)


def test_figures_of_classes_need_enough_of_each() -> None:
    assert small_counts.figures(evaluated(RATES), of_classes([60, 40]), 20) == FIGURES
    assert small_counts.figures(evaluated(RATES), of_classes([60, 19]), 20) == {"loss": 0.3, "accuracy": 0.5}
    assert small_counts.figures(evaluated(RATES), of_classes([60, 0]), 20) == FIGURES
    assert small_counts.figures(evaluated(RATES), of_classes([60, 3]), 1) == FIGURES
    few = RATES | {"f1": [0.6, 0.4, 0.99, 0.01, 0.59, 0.01]}  # one example is predicted to be of class 1
    assert "f1" not in small_counts.figures(evaluated(few), of_classes([60, 40]), 20)


def test_figures_of_labels_need_enough_with_and_without_each() -> None:
    labels = of_classes([50, 60], Target.LABELS)
    assert small_counts.figures(evaluated(RATES), labels, 50) == FIGURES
    assert small_counts.figures(evaluated(RATES), labels, 51) == {"loss": 0.3, "accuracy": 0.5}


@given(st.integers(2, 40), st.integers(0, 1000), st.integers(40, 300))
def test_no_bin_is_of_fewer_examples(least: int, seed: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    labels = (draw.random(count) < 0.4).astype(np.int64)
    scores = 3 * draw.standard_normal((count, 1)) + 2 * labels[:, None]
    said = small_counts.figures(evaluated({}, (scores, labels[:, None] == 1)), of_classes([count, count]), least)
    (bins,) = unpacked(said["auroc"])  # type: ignore[arg-type]
    sizes = bins.negative + bins.positive
    assert sizes.sum() == count
    assert sizes.min() >= least
    assert len(sizes) >= count // (3 * least)
    assert not set(bins.edges.tolist()) & set(scores[:, 0].tolist())


def test_bins_of_two_sets_that_differ_in_an_outlier_say_nothing_of_it() -> None:
    """Neither its score nor its sign of being the largest one: as if it had any other large score."""
    others = np.random.default_rng(5).standard_normal(100)
    labels = np.arange(101) % 2 == 1
    said = [
        small_counts.figures(
            evaluated({}, (np.append(others, outlier)[:, None], labels[:, None])), of_classes([51, 50]), 20
        )
        for outlier in (5.0, 17.25, 1e30, np.inf)
    ]
    assert all(each == said[0] for each in said)
    assert len(unpacked(said[0]["auroc"])[0].negative) == 5  # type: ignore[arg-type]


def test_an_edge_says_little_of_the_two_scores_beside_it() -> None:
    """Scores that are whole rows: other rows with the same first digits give the same edges."""
    rows = np.sort(np.random.default_rng(6).random(400)) + 1.0
    rng = np.random.default_rng(7)
    said = []
    for _ in range(3):
        scores = rows + 1e-6 * rng.random(400)
        ranked = scores[:, None], (np.arange(400) % 3 == 0)[:, None]
        said.append(small_counts.figures(evaluated({}, ranked), of_classes([266, 134]), 20)["auroc"])
    assert said[0] == said[1] == said[2]


def test_bins_leave_only_if_each_class_has_enough() -> None:
    ranked = np.arange(79.0)[:, None], np.arange(79)[:, None] >= 60
    assert small_counts.figures(evaluated({}, ranked), of_classes([60, 19]), 20) == {"loss": 0.3}
    assert "auroc" in small_counts.figures(evaluated({}, ranked), of_classes([60, 19]), 19)


def measured(labels: np.ndarray, names: list[str], seed: int = 3) -> tuple[Evaluation, Examples]:
    """The evaluation of a linear model on these labels, two classes."""
    draw = np.random.default_rng(seed)
    x = (draw.standard_normal((len(labels), 1)) + labels[:, None]).astype(np.float32)
    spec = Spec(Inputs(Kind.TABLE, (1,)), 2)
    examples = Examples(x, labels, spec, device=torch.device("cpu"), goal=goal_of(spec, metrics=names))
    network = torch.nn.Linear(1, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[-0.7], [0.9]]))
        network.bias.zero_()
    return evaluate(network, examples), examples


@given(st.integers(2, 40), st.integers(0, 500), st.integers(90, 400))
def test_no_bin_of_probabilities_is_of_fewer_rows(least: int, seed: int, count: int) -> None:
    labels = (np.arange(count) % 2).astype(np.int64)
    evaluation, examples = measured(labels, ["calibration", "reliability"], seed)
    said = small_counts.figures(evaluation, examples, least)
    assert said["calibration"] == said["reliability"]
    found = figure_states.unpacked(said["calibration"])  # type: ignore[arg-type]
    sizes = found.state["count"]
    assert found.rows == sizes.sum() == count
    assert not ((sizes > 0) & (sizes < least)).any()
    assert fact("local/calibration").check(said["calibration"]) is None  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("positive", "least", "leaves"), [(40, 20, True), (19, 20, False), (0, 20, True), (3, 1, True)]
)
def test_calibration_needs_enough_of_each_class_and_the_brier_score_does_not(
    positive: int, least: int, leaves: bool
) -> None:
    labels = np.repeat(np.array([0, 1]), [60, positive])
    said = small_counts.figures(*measured(labels, ["calibration", "brier", "auroc"]), least)
    assert ("calibration" in said) == leaves
    assert isinstance(said["brier"], float)


@pytest.mark.parametrize(("events", "censored", "leaves"), [(25, 30, True), (19, 300, False), (300, 4, False)])
def test_the_c_index_needs_enough_events_and_enough_without(events: int, censored: int, leaves: bool) -> None:
    draw = np.random.default_rng(1)
    count = events + censored
    y = np.stack([draw.integers(0, 50, count), np.arange(count) < events], axis=1).astype(np.float32)
    spec = Spec(Inputs(Kind.TABLE, (2,)), 1, Target.SURVIVAL)
    x = draw.standard_normal((count, 2)).astype(np.float32)
    examples = Examples(x, y, spec, device=torch.device("cpu"))
    said = small_counts.figures(evaluate(torch.nn.Linear(2, 1), examples), examples, 20)
    assert ("c_index" in said) == leaves and "loss" in said


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(2, 40))
def test_every_step_is_of_enough_examples(sizes: list[int], least: int) -> None:
    steps = [(np.arange(size) + 100 * number, 0.1 + number) for number, size in enumerate(sizes)]
    if 0 < sum(sizes) < least:
        with pytest.raises(
            ConfigError, match=f"of {sum(sizes)} examples, and this node demands min_rows"
        ) as caught:
            list(small_counts.of_enough(steps, least))
        assert caught.value.key == "client.batch_size"
        return
    found = list(small_counts.of_enough(steps, least))
    assert all(len(positions) >= least for positions, _ in found)
    same = [position for positions, _ in steps for position in positions]
    assert [position for positions, _ in found for position in positions] == same
    if all(size >= least for size in sizes):
        assert [rate for _, rate in found] == [rate for _, rate in steps]


def test_a_short_last_batch_is_joined_to_the_one_before() -> None:
    steps = [(np.arange(30), 0.1), (np.arange(30, 60), 0.2), (np.arange(60, 61), 0.3)]
    assert [(len(positions), rate) for positions, rate in small_counts.of_enough(steps, 20)] == [
        (30, 0.1),
        (31, 0.2),
    ]


@pytest.mark.parametrize(("size", "enough"), [(21, True), (20, True), (19, False), (1, False)])
def test_training_and_measuring_are_of_enough_examples(size: int, enough: bool) -> None:
    small_counts.check_size(size, 1, "train")
    if enough:
        small_counts.check_size(size, 20, "train")
    else:
        with pytest.raises(DataError, match=f"would measure on {size} examples; its node demands min_rows = 20"):
            small_counts.check_size(size, 20, "measure")
