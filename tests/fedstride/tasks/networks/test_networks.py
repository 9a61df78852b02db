"""Each network: number of parameters, examples that it takes and refuses, settings, seed, padding."""

from __future__ import annotations

import itertools
import math
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from all_networks import (
    CASES,
    COLOUR,
    GREY,
    NORMED,
    SIGNAL,
    SOUND,
    TAKES,
    TORCHVISION,
    drawn,
    image,
    made,
    text,
)
from torch import nn

from fedstride import seeds
from fedstride.errors import ConfigError
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.networks_by_name import build
from fedstride.tasks.models.tensors import to_arrays
from fedstride.tasks.networks.lenet import relu_pool
from fedstride.tasks.networks.norms import BatchNorm1d, BatchNorm2d
from fedstride.tasks.networks.windows import HALVE, Window, positions
from fedstride.tasks.registry import MODELS


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def conv(channels: int, filters: int, kernel: int) -> int:
    return (channels * kernel + 1) * filters


def fc(*units: int) -> int:
    return sum((n + 1) * m for n, m in itertools.pairwise(units))


def test_every_network_is_tested() -> None:
    assert set(TAKES) == {part.name for part in MODELS.built_in()}
    assert set(NORMED) == {name for name in TAKES if "norm" in MODELS.fields(name)}


# ---------------------------------------------------------------- number of parameters


def resnet(width: int, blocks: int) -> int:
    """Convolutions without bias, each with weight and bias of BatchNorm; ten classes."""
    count = 27 * width + 2 * width
    for stage in range(3):
        filters = width * 2**stage
        before = filters if stage == 0 else filters // 2
        count += 9 * before * filters + (2 * blocks - 1) * 9 * filters**2 + 2 * blocks * 2 * filters
    return count + fc(4 * width, 10)


def encoder_layer(width: int, hidden: int) -> int:
    return fc(width, 3 * width) + fc(width, width) + fc(width, hidden, width) + 2 * 2 * width


PUBLISHED = [
    ("cnn_mnist", GREY, 10, 431_080),
    ("cnn_cifar10", COLOUR, 10, 1_146_088),
    ("resnet20", COLOUR, 10, 269_722),
    ("resnet18", COLOUR, 1000, 11_689_512),
    ("densenet121", COLOUR, 1000, 7_978_856),
    ("cnn_emnist", GREY, 62, 6_603_710),
    ("lenet5", GREY, 10, 61_706),
]
BY_HAND = [
    ("lenet5", COLOUR, conv(3, 6, 25) + conv(6, 16, 25) + fc(16 * 25, 120, 84, 10)),
    ("simple_cnn", COLOUR, conv(3, 32, 9) + conv(32, 64, 9) + conv(64, 64, 9) + fc(1024, 64, 10)),
    ("simple_cnn", GREY, conv(1, 32, 9) + conv(32, 64, 9) + conv(64, 64, 9) + fc(576, 64, 10)),
    ("cnn2conv3fc", COLOUR, conv(3, 64, 25) + conv(64, 64, 25) + fc(1600, 384, 192, 10)),
    (
        "vgg9",
        COLOUR,
        sum(conv(a, b, 9) for a, b in [(3, 32), (32, 64), (64, 128), (128, 128), (128, 256), (256, 256)])
        + fc(4096, 512, 512, 10),
    ),
    ("resnet20", COLOUR, resnet(16, 3)),
    ("wrn56_4", COLOUR, resnet(64, 9)),
    ("vit", COLOUR, fc(48, 512) + 512 + 65 * 512 + 6 * encoder_layer(512, 512) + 2 * 512 + fc(512, 10)),
    ("mlp", GREY, fc(784, 200, 10)),
    ("mlp", image(3, 4, 5), fc(60, 200, 10)),
    ("mlp3", COLOUR, fc(3072, 200, 200, 10)),
    ("svm", GREY, fc(784, 10)),
    ("textcnn", text(12), 30 * 300 + conv(300, 100, 3) + conv(300, 100, 4) + conv(300, 100, 5) + fc(300, 10)),
    ("lstm", text(12), 30 * 100 + 4 * 128 * (100 + 128 + 2) + fc(128, 10)),
    ("lstm", SOUND, 4 * 128 * (4 + 128 + 2) + fc(128, 10)),
    ("transformer", text(12), 30 * 128 + 12 * 128 + 2 * encoder_layer(128, 512) + 2 * 128 + fc(128, 10)),
    ("cnn1d", SIGNAL, conv(2, 32, 9) + conv(32, 64, 9) + conv(64, 128, 9) + 2 * (32 + 64 + 128) + fc(128, 10)),
]


@pytest.mark.parametrize(("name", "inputs", "outputs", "published"), PUBLISHED)
def test_the_published_number_of_parameters(name: str, inputs: Inputs, outputs: int, published: int) -> None:
    assert size(made(name, inputs, outputs)) == published


@pytest.mark.parametrize(("name", "inputs", "by_hand"), BY_HAND)
def test_the_number_of_parameters_by_hand(name: str, inputs: Inputs, by_hand: int) -> None:
    assert size(made(name, inputs)) == by_hand


def test_fednlrs_perceptron_has_25_units() -> None:
    assert size(made("mlp", GREY, width=25)) == fc(784, 25, 10) == 19_885


# ---------------------------------------------------------------- what is taken and what is refused


@pytest.mark.slow
@pytest.mark.parametrize(("name", "inputs"), CASES)
def test_one_finite_output_per_class(name: str, inputs: Inputs) -> None:
    model = made(name, inputs, 7)
    for count in (1, 2):
        result = model.train()(drawn(inputs, count))
        assert result.shape == (count, 7)
        assert torch.isfinite(result).all()
    result.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    with torch.no_grad():
        assert model.eval()(drawn(inputs)).shape == (2, 7)


@pytest.mark.parametrize("name", TAKES)
def test_other_kinds_and_numbers_of_dimensions_are_refused(name: str) -> None:
    taken = {inputs.kind for inputs in TAKES[name]}
    shapes = {
        Kind.IMAGE: (3, 32, 32),
        Kind.SIGNAL: (3, 64),
        Kind.FRAMES: (9, 4),
        Kind.TOKENS: (9,),
        Kind.TABLE: (9,),
    }
    refused = [Inputs(kind, shapes[kind], 9) for kind in Kind if kind not in taken]
    if name not in ("mlp", "mlp3", "svm"):
        refused += [Inputs(kind, (*shapes[kind], 5), 9) for kind in taken]
    assert refused
    for inputs in refused:
        with pytest.raises(ConfigError, match=rf"^model = '{name}' needs examples of kind .* are: {inputs.kind}"):
            build(MODELS.config(name)(), inputs, 10, 1)


@pytest.mark.parametrize(
    ("name", "shape", "least"),
    [
        ("lenet5", (1, 4, 4), "12 x 12"),
        ("lenet5", (1, 32, 11), "12 x 12"),
        ("cnn_cifar10", (3, 7, 32), "8 x 8"),
        ("simple_cnn", (3, 32, 17), "18 x 18"),
        ("cnn2conv3fc", (3, 15, 15), "16 x 16"),
        ("vgg9", (3, 7, 7), "8 x 8"),
        ("cnn_emnist", (1, 3, 3), "4 x 4"),
        ("densenet121", (3, 28, 28), "29 x 29"),
        ("cnn1d", (3, 15), "16"),
    ],
)
def test_examples_that_are_too_small_are_refused(name: str, shape: tuple[int, ...], least: str) -> None:
    kind = Kind.IMAGE if len(shape) == 3 else Kind.SIGNAL
    with pytest.raises(ConfigError, match=f"^model = '{name}' needs examples of at least {least}, because"):
        build(MODELS.config(name)(), Inputs(kind, shape), 10, 1)


def test_positions_are_those_of_torch() -> None:
    x = torch.zeros(1, 1, 37, 50)
    x = nn.functional.max_pool2d(nn.functional.conv2d(x, torch.zeros(1, 1, 5, 5), stride=3, padding=2), 2)
    assert positions("a", image(1, 37, 50), [Window(5, 3, 2), HALVE]) == math.prod(x.shape)


@pytest.mark.parametrize("name", sorted(TORCHVISION))
def test_torchvisions_networks_take_three_channels(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}' needs examples of kind image of shape \(3, any, any\)"):
        build(MODELS.config(name)(), image(1, 64, 64), 10, 1)


@pytest.mark.parametrize("name", sorted(TORCHVISION))
def test_a_missing_torchvision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ConfigError, match=rf"^model = '{name}' needs torchvision, .* \(pip install torchvision\)"):
        build(MODELS.config(name)(), image(3, 64, 64), 10, 1)


def test_without_a_vocabulary_there_is_no_embedding() -> None:
    for name in ("textcnn", "lstm", "transformer"):
        with pytest.raises(ConfigError, match="the task's vocabulary = 0 is not allowed"):
            build(MODELS.config(name)(), text(5, 0), 10, 1)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (
            "vit",
            {"patch": 5},
            "model.patch = 5 is not allowed: the height and the width of the images must be multi",
        ),
        ("vit", {"heads": 7}, "model.heads = 7 is not allowed: heads must be a divisor of model.width = 512"),
        (
            "transformer",
            {"width": 6},
            "model.heads = 4 is not allowed: heads must be a divisor of model.width = 6",
        ),
        ("textcnn", {"sizes": []}, "model.sizes = [] is not allowed: sizes must be a list of at least one size"),
        (
            "cnn1d",
            {"norm": "group", "width": 12},
            "model.groups = 8 is not allowed: groups must be a divisor of the",
        ),
    ],
)
def test_settings_that_do_not_fit(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        made(name, **settings)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "settings", "shape"),
    [
        ("vit", {"patch": 7, "width": 8, "depth": 1, "heads": 2, "mlp_width": 3}, (8, 49)),
        ("textcnn", {"sizes": [2], "filters": 6, "embedding": 5}, (30, 5)),
        ("lstm", {"width": 3, "layers": 2, "embedding": 5}, (30, 5)),
        ("transformer", {"width": 8, "depth": 1, "heads": 2}, (30, 8)),
    ],
)
def test_settings_change_the_sizes(name: str, settings: dict[str, Any], shape: tuple[int, int]) -> None:
    model = made(name, **settings)
    assert model.get_submodule("embedding").weight.shape == shape
    assert model(drawn(TAKES[name][0])).shape == (2, 10)


# ---------------------------------------------------------------- initial weights


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKES)
def test_initial_weights_depend_only_on_the_seed(name: str) -> None:
    torch.manual_seed(5)
    first = to_arrays(made(name))
    torch.manual_seed(6)
    torch.rand(7)
    second, other = to_arrays(made(name)), to_arrays(made(name, seed=2))
    assert any(np.ptp(array) > 0 for array in first.values())
    for key, array in first.items():
        assert array.tobytes() == second[key].tobytes()
        assert (array.tobytes() != other[key].tobytes()) == (np.ptp(array) > 0)


@pytest.mark.parametrize("name", ["vit", "transformer"])
def test_encoder_layers_have_different_initial_weights(name: str) -> None:
    arrays = to_arrays(made(name))
    assert not np.array_equal(arrays["layers.0.linear1.weight"], arrays["layers.1.linear1.weight"])


def test_the_weights_of_networks_of_older_runs() -> None:
    """Names, order and draws: runs of older versions keep their bits."""
    layers: dict[str, dict[str, tuple[type[nn.Module], tuple[int, ...]]]] = {
        "cnn_mnist": {
            "conv1": (nn.Conv2d, (1, 20, 5)),
            "conv2": (nn.Conv2d, (20, 50, 5)),
            "fc1": (nn.Linear, (800, 500)),
            "fc2": (nn.Linear, (500, 10)),
        },
        "mlp": {"fc1": (nn.Linear, (784, 200)), "fc2": (nn.Linear, (200, 10))},
    }
    for name, parts in layers.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeds.derive(1, "initial weights"))
            expected = to_arrays(nn.ModuleDict({key: kind(*sizes) for key, (kind, sizes) in parts.items()}))
        found = to_arrays(made(name, GREY))
        assert list(found) == list(expected)
        assert all(found[key].tobytes() == expected[key].tobytes() for key in expected)


def test_vgg9_starts_as_fednlr_does() -> None:
    """Kaiming's uniform and Xavier's normal distribution; biases are zero."""
    arrays = to_arrays(made("vgg9", COLOUR))
    bound = (6 / (128 * 9)) ** 0.5
    assert bound * 0.99 < np.abs(arrays["conv5.weight"]).max() <= bound
    assert arrays["conv5.weight"].std() == pytest.approx(bound / 3**0.5, rel=0.01)
    assert arrays["fc1.weight"].std() == pytest.approx((2 / (4096 + 512)) ** 0.5, rel=0.01)
    assert np.abs(arrays["fc1.weight"]).max() > 4 * arrays["fc1.weight"].std()  # a uniform one ends at 1.7
    assert not any(array.any() for name, array in arrays.items() if name.endswith("bias"))


def test_resnet20_starts_with_kaimings_normal_distribution() -> None:
    weight = to_arrays(made("resnet20"))["stage3.1.conv1.weight"]
    assert weight.std() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert np.abs(weight).max() > 3.5 * weight.std()


# ---------------------------------------------------------------- layers


def test_a_residual_block_by_hand() -> None:
    """A block that halves the sides: option A takes every second position and adds channels of zeros."""
    block: Any = made("resnet20").get_submodule("stage2.0").eval()
    x = torch.randn(2, 16, 6, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        block.conv2.weight.zero_()
        result = block(x)
    assert result.shape == (2, 32, 3, 3)
    assert torch.equal(result[:, :16], x[:, :, ::2, ::2].relu())
    assert not result[:, 16:].any()


@pytest.mark.parametrize("shape", [(3, 2, 8, 6), (1, 5, 7, 9), (2, 1, 2, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_without_gradients_has_the_same_values(
    shape: tuple[int, ...], layout: torch.memory_format
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(memory_format=layout)
    x[0, 0, 0, 0], x[-1, 0, 1, 1] = torch.nan, torch.inf
    with torch.no_grad():
        found = relu_pool(x)
    torch.testing.assert_close(found, relu_pool(x), rtol=0, atol=0, equal_nan=True)
    assert found.stride() == relu_pool(x).stride()


def test_patches_are_squares_of_the_image() -> None:
    """Only the patch with the changed pixel has another vector."""
    model = made("vit", GREY).eval()
    seen: list[torch.Tensor] = []
    model.get_submodule("embedding").register_forward_hook(lambda module, given, result: seen.append(result))
    x = drawn(GREY, 1)
    other = x.clone()
    other[0, 0, 9, 17] += 1.0  # row 2, column 4 of 7 x 7 patches
    with torch.no_grad():
        model(x), model(other)
    changed = (seen[0] != seen[1]).any(2)[0]
    assert changed.nonzero().tolist() == [[2 * 7 + 4]]


def test_lenet5_has_the_same_layers_for_28_and_32() -> None:
    small, large = to_arrays(made("lenet5", GREY)), to_arrays(made("lenet5", image(1, 32, 32)))
    assert all(small[name].tobytes() == large[name].tobytes() for name in small)
    x = drawn(GREY)
    with torch.no_grad():
        enlarged = made("lenet5", image(1, 32, 32))(nn.functional.pad(x, (2, 2, 2, 2)))
        torch.testing.assert_close(made("lenet5", GREY)(x), enlarged)


# ---------------------------------------------------------------- text


@pytest.mark.parametrize("name", ["textcnn", "lstm", "transformer"])
def test_padding_does_not_influence_the_result(name: str) -> None:
    model = made(name, text(12), layers=2) if name == "lstm" else made(name, text(12))
    model.eval()
    with torch.no_grad():
        model.get_submodule("embedding").weight[0] = 50.0  # as noise of privacy could change it
        texts = [drawn(text(length), 1) for length in (1, 2, 5, 12)]
        batch = torch.cat([nn.functional.pad(each, (0, 12 - each.shape[1])) for each in texts])
        alone = torch.cat([model(each) for each in texts])
        torch.testing.assert_close(model(batch), alone, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(alone[2], alone[3], atol=1e-3)
        empty = model(torch.zeros(1, 12, dtype=torch.int64))
        assert torch.isfinite(empty).all()


@pytest.mark.parametrize("name", ["textcnn", "lstm", "transformer"])
def test_padding_is_not_trained(name: str) -> None:
    model = made(name, text(12))
    weight: Any = model.get_submodule("embedding").weight
    assert not weight[0].any()
    assert 0.2 < weight[1:].abs().max() <= 0.25
    x = drawn(text(12))
    x[:, 6:] = 0
    model(x).square().sum().backward()
    assert not weight.grad[0].any()
    assert weight.grad[1:].any()
    model.zero_grad()
    model(torch.zeros_like(x)).square().sum().backward()  # a text without tokens
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_textcnn_by_hand() -> None:
    """The filters that begin at a token, with zeros after the text; the maximum of ReLU."""
    model: Any = made("textcnn", text(6), sizes=[3], filters=4, embedding=5).eval()
    tokens = torch.tensor([[3, 7, 2, 9, 0, 0]])
    with torch.no_grad():
        rows = torch.cat([model.embedding.weight[tokens[0, :4]], torch.zeros(2, 5)])
        weight, bias = model.convs[0].weight, model.convs[0].bias
        sums = torch.stack([(weight * rows[i : i + 3].T).sum((1, 2)) + bias for i in range(4)])
        expected = model.fc(sums.relu().amax(0)[None])
        torch.testing.assert_close(model(tokens), expected)


# ---------------------------------------------------------------- normalisation


def norms_of(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, (nn.modules.batchnorm._BatchNorm, nn.GroupNorm))]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NORMED if name not in ("wrn56_4", "densenet121")])
def test_the_setting_norm(name: str) -> None:
    inputs = TAKES[name][0]
    batch, group, layer = (made(name, norm=norm) for norm in ("batch", "group", "layer"))
    found = norms_of(batch)
    assert all(isinstance(norm, (BatchNorm1d, BatchNorm2d)) for norm in found)
    assert any("running_mean" in key for key in to_arrays(batch))
    for model, groups in ((group, 8), (layer, 1), (made(name, norm="group", groups=4), 4)):
        others = norms_of(model)
        assert len(others) == len(found)
        assert {norm.num_groups for norm in others if isinstance(norm, nn.GroupNorm)} == {groups}
        assert not list(model.buffers())
        assert size(model) == size(batch)
        arrays, of_batch = to_arrays(model), to_arrays(batch)
        assert all(arrays[key].tobytes() == of_batch[key].tobytes() for key in arrays)
        assert model(drawn(inputs)).shape == (2, 10)


@pytest.mark.parametrize(("norm", "shape"), [(BatchNorm1d(3), (1, 3, 1)), (BatchNorm2d(3), (1, 3, 1, 1))])
def test_batch_norm_of_one_value_uses_the_running_statistics(norm: Any, shape: tuple[int, ...]) -> None:
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
        norm.running_var.fill_(4.0)
    before = to_arrays(norm)
    result = norm.train()(torch.full(shape, 5.0))
    torch.testing.assert_close(result.flatten(), torch.tensor([2.0, 1.5, 1.0]))
    assert all(array.tobytes() == before[key].tobytes() for key, array in to_arrays(norm).items())


def test_batch_norm_of_more_values_is_torchs() -> None:
    x = drawn(COLOUR)
    ours, torchs = BatchNorm2d(3), nn.BatchNorm2d(3)
    assert torch.equal(ours(x), torchs(x))
    assert all(array.tobytes() == to_arrays(torchs)[key].tobytes() for key, array in to_arrays(ours).items())


def test_the_norms_of_torchvisions_networks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def resnet18(num_classes: int) -> nn.Module:
        block = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16))
        return nn.Sequential(
            nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16), block, nn.Flatten(), nn.Linear(16, num_classes)
        )

    fake: Any = types.ModuleType("torchvision")
    fake.models = types.SimpleNamespace(resnet18=resnet18)
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    for norm, kind in (("batch", BatchNorm2d), ("group", nn.GroupNorm)):
        model = build(MODELS.config("resnet18")(norm=norm), image(3, 1, 1), 7, 1)
        assert [type(each) for each in norms_of(model)] == [kind, kind]
        assert model(torch.rand(1, 3, 1, 1)).shape == (1, 7)
