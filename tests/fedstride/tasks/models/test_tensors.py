"""From arrays to tensors and back; evaluation; devices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedstride.errors import ConfigError
from fedstride.tasks.evaluation import measuring
from fedstride.tasks.evaluation.measuring import evaluate
from fedstride.tasks.models.tensors import Examples, buffer_names, load_arrays, pick_device, tied_names, to_arrays
from fedstride.tasks.spec import Spec

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, size=(20, 2, 3, 3), dtype=np.uint8)
Y = RNG.integers(0, 4, size=20)


def examples(members: list[int] | None = None) -> Examples:
    return Examples(
        X,
        Y,
        Spec.images(X.shape[1:], 3, (0.2, 0.6), (0.5, 0.25)),
        device=CPU,
        members=None if members is None else np.array(members),
    )


def test_a_batch_is_normalised_per_channel() -> None:
    x, y = examples().batch(np.array([4, 2]))
    expected = (X[[4, 2]] / 255.0 - np.reshape([0.2, 0.6], (1, 2, 1, 1))) / np.reshape([0.5, 0.25], (1, 2, 1, 1))
    assert x.dtype == torch.float32 and y.dtype == torch.int64
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert y.tolist() == Y[[4, 2]].tolist()


def test_positions_count_among_the_members() -> None:
    some = examples([7, 3, 11])
    assert len(some) == 3
    x, y = some.batch(np.array([2, 0]))
    assert torch.equal(x, examples().batch(np.array([11, 7]))[0])
    assert y.tolist() == [Y[11], Y[7]]


def test_in_order_gives_everything_once() -> None:
    some = examples([7, 3, 11, 5, 6])
    found = list(some.in_order(2))
    assert [len(y) for _, y in found] == [2, 2, 1]
    assert torch.equal(torch.cat([x for x, _ in found]), some.batch(np.arange(5))[0])


def test_the_images_are_not_copied_and_not_changed() -> None:
    before = X.copy()
    x, _ = examples().batch(np.arange(20))
    x.fill_(9.0)
    assert np.array_equal(X, before)
    assert np.shares_memory(examples().x, X)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(18, 4)
    )


def test_arrays_contain_parameters_and_buffers_in_order() -> None:
    model = network()
    found = to_arrays(model)
    assert list(found) == list(model.state_dict())
    assert found["0.num_batches_tracked"].dtype == np.int64
    with torch.no_grad():
        model[3].weight.add_(1.0)
    assert not np.array_equal(found["3.weight"], model[3].weight.detach().numpy())  # the arrays are copies


def test_loaded_arrays_are_bit_identical() -> None:
    first, second = network(), network()
    with torch.no_grad():
        for tensor in first.state_dict().values():
            tensor.copy_(torch.rand(tensor.shape) * 9)
    load_arrays(second, to_arrays(first))
    for name, array in to_arrays(first).items():
        assert array.tobytes() == to_arrays(second)[name].tobytes()


def test_loading_copies_read_only_arrays() -> None:
    arrays = to_arrays(network())
    for array in arrays.values():
        array.flags.writeable = False
    model = network()
    load_arrays(model, arrays)
    with torch.no_grad():
        model[3].weight.add_(1.0)
    assert not np.array_equal(arrays["3.weight"], model[3].weight.detach().numpy())


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_arrays_of_another_network_are_refused(change: str) -> None:
    arrays = to_arrays(network())
    if change == "missing":
        del arrays["3.bias"]
    else:
        arrays["extra" if change == "extra" else "3.bias"] = np.zeros(9, np.float32)
    with pytest.raises(RuntimeError, match="extra" if change == "extra" else r"3\.bias"):
        load_arrays(network(), arrays)


@pytest.mark.parametrize("batch_size", [1, 7, 20, 250])
def test_evaluation_by_hand_in_any_batches(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "EVALUATION_BATCH", batch_size)
    model, data = network(), examples()
    model[0].running_mean.fill_(0.3)
    model.train()
    before = torch.get_rng_state()
    found = evaluate(model, data).figures()
    x, y = data.batch(np.arange(20))
    with torch.no_grad():
        logits = model.eval()(x)
    assert found["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, y)), rel=1e-6)
    assert found["accuracy"] == float((logits.argmax(1) == y).double().mean())
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_changes_neither_mode_nor_buffers() -> None:
    model = network()
    for mode in (True, False):
        model.train(mode)
        before = to_arrays(model)
        evaluate(model, examples())
        assert model.training is mode
        assert all(np.array_equal(array, before[name]) for name, array in to_arrays(model).items())


@pytest.mark.parametrize("kind", [tuple, list, np.array])
def test_a_users_task_may_have_its_statistics_in_lists_and_arrays(kind: type) -> None:
    spec = Spec.images((1, 2, 2), 2, kind([0.5]), kind([0.25]))
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2)
    x, _ = Examples(pixels, np.zeros(2, np.int64), spec, device=CPU).batch(np.arange(2))
    assert torch.equal(x, (torch.tensor(pixels).float() - 127.5) / 63.75)
    assert spec.text == Spec.images((1, 2, 2), 2, kind([0.5]), kind([0.25])).text


def test_auto_is_cuda_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


def test_an_available_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"'cuda:2' is not available: this machine has 2 CUDA devices"):
        pick_device("cuda:2")


def test_an_unavailable_device_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(
        ConfigError, match=r"client.device = 'cuda' is not available: this machine has 0 CUDA devices"
    ):
        pick_device("cuda")
    with pytest.raises(ConfigError, match=r"client.device = 'gpu' is not a device; use auto, cpu"):
        pick_device("gpu")


# ---------------------------------------------------------------- tied weights and registered buffers


class Tied(torch.nn.Module):
    """Two layers with one weight, and a table that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.arange(3.0))


def test_a_tied_tensor_is_included_once() -> None:
    model, other = Tied(), Tied()
    arrays = to_arrays(model)
    assert list(arrays) == ["table", "first.weight", "first.bias", "second.bias"]
    load_arrays(other, arrays)
    assert other.second.weight is other.first.weight
    np.testing.assert_array_equal(other.second.weight.detach().numpy(), arrays["first.weight"])
    assert tied_names(model) == {"second.weight": "first.weight"}
    assert buffer_names(model) == ["table"]


def test_both_names_of_a_tied_tensor_can_be_requested() -> None:
    model = Tied()
    both = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    load_arrays(model, both)
    assert list(to_arrays(model, both)) == list(both)
