"""Networks that need two examples in a mini-batch: refused before round 1, the same by each engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from desk import play, table, weights
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from fedstride.tasks.models.networks_by_name import leaves_one
from server_app.before_training.mini_batches import fitting
from strategies.replies.screening import MAX_EXAMPLES

MODELS = '''
import torch
from torch import nn

from fedstride import part


@part(model="batch_norm")
class BatchNormed(nn.Module):
    """A normalisation over the batch."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.norm = nn.Linear(784, 8), nn.BatchNorm1d(8)
        self.last = nn.Linear(8, outputs)

    def forward(self, x):
        return self.last(self.norm(self.first(x.flatten(1))))


@part(model="noisy")
class Noisy(nn.Module):
    """Dropout that somebody has left on in evaluations."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.last = nn.Linear(784, outputs)

    def forward(self, x):
        return self.last(nn.functional.dropout(x.flatten(1), 0.5))


@part(model="drawn")
class Drawn(nn.Module):
    """Noise and random choices in each forward pass."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.last = nn.Linear(784, outputs)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(x + torch.randn_like(x)) * (1.0 + torch.bernoulli(torch.tensor(0.5)))
'''

FOUR = ("clients=4", "partition=iid", "rounds=1")  # of 4,000 images: 1,000 at each client


@pytest.fixture
def models(tmp_path: Path) -> str:
    path = tmp_path / "own_models.py"
    path.write_text(MODELS)
    return f"parts={path}"


@pytest.mark.parametrize("engine", ["local", "vectorized"])
@pytest.mark.parametrize(("size", "better"), [(333, 332), (999, 998), (27, 26), (1, 2)])
def test_a_mini_batch_of_one_is_refused_before_round_1(
    tmp_path: Path, models: str, engine: str, size: int, better: int
) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"client\.batch_size = {size} is not allowed with model = 'batch_norm': a mini-batch of client 0 "
        rf"and of 3 more would have one example.*client\.batch_size={better} leaves none$",
    ):
        play(tmp_path, *FOUR, models, "model=batch_norm", f"client.batch_size={size}", f"engine={engine}")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "vectorized"])
def test_other_batch_sizes_and_other_models_are_trained(tmp_path: Path, models: str, engine: str) -> None:
    for number, (model, size) in enumerate([("batch_norm", 332), ("noisy", 333)]):
        outcome = play(
            tmp_path / str(number), *FOUR, models, f"model={model}", f"client.batch_size={size}",
            "client.local_steps=2", f"engine={engine}",
        )  # fmt: skip
        assert outcome.rows[-1]["clients"] == 4


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(1, 70))
def test_the_batch_size_that_is_named_leaves_none(counts: list[int], size: int) -> None:
    found = fitting(counts, size)
    if found is None:
        assert 1 in counts
        return
    assert not any(leaves_one(count, found) for count in counts)
    nearer = [each for each in range(2, 200) if abs(each - size) < abs(found - size)]
    assert all(any(leaves_one(count, each) for count in counts) for each in nearer)


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_batch_size_for_the_largest_number_of_examples_is_found_at_once(size: int) -> None:
    found = fitting([MAX_EXAMPLES, 963761198400 + 1, 3], size)  # the second has the most divisors below the limit
    assert found is not None and not any(leaves_one(count, found) for count in (MAX_EXAMPLES, 963761198401, 3))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["noisy", "drawn"])
def test_a_network_that_draws_in_evaluations_has_the_same_figures_again(
    tmp_path: Path, models: str, model: str
) -> None:
    given = (
        *FOUR,
        models,
        f"model={model}",
        "client.local_steps=2",
        "rounds=2",
        "evaluate_clients=true",
        "holdout=0.2",
    )
    runs = []
    for number, workers in enumerate((0, 0, 2)):
        torch.manual_seed(number)  # which must not matter
        outcome = play(tmp_path / str(number), *given, f"workers={workers}")
        runs.append((table(outcome.folder), weights(outcome.folder)))
    assert runs[0] == runs[1] == runs[2]
    losses = [row["test/loss"] for row in outcome.rows]
    assert len(set(losses)) == len(losses)
