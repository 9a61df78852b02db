"""FedNLR: the paper's example, eq. 14-17 against an independent computation, identities, side effects."""

from __future__ import annotations

import random

import numpy as np
import pytest
import reference as ref
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from client_app.registry import RULES, Training
from client_app.rules import fednlr
from client_app.rules.fednlr import NeuronSGD, find_layers, mean_activations, network_rates, neuron_rates
from client_app.training.loop import train
from client_app.training.method import Job, Plan, Received, Result, steps
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec

CPU = torch.device("cpu")


def config_of(name: str, **settings: object) -> Training:
    return RULES.config(name)(**settings)


def begun(config: Training, model: nn.Module, data: Examples) -> tuple[Plan, dict[str, float]]:
    """The plan and the metrics of FedNLR for one round."""
    job, rule = Job(0, 1, 0, config, data, model, CPU), RULES.make(config)
    plan = rule.begin(job, Received(config.name), {})
    returned, state = rule.end(job, plan, Result(0.0, 0.0, [config.lr]))
    assert not returned.arrays and not state
    return plan, dict(returned.metrics)


def learn(config: Training, plan: Plan, model: nn.Module, data: Examples, batches: list[np.ndarray]) -> None:
    job = Job(0, 1, 0, config, data, model, CPU)
    plan = Plan(factors=plan.factors, batches=batches)
    train(model, data, steps(job, plan), plan, momentum=config.momentum, weight_decay=config.weight_decay)


def printed(value: object, digits: int = 7) -> object:
    """Equal to numbers that are printed with this number of digits after the point."""
    return pytest.approx(value, rel=0, abs=0.51 * 10.0**-digits)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bits(model: nn.Module) -> list[bytes]:
    return [tensor.detach().numpy().tobytes() for tensor in model.state_dict().values()]


# ---------------------------------------------------------------- Example 1 of the paper


CLASS_1, CLASS_2 = [[1.0, 1 / 3]], [[1 / 3, 1.0]]


class ExampleNet(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False, dtype=dtype)
        self.second = nn.Linear(2, 2, bias=False, dtype=dtype)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1, 1 / 3], [1 / 3, 1]], dtype=torch.float64))
            self.second.weight.copy_(torch.tensor([[10 / 9, 2 / 3], [2 / 3, 10 / 9]], dtype=torch.float64))

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x.flatten(1)).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.hidden(x))

    def on_class_2(self) -> tuple[list[float], list[float]]:
        """(h, probabilities) of the input of class 2."""
        x = torch.tensor(CLASS_2, dtype=self.first.weight.dtype)
        with torch.no_grad():
            return self.hidden(x)[0].tolist(), self(x).softmax(1)[0].tolist()


def class_1_loss(model: nn.Module) -> torch.Tensor:
    return functional.cross_entropy(model(torch.tensor(CLASS_1, dtype=torch.float64)), torch.tensor([0]))


def test_example_before_training() -> None:
    h, probabilities = ExampleNet(torch.float64).on_class_2()
    assert h == printed([0.6666667, 1.1111111])
    assert probabilities == printed([0.4507772, 0.5492228])


@pytest.mark.slow
def test_example_after_a_step_of_sgd() -> None:
    model = ExampleNet(torch.float64)
    optimizer = NeuronSGD(model, {}, lr=0.5)
    class_1_loss(model).backward()
    optimizer.step()
    h, probabilities = model.on_class_2()
    assert h == printed([0.7334485, 1.0443293])
    assert probabilities == printed([0.6325166, 0.3674834])


def test_example_rates() -> None:
    model = ExampleNet(torch.float64)
    x = torch.tensor(CLASS_1, dtype=torch.float64)
    rates = network_rates(model, [x], x)
    first, second = rates.layers["first"], rates.layers["second"]
    assert first.mu == printed(1.8010300)
    assert first.temperature == printed(0.7553971)
    assert (0.5 * first.factors).tolist() == printed([0.6429885, 0.3570115])
    assert second.mu == printed(2.3010300)
    assert second.temperature == printed(0.2370303)
    assert (0.5 * second.factors).tolist() == printed([0.6970642, 0.3029358])


@pytest.mark.slow
def test_example_drift_after_a_step_with_neuron_rates() -> None:
    model = ExampleNet(torch.float64)
    x = torch.tensor(CLASS_1, dtype=torch.float64)
    optimizer = NeuronSGD(model, network_rates(model, [x], x), lr=0.5)
    class_1_loss(model).backward()
    optimizer.step()
    h, _ = model.on_class_2()
    assert h == printed([0.7525465, 1.0634274])
    assert 1.1111111 - h[1] == pytest.approx(0.048, abs=5e-4)


def example_data() -> Examples:
    """Class 1 as an image: 255 is 1 and 85 is 1/3."""
    x = np.array([[[[255, 85]]]], dtype=np.uint8)
    return Examples(x, np.array([0]), Spec.images(x.shape[1:], 2, (0.0,), (1.0,)), device=CPU)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (config_of("sgd", lr=0.5), [0.7334485, 1.0443293]),
        (config_of("fednlr", lr=0.5), [0.7525465, 1.0634274]),
        (config_of("fednlr", lr=0.5, mu0=1.0, a1=0.0, a2=0.0), [0.7334485, 1.0443293]),
    ],
)
def test_example_through_the_training_loop(config: Training, expected: list[float]) -> None:
    model, data = ExampleNet(torch.float32), example_data()
    plan, metrics = begun(config, model, data)
    learn(config, plan, model, data, [np.array([0])])
    assert model.on_class_2()[0] == pytest.approx(expected, abs=5e-7)
    if expected[0] > 0.75:
        assert metrics["fednlr/rate_max/first"] == pytest.approx(0.6429885, abs=5e-7)
        assert metrics["fednlr/rate_min/second"] == pytest.approx(0.3029358, abs=5e-7)


# ---------------------------------------------------------------- eq. 14-17 against an independent computation


class Zoo(nn.Module):
    """The modules are executed in another order than defined, and show every case of A5-5, A5-9 and A5-12."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)
        self.fc = nn.Linear(6 * 2 * 2, 5)
        self.late = nn.BatchNorm1d(5)  # follows a ReLU, so it keeps eta
        self.shared = nn.Conv2d(6, 6, 3, padding=1)  # used twice
        self.grouped = nn.Conv2d(4, 6, 3, groups=2, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(2, 4, 3)
        self.scale = nn.Parameter(torch.ones(1))
        self.layer_norm = nn.LayerNorm(5)
        self.double()
        with torch.no_grad():
            for i, tensor in enumerate(self.state_dict().values()):
                if tensor.is_floating_point():
                    tensor.copy_(0.6 * normal(*tensor.shape, seed=i))
            for norm in (self.bn, self.late):
                norm.running_var.copy_(norm.running_var.abs() + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x)).relu()
        x = functional.max_pool2d(self.grouped(x).relu(), 2)
        x = self.shared(self.shared(x).relu()).relu()
        x = self.layer_norm(self.late(self.fc(x.flatten(1)).relu()))
        return self.head(self.scale * functional.dropout(x, 0.5, self.training))


POSITIONS = {"conv": 6 * 6, "grouped": 4 * 4, "shared": 2 * 2, "fc": 1, "head": 1}
CHANNELS = {"conv": 4, "grouped": 6, "shared": 6, "fc": 5, "head": 3}
ORDER = list(POSITIONS)


def zoo_by_hand(s: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, np.ndarray]:
    """Mean activations of the Zoo, computed from its weights, one example after the other."""
    sums = {name: np.zeros(CHANNELS[name]) for name in ORDER}
    for one in x:
        a = functional.conv2d(one[None], s["conv.weight"], s["conv.bias"])
        column = (1, -1, 1, 1)
        a = (a - s["bn.running_mean"].view(column)) / torch.sqrt(s["bn.running_var"].view(column) + 1e-5)
        a = torch.clamp(a * s["bn.weight"].view(column) + s["bn.bias"].view(column), min=0)
        sums["conv"] += a.mean((0, 2, 3)).numpy()
        left = functional.conv2d(a[:, :2], s["grouped.weight"][:3])
        right = functional.conv2d(a[:, 2:], s["grouped.weight"][3:])
        a = torch.clamp(torch.cat([left, right], 1), min=0)
        sums["grouped"] += a.mean((0, 2, 3)).numpy()
        a = functional.max_pool2d(a, 2)
        for _ in range(2):
            a = torch.clamp(functional.conv2d(a, s["shared.weight"], s["shared.bias"], padding=1), min=0)
            sums["shared"] += a.mean((0, 2, 3)).numpy() / 2
        a = torch.clamp(s["fc.weight"] @ a.reshape(-1) + s["fc.bias"], min=0)
        sums["fc"] += a.numpy()
        a = (a - s["late.running_mean"]) / torch.sqrt(s["late.running_var"] + 1e-5)
        a = a * s["late.weight"] + s["late.bias"]
        a = (a - a.mean()) / torch.sqrt(a.var(unbiased=False) + 1e-5)
        a = (a * s["layer_norm.weight"] + s["layer_norm.bias"]) * s["scale"]
        sums["head"] += (s["head.weight"] @ a + s["head.bias"]).numpy()
    return {name: total / len(x) for name, total in sums.items()}


def in_batches(x: torch.Tensor, size: int = 3) -> list[torch.Tensor]:
    return list(x.split(size))


def test_mean_activations_by_hand() -> None:
    model, x = Zoo(), normal(7, 2, 8, 8, seed=99)
    layers = find_layers(model, x[:1])
    by_hand = zoo_by_hand(model.state_dict(), x)
    assert [layer.name for layer in layers] == ORDER
    assert [layer.last for layer in layers] == [False] * 4 + [True]
    for layer, h in zip(layers, mean_activations(model, layers, in_batches(x)), strict=True):
        assert h.dtype == torch.float64
        np.testing.assert_allclose(h.numpy(), by_hand[layer.name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("width", ["units", "channels"])
@pytest.mark.parametrize("settings_", [{}, {"mu0": 1.2, "a1": 0.45, "a2": 0.3}])
def test_rates_by_hand(width: str, settings_: dict[str, float]) -> None:
    model, x = Zoo(), normal(7, 2, 8, 8, seed=99)
    by_hand = zoo_by_hand(model.state_dict(), x)
    rates = network_rates(model, in_batches(x), x[:1], width=width, **settings_)
    assert list(rates.layers) == ORDER
    for number, name in enumerate(ORDER, start=1):
        units = CHANNELS[name] * (POSITIONS[name] if width == "units" else 1)
        expected = ref.fednlr_rates(by_hand[name], 1.0, layer_index=number, n_layers=5, units=units, **settings_)
        np.testing.assert_allclose(rates.layers[name].factors.numpy(), expected, rtol=1e-9)


@pytest.mark.slow
def test_bias_and_batch_norm_follow_their_neuron_and_other_parameters_keep_eta() -> None:
    model, x = Zoo(), normal(7, 2, 8, 8, seed=99)
    rates = network_rates(model, in_batches(x), x[:1])
    expected = {
        **dict.fromkeys(["conv.weight", "conv.bias", "bn.weight", "bn.bias"], "conv"),
        "grouped.weight": "grouped",
        **dict.fromkeys(["shared.weight", "shared.bias"], "shared"),
        **dict.fromkeys(["fc.weight", "fc.bias"], "fc"),
        **dict.fromkeys(["head.weight", "head.bias"], "head"),
    }
    assert set(rates.factors) == set(expected)
    parameters = dict(model.named_parameters())
    for name, layer in expected.items():
        factor, w = rates.factors[name], parameters[name]
        assert factor.shape == (CHANNELS[layer], *[1] * (w.dim() - 1))
        assert torch.equal(factor.flatten(), rates.layers[layer].factors)
        assert torch.broadcast_shapes(factor.shape, w.shape) == w.shape


@pytest.mark.slow
def test_the_means_do_not_depend_on_the_batch_size() -> None:
    model, x = Zoo(), normal(7, 2, 8, 8, seed=99)
    layers = find_layers(model, x[:1])
    whole = mean_activations(model, layers, [x])
    for one, many in zip(whole, mean_activations(model, layers, in_batches(x, 2)), strict=True):
        torch.testing.assert_close(one, many, rtol=1e-12, atol=1e-14)


def test_without_the_classifier_the_last_layer_keeps_its_rate() -> None:
    model, x = Zoo(), normal(7, 2, 8, 8, seed=99)
    with_it = network_rates(model, [x], x[:1])
    without = network_rates(model, [x], x[:1], classifier=False)
    assert set(with_it.factors) - set(without.factors) == {"head.weight", "head.bias"}
    assert without.layers["head"].factors is None
    assert without.layers["head"].mu == with_it.layers["head"].mu
    assert all(torch.equal(without.factors[name], with_it.factors[name]) for name in without.factors)


class Pair(nn.Module):
    """A layer, a module between, a BatchNorm, ReLU, the classifier."""

    def __init__(self, between: nn.Module, layer: nn.Module | None = None, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer or nn.Linear(3, 4)
        self.between = between
        self.norm = norm or nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.between(self.layer(x))).relu()
        return self.head(x.flatten(2).mean(2) if x.dim() > 2 else x)


def test_a_batch_norm_after_a_nonlinearity_keeps_eta() -> None:
    x = normal(6, 3).float()
    model = Pair(nn.ReLU())
    rates = network_rates(model, [x], x[:1])
    assert set(rates.factors) == {"layer.weight", "layer.bias", "head.weight", "head.bias"}
    h = model.layer(x).relu().double().mean(0).detach().numpy()
    expected = ref.fednlr_rates(h, 1.0, layer_index=1, n_layers=2, units=4)
    np.testing.assert_allclose(rates.layers["layer"].factors.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Linear(3, 4), nn.BatchNorm1d(4), (6, 3)),
        (nn.Conv1d(3, 4, 2), nn.BatchNorm1d(4), (6, 3, 5)),
        (nn.Conv2d(3, 4, 2, bias=False), nn.BatchNorm2d(4), (6, 3, 5, 5)),
        (nn.Conv3d(3, 4, 2), nn.BatchNorm3d(4, affine=False), (6, 3, 3, 3, 3)),
        (nn.Conv2d(4, 4, 2, groups=4), nn.BatchNorm2d(4), (6, 4, 5, 5)),  # depth-wise
    ],
)
def test_every_batch_norm_follows_its_layer(layer: nn.Module, norm: nn.Module, shape: tuple[int, ...]) -> None:
    model, x = Pair(nn.Identity(), layer, norm), normal(*shape).float()
    for p in norm.parameters():  # positive: with ReLU, other values can make all neurons zero
        nn.init.uniform_(p, 0.5, 1.5)
    rates = network_rates(model, [x], x[:1])
    owned = [f"layer.{n}" for n, _ in layer.named_parameters()] + [f"norm.{n}" for n, _ in norm.named_parameters()]
    assert set(rates.factors) == {*owned, "head.weight", "head.bias"}
    model.eval()
    with torch.no_grad():
        h = norm(layer(x)).relu().flatten(2).mean(2) if len(shape) > 2 else norm(layer(x)).relu()
    units = h.shape[1] * (layer(x)[0].numel() // h.shape[1])
    expected = ref.fednlr_rates(h.double().mean(0).numpy(), 1.0, layer_index=1, n_layers=2, units=units)
    np.testing.assert_allclose(rates.layers["layer"].factors.numpy(), expected, rtol=1e-5)


class Between(nn.Module):
    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.layer, self.between, self.norm, self.head = (
            nn.Linear(3, 4),
            between,
            nn.BatchNorm1d(4),
            nn.Linear(4, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.between(self.layer(x))))


@pytest.mark.parametrize("between", [nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True)])
def test_a_batch_norm_after_a_nonlinearity_in_place_keeps_eta(between: nn.Module) -> None:
    model, x = Between(between), torch.randn(6, 3)
    assert set(network_rates(model, [x], x[:1]).factors) == {
        "layer.weight",
        "layer.bias",
        "head.weight",
        "head.bias",
    }


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 2), nn.Conv2d(3, 4, 2)
        self.na, self.nb, self.head = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a(x), self.b(x)
        return self.head((self.na(a) + self.nb(b)).relu().mean((2, 3)))


def test_the_batch_norms_of_parallel_branches_follow_their_own_convolution() -> None:
    x = torch.randn(6, 3, 4, 4)
    assert {"na.weight", "nb.weight"} <= set(network_rates(Branches(), [x], x[:1]).factors)


def test_a_batch_norm_over_tokens_counts_for_the_activation_but_keeps_eta() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm, self.head = nn.Linear(4, 5), nn.BatchNorm1d(3), nn.Linear(15, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.layer(x)).relu().flatten(1))

    model, x = Tokens(), torch.randn(6, 3, 4)
    layers = find_layers(model, x[:1])
    h = mean_activations(model, layers, [x])[0]
    expected = model.eval().norm(model.layer(x)).relu().mean((0, 1)).double()
    torch.testing.assert_close(h, expected, rtol=1e-5, atol=1e-6)
    assert "norm.weight" not in network_rates(model, [x], x[:1]).factors


def test_a_group_norm_counts_for_the_activation_but_keeps_eta() -> None:
    """A5-5 says "a normalisation layer"; A5-9 gives rates to BatchNorm only."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))

    torch.manual_seed(0)
    model, x = Grouped(), torch.randn(6, 1, 6, 6)
    layers = find_layers(model, x[:1])
    h = mean_activations(model, layers, [x])[0]
    expected = model.norm(model.conv(x)).relu().mean((0, 2, 3)).double()
    torch.testing.assert_close(h, expected, rtol=1e-5, atol=1e-6)
    assert "norm.weight" not in network_rates(model, [x], x[:1]).factors


class Words(nn.Module):
    """Embedding, torch's attention, LayerNorm, a linear layer over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(self.fc(x).relu().mean(1))


def test_embeddings_attention_and_layer_norm_keep_eta() -> None:
    torch.manual_seed(0)
    model, x = Words().double(), torch.randint(0, 11, (9, 4))
    rates = network_rates(model, [x[:5], x[5:]], x[:1])
    assert set(rates.factors) == {"fc.weight", "fc.bias", "head.weight", "head.bias"}
    with torch.no_grad():
        e = model.words(x)
        h = model.fc(model.norm(e + model.attention(e, e, e)[0])).relu().mean((0, 1)).numpy()
    expected = ref.fednlr_rates(h, 1.0, layer_index=1, n_layers=2, units=4 * 6)  # with positions
    np.testing.assert_allclose(rates.layers["fc"].factors.numpy(), expected, rtol=1e-9)
    assert rates.layers["fc"].temperature == pytest.approx(np.ptp(h) / np.log(1.5 + np.log10(24)), rel=1e-9)


def test_the_hidden_layer_inside_torchs_transformer_is_found() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(32, 3))
    x = torch.randn(5, 4, 8)
    assert list(network_rates(model, [x], x[:1]).layers) == ["0.linear1", "2"]


def test_a_model_that_is_one_layer_and_a_model_without_layers() -> None:
    x = normal(4, 3).float()
    assert set(network_rates(nn.Linear(3, 2), [x], x[:1]).factors) == {"weight", "bias"}
    assert network_rates(nn.LayerNorm(3), [x], x[:1]).factors == {}


# ---------------------------------------------------------------- identities (A5-7, A5-8)


MANY = settings(max_examples=80, deadline=None)
ACTIVATIONS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30).filter(lambda h: max(h) > min(h))
MU = st.floats(1.0, 20.0, exclude_min=True)
EIGHTHS = st.lists(st.integers(-999, 999), min_size=2, max_size=30).filter(lambda h: max(h) > min(h))


def factors(h: list[float], mu: float) -> torch.Tensor:
    found = neuron_rates(torch.tensor(h, dtype=torch.float64), mu).factors
    assert found is not None
    return found


@MANY
@given(ACTIVATIONS, MU)
def test_factors_have_mean_one_and_discrepancy_mu(h: list[float], mu: float) -> None:
    found = factors(h, mu)
    assert float(found.mean()) == pytest.approx(1.0, rel=1e-12)
    assert float(found.max() / found.min()) == pytest.approx(mu, rel=1e-12)
    assert int(found.argmax()) == h.index(max(h)) or found.max() == found[h.index(max(h))]


@MANY
@given(ACTIVATIONS, MU)
def test_temperature_and_softmax_as_printed(h: list[float], mu: float) -> None:
    rates = neuron_rates(torch.tensor(h, dtype=torch.float64), mu)
    temperature = (max(h) - min(h)) / np.log(mu)
    assert rates.temperature == pytest.approx(temperature, rel=1e-12)
    p = np.exp((np.array(h) - max(h)) / temperature)
    np.testing.assert_allclose(rates.factors.numpy(), len(h) * p / p.sum(), rtol=1e-9)


@pytest.mark.slow
@MANY
@given(st.data(), ACTIVATIONS, MU)
def test_permuting_neurons_permutes_rates(data: st.DataObject, h: list[float], mu: float) -> None:
    order = data.draw(st.permutations(range(len(h))))
    permuted = factors([h[i] for i in order], mu)
    torch.testing.assert_close(permuted, factors(h, mu)[list(order)], rtol=1e-13, atol=0)


@MANY
@given(EIGHTHS, MU, st.integers(-999, 999))
def test_adding_a_constant_changes_nothing(h: list[int], mu: float, c: int) -> None:
    assert torch.equal(factors([x / 8 for x in h], mu), factors([(x + c) / 8 for x in h], mu))


@MANY
@given(EIGHTHS, MU)
def test_only_relative_activations_count(h: list[int], mu: float) -> None:
    assert torch.equal(factors([x / 8 for x in h], mu), factors([x * 1024.0 for x in h], mu))


@pytest.mark.parametrize(
    ("h", "mu"), [([0.3, 0.3, 0.3], 2.0), ([0.0, 0.0], 2.0), ([0.7], 2.0), ([0.1, 0.9], 1.0), ([0.1, 0.9], 0.4)]
)
def test_layers_without_a_ranking_keep_eta(h: list[float], mu: float) -> None:
    rates = neuron_rates(torch.tensor(h), mu)
    assert rates.factors is None
    assert rates.temperature == 0.0
    assert rates.mu == mu


@pytest.mark.parametrize("h", [[1e30, -1e30, 0.0], [1e307, 0.0], [5e-324, 0.0], [1e30, 1e30 * (1 + 1e-15)]])
def test_huge_and_tiny_activations_do_not_overflow(h: list[float]) -> None:
    found = factors(h, 3.0)
    assert torch.isfinite(found).all()
    assert float(found.mean()) == pytest.approx(1.0)
    assert float(found.max() / found.min()) == pytest.approx(3.0)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_activations_that_are_not_finite_change_no_rate(bad: float) -> None:
    assert neuron_rates(torch.tensor([bad, 1.0, 2.0]), 2.0).factors is None


def test_discrepancy_grows_with_depth_and_width() -> None:
    assert fednlr.discrepancy(2, 4, 1000, mu0=1.1, a1=0.45, a2=0.3) == pytest.approx(1.1 + 0.225 + 0.9)


# ---------------------------------------------------------------- the rule in a client


def mnist_like(n: int = 30) -> Examples:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(n, 1, 6, 6), dtype=np.uint8)
    return Examples(x, rng.integers(0, 3, size=n), Spec.images(x.shape[1:], 3, (0.4,), (0.3,)), device=CPU)


def small_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.01)])
def test_without_discrepancy_it_is_plain_sgd_bit_for_bit(momentum: float, weight_decay: float) -> None:
    flat = {"mu0": 1.0, "a1": 0.0, "a2": 0.0}
    config = config_of("fednlr", lr=0.1, momentum=momentum, weight_decay=weight_decay, **flat)
    data, ours, theirs = mnist_like(), small_net(), small_net()
    batches = [np.arange(i, i + 10) for i in (0, 10, 20)]
    plan, _ = begun(config, ours, data)
    assert plan.factors == {}
    learn(config, plan, ours, data, batches)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for batch in batches:
        x, y = data.batch(batch)
        optimizer.zero_grad()
        functional.cross_entropy(theirs(x), y).backward()
        optimizer.step()
    assert bits(ours) == bits(theirs)


def test_the_rule_gives_each_parameter_its_own_factor() -> None:
    config = config_of("fednlr", lr=0.1, a1=0.45, a2=0.3, width="channels")
    data, model = mnist_like(), small_net()
    plan, metrics = begun(config, model, data)
    found = plan.factors
    whole = data.batch(np.arange(30))[0]
    rates = network_rates(model, [whole], whole[:1], a1=0.45, a2=0.3, width="channels")
    names = [name for name, _ in model.named_parameters()]
    assert {names[i] for i in found} == set(rates.factors) == set(names)
    for i, factor in found.items():
        torch.testing.assert_close(factor, rates.factors[names[i]], rtol=1e-6, atol=0)
    assert metrics == pytest.approx(fednlr.diagnostics(rates, 0.1), rel=1e-5)


def test_the_rule_counts_trainable_parameters_only() -> None:
    model = small_net()
    model[0].requires_grad_(False)
    plan, _ = begun(config_of("fednlr"), model, mnist_like())
    trained = [p for p in model.parameters() if p.requires_grad]
    assert plan.factors
    assert all(factor.shape[0] == trained[i].shape[0] for i, factor in plan.factors.items())


# ---------------------------------------------------------------- what the pass does not change (A5-10)


def test_the_pass_changes_no_buffer_mode_random_state_or_gradient() -> None:
    model, x = Zoo(), normal(7, 2, 8, 8, seed=99)
    model.train()
    model.late.eval()  # a module with another mode than the model keeps it
    before, modes = bits(model), [module.training for module in model.modules()]
    states = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    with torch.enable_grad():
        network_rates(model, in_batches(x), x[:1])
    assert bits(model) == before
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tobytes() == states[1]
    assert random.getstate() == states[2]
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_the_pass_builds_no_graph() -> None:
    seen = []
    model, x = Zoo(), normal(2, 2, 8, 8)
    model.fc.register_forward_hook(lambda module, inputs, output: seen.append(output.requires_grad))
    network_rates(model, [x], x[:1])
    assert seen == [False, False]


def test_a_forward_pass_that_fails_leaves_modes_and_hooks_as_they_were() -> None:
    model = Zoo()
    model.train()
    with pytest.raises(RuntimeError):
        network_rates(model, [normal(2, 2, 8, 8), normal(2, 3, 8, 8)], normal(1, 2, 8, 8))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


# ---------------------------------------------------------------- diagnostics (A5-13)


def test_diagnostics_by_hand() -> None:
    model = ExampleNet(torch.float64)
    x = torch.tensor(CLASS_1, dtype=torch.float64)
    found = fednlr.diagnostics(network_rates(model, [x], x), 0.5)
    assert found == pytest.approx(
        {
            "fednlr/rate_min/first": 0.3570115,
            "fednlr/rate_max/first": 0.6429885,
            "fednlr/rate_mean/first": 0.5,
            "fednlr/T/first": 0.7553971,
            "fednlr/mu/first": 1.8010300,
            "fednlr/below/first": 0.5,
            "fednlr/rate_min/second": 0.3029358,
            "fednlr/rate_max/second": 0.6970642,
            "fednlr/rate_mean/second": 0.5,
            "fednlr/T/second": 0.2370303,
            "fednlr/mu/second": 2.3010300,
            "fednlr/below/second": 0.5,
        },
        abs=5e-7,
    )
    assert all(type(value) is float for value in found.values())


def test_diagnostics_of_a_layer_that_keeps_eta() -> None:
    model = ExampleNet(torch.float64)
    x = torch.tensor(CLASS_1, dtype=torch.float64)
    found = fednlr.diagnostics(network_rates(model, [x], x, classifier=False), 0.5)
    last = {key.split("/")[1]: value for key, value in found.items() if key.endswith("/second")}
    expected = {"rate_min": 0.5, "rate_max": 0.5, "rate_mean": 0.5, "T": 0.0, "mu": 2.3010300, "below": 0.0}
    assert last == pytest.approx(expected, abs=5e-7)


# ---------------------------------------------------------------- the optimiser for other training loops


def descend(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> None:
    x, y = normal(8, 3, seed=1).float(), torch.arange(8) % 2
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01)])
def test_neuron_sgd_without_rates_has_the_bits_of_torchs_sgd(momentum: float, weight_decay: float) -> None:
    ours, theirs = net(), net()
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": weight_decay}
    descend(ours, NeuronSGD(ours, {}, **options))
    descend(theirs, torch.optim.SGD(theirs.parameters(), **options))
    assert bits(ours) == bits(theirs)


def test_neuron_sgd_multiplies_the_velocity() -> None:
    """A5-11: the raw gradient accumulates, so a factor 2 is the same as twice the rate."""
    doubled, faster = net(), net()
    two = {name: torch.full((1,) * p.dim(), 2.0) for name, p in doubled.named_parameters()}
    descend(doubled, NeuronSGD(doubled, two, lr=0.1, momentum=0.9, weight_decay=0.01))
    descend(faster, torch.optim.SGD(faster.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01))
    for a, b in zip(doubled.parameters(), faster.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_neuron_sgd_works_with_torchs_schedulers() -> None:
    ours, theirs = net(), net()
    for model, optimizer in (
        (ours, NeuronSGD(ours, {}, lr=0.1)),
        (theirs, torch.optim.SGD(theirs.parameters(), lr=0.1)),
    ):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        for _ in range(3):
            descend(model, optimizer, steps=1)
            scheduler.step()
    assert bits(ours) == bits(theirs)


def test_neuron_sgd_does_not_change_parameters_without_a_gradient() -> None:
    model = net()
    before = model[0].weight.detach().clone()
    optimizer = NeuronSGD(model, {"2.weight": torch.full((2, 1), 3.0)}, lr=1.0, weight_decay=0.1)
    last = model[2].weight.detach().clone()
    model[2].weight.grad = torch.ones(2, 4)
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    torch.testing.assert_close(model[2].weight.detach(), last - 3.0 * (1.0 + 0.1 * last))


def test_neuron_sgd_ignores_rates_of_frozen_parameters() -> None:
    model, x = net(), torch.rand(6, 3)
    model[0].requires_grad_(False)
    optimizer = NeuronSGD(model, network_rates(model, [x], x[:1]), lr=0.1)
    before = model[2].weight.detach().clone()
    model(x).sum().backward()
    optimizer.step()
    assert not torch.equal(model[2].weight, before)


def test_neuron_sgd_takes_a_closure() -> None:
    model = net()
    optimizer = NeuronSGD(model, {}, lr=0.1)

    def closure() -> torch.Tensor:
        loss = model(torch.ones(1, 3)).sum()
        loss.backward()
        return loss

    assert isinstance(optimizer.step(closure), torch.Tensor)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lr": 0.0}, "lr = 0.0"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"lr": float("inf")}, "lr = inf"),
        ({"momentum": 1.0}, "momentum = 1.0"),
        ({"momentum": -0.1}, "momentum = -0.1"),
        ({"weight_decay": -1.0}, "weight_decay = -1.0"),
        ({"weight_decay": float("inf")}, "weight_decay = inf"),
        ({"rates": {"3.weight": torch.ones(1)}}, r"\['3.weight'\]"),
    ],
)
def test_neuron_sgd_refuses(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        NeuronSGD(net(), **{"rates": {}, "lr": 0.1, **change})
