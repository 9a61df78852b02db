"""FedNLR: which layers hold neurons, what their activations are, which layer is the classifier (A5-14, A5-15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reference as ref
import torch
from torch import nn
from torch.nn import functional

from client_app.registry import RULES
from client_app.rules.fednlr import NetworkRates, find_layers, mean_activations, network_rates
from client_app.training.method import Job, Received
from fedstride.errors import ConfigError
from fedstride.parts import Choice
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.registry import MODELS
from fedstride.tasks.spec import Spec

F64 = torch.float64


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def filled(model: Any) -> Any:
    """Float64, with parameters and running statistics that differ from each other."""
    model.double()
    with torch.no_grad():
        for i, (name, tensor) in enumerate(model.state_dict().items()):
            if tensor.is_floating_point():
                tensor.copy_(0.6 * drawn(*tensor.shape, seed=i + 1))
                if name.endswith("running_var"):
                    tensor.copy_(tensor.abs() + 0.5)
    return model


def rates_of(model: nn.Module, x: torch.Tensor, **options: Any) -> NetworkRates:
    """In two batches."""
    return network_rates(model, [x[:2], x[2:]], x[:1], **options)


def assert_rates(rates: NetworkRates, layer: str, h: torch.Tensor, *, number: int, of: int, units: int) -> None:
    """The factors of the layer are those of the mean activations h of shape (neurons,)."""
    expected = ref.fednlr_rates(h.detach().numpy(), 1.0, layer_index=number, n_layers=of, units=units)
    found = rates.layers[layer].factors
    assert found is not None
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


class By(nn.Module):
    """Modules by name and a forward pass given as a function."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], Any], **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.run = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


# ---------------------------------------------------------------- the nonlinearity behind a layer


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


def leaky(slope: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.where(x > 0, x, slope * x)


def tanh(x: torch.Tensor) -> torch.Tensor:
    return 1 - 2 / (torch.exp(2 * x) + 1)


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, 0.0)


NONLINEARITIES: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "ReLU": (nn.ReLU(), relu),
    "ReLU in place": (nn.ReLU(inplace=True), relu),
    "F.relu": (functional.relu, relu),
    "F.relu in place": (lambda x: functional.relu(x, inplace=True), relu),
    "F.relu by keyword": (lambda x: functional.relu(input=x), relu),
    "torch.relu": (torch.relu, relu),
    "torch.relu_": (torch.relu_, relu),
    "relu()": (lambda x: x.relu(), relu),
    "relu_()": (lambda x: x.relu_(), relu),
    "clamp": (lambda x: x.clamp(min=0), relu),
    "clamp_min_": (lambda x: x.clamp_min_(0), relu),
    "ReLU6": (nn.ReLU6(), lambda x: relu(x).clamp(max=6)),
    "Tanh": (nn.Tanh(), tanh),
    "F.tanh": (functional.tanh, tanh),
    "torch.tanh": (torch.tanh, tanh),
    "tanh_()": (lambda x: x.tanh_(), tanh),
    "LeakyReLU": (nn.LeakyReLU(0.1), leaky(0.1)),
    "LeakyReLU in place": (nn.LeakyReLU(0.1, inplace=True), leaky(0.1)),
    "F.leaky_relu": (lambda x: functional.leaky_relu(x, 0.3), leaky(0.3)),
    "F.leaky_relu_": (lambda x: functional.leaky_relu_(x, 0.3), leaky(0.3)),
    "PReLU": (nn.PReLU(init=0.2), leaky(0.6 * float(drawn(1, seed=5)))),  # `filled` draws its slope
    "RReLU": (nn.RReLU(0.1, 0.3), leaky(0.2)),
    "SiLU": (nn.SiLU(), silu),
    "SiLU in place": (nn.SiLU(inplace=True), silu),
    "F.silu": (functional.silu, silu),
    "GELU": (nn.GELU(), gelu),
    "F.gelu": (functional.gelu, gelu),
    "Sigmoid": (nn.Sigmoid(), lambda x: 1 / (1 + torch.exp(-x))),
    "torch.sigmoid": (torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x))),
    "LogSigmoid": (nn.LogSigmoid(), lambda x: -torch.log1p(torch.exp(-x))),
    "ELU": (nn.ELU(), lambda x: torch.where(x > 0, x, torch.expm1(x))),
    "Softplus": (nn.Softplus(), lambda x: torch.log1p(torch.exp(x))),
    "Softsign": (nn.Softsign(), lambda x: x / (1 + x.abs())),
    "Hardtanh": (nn.Hardtanh(), lambda x: x.clamp(-1, 1)),
    "Mish": (nn.Mish(), lambda x: x * tanh(torch.log1p(torch.exp(x)))),
    "Threshold": (nn.Threshold(0.1, -1.0), lambda x: torch.where(x > 0.1, x, -1.0)),
}


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_h_is_the_output_of_the_nonlinearity_that_the_forward_pass_shows(name: str) -> None:
    act, by_hand = NONLINEARITIES[name]
    parts = {"act": act} if isinstance(act, nn.Module) else {}
    model = By(lambda m, x: m.head(act(m.fc(x))), fc=nn.Linear(3, 6), head=nn.Linear(6, 2), **parts)
    model, x = filled(model), drawn(7, 3, seed=70)
    with torch.no_grad():
        y = x @ model.fc.weight.T + model.fc.bias
        h = by_hand(y)
        logits = h @ model.head.weight.T + model.head.bias
    rates = rates_of(model, x)
    assert set(rates.factors) == {"fc.weight", "fc.bias", "head.weight", "head.bias"}
    assert_rates(rates, "fc", h.mean(0), number=1, of=2, units=6)
    assert_rates(rates, "head", logits.mean(0), number=2, of=2, units=2)


@pytest.mark.parametrize("act", [nn.GELU(), nn.SiLU(inplace=True), torch.tanh])
def test_h_of_a_convolution_is_the_output_of_its_nonlinearity(act: Callable[[torch.Tensor], Any]) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(act(m.norm(m.conv(x))).mean((2, 3)))

    model = filled(By(forward, conv=nn.Conv2d(2, 4, 3), norm=nn.BatchNorm2d(4), head=nn.Linear(4, 2)))
    x = drawn(5, 2, 6, 6, seed=70)
    rates = rates_of(model, x)
    by_hand = {nn.GELU: gelu, nn.SiLU: silu}.get(type(act), tanh)
    with torch.no_grad():
        h = by_hand(model.eval().norm(model.conv(x))).mean((0, 2, 3))
    assert {"conv.weight", "conv.bias", "norm.weight", "norm.bias"} < set(rates.factors)
    assert_rates(rates, "conv", h, number=1, of=2, units=4 * 4 * 4)


NORMS = {
    "LayerNorm": (nn.LayerNorm(6), False),
    "RMSNorm": (nn.RMSNorm(6), False),
    "GroupNorm": (nn.GroupNorm(2, 6), False),
    "BatchNorm1d": (nn.BatchNorm1d(6), True),
}


@pytest.mark.parametrize("dropped", ["before", "after"])
@pytest.mark.parametrize("name", NORMS)
def test_the_nonlinearity_may_follow_a_normalisation_and_dropout(name: str, dropped: str) -> None:
    norm, follows = NORMS[name]
    dropout = nn.Dropout(0.5)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.norm(m.dropout(m.fc(x))) if dropped == "before" else m.dropout(m.norm(m.fc(x)))
        return m.head(functional.gelu(x))

    model = filled(By(forward, fc=nn.Linear(3, 6), norm=norm, dropout=dropout, head=nn.Linear(6, 2)))
    x = drawn(7, 3, seed=70)
    rates = rates_of(model.train(), x)
    with torch.no_grad():
        h = gelu(model.eval().norm(model.fc(x))).mean(0)
    assert_rates(rates, "fc", h, number=1, of=2, units=6)
    assert ("norm.weight" in rates.factors) == ("norm.bias" in rates.factors) == follows
    if follows:
        assert torch.equal(rates.factors["norm.weight"], rates.layers["fc"].factors)


def test_a_normalisation_called_as_a_function_counts_too() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(functional.layer_norm(functional.dropout(m.fc(x), 0.5, m.training), (6,)).relu())

    model, x = filled(By(forward, fc=nn.Linear(3, 6), head=nn.Linear(6, 2))), drawn(7, 3, seed=70)
    with torch.no_grad():
        h = functional.layer_norm(model.fc(x), (6,)).relu().mean(0)
    assert_rates(rates_of(model, x), "fc", h, number=1, of=2, units=6)


BARE: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "nothing": lambda m, x: m.head(m.fc(x)),
    "a normalisation": lambda m, x: m.head(m.norm(m.fc(x))),
    "a residual sum": lambda m, x: m.head((x + m.fc(x)).relu()),
    "a residual sum after a normalisation": lambda m, x: m.head((x + m.norm(m.fc(x))).relu()),
    "a scale": lambda m, x: m.head((0.5 * m.fc(x)).tanh()),
    "a change in place": lambda m, x: m.head(m.fc(x).add_(x).relu()),
    "softmax": lambda m, x: m.head(m.fc(x).softmax(1)),
    "two normalisations": lambda m, x: m.head(m.norm(m.norm(m.fc(x))).relu()),
    "a gated linear unit": lambda m, x: m.head(functional.glu(m.fc(x)).repeat(1, 2)),
}


@pytest.mark.parametrize("what", BARE)
def test_a_linear_layer_without_its_own_nonlinearity_keeps_eta(what: str) -> None:
    model = filled(By(BARE[what], fc=nn.Linear(4, 4), norm=nn.BatchNorm1d(4), head=nn.Linear(4, 2)))
    x = drawn(7, 4, seed=70)
    rates = rates_of(model, x)
    assert set(rates.factors) == {"head.weight", "head.bias"}
    assert_rates(rates, "head", model.eval()(x).mean(0), number=1, of=1, units=2)


# ---------------------------------------------------------------- attention, residual branches, gated units


class Block(nn.Module):
    """A hand-written transformer block with a classifier of the mean token."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 6)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        n = self.norm1(x)
        q, k, v = (each(n).unflatten(2, (2, 3)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = (q @ k.transpose(2, 3) / 3**0.5).softmax(-1)
        x = x + self.dropout(self.o((scores @ v).transpose(1, 2).flatten(2)))
        x = x + self.fc2(self.dropout(functional.gelu(self.fc1(self.norm2(x)))))
        return self.head(x.mean(1))


def test_projections_of_hand_written_attention_and_residual_branches_keep_eta() -> None:
    model, x = filled(Block()), torch.randint(0, 11, (5, 4), generator=torch.Generator().manual_seed(0))
    rates = rates_of(model, x)
    assert list(rates.layers) == ["fc1", "head"]
    assert set(rates.factors) == {"fc1.weight", "fc1.bias", "head.weight", "head.bias"}
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    h, logits = np.zeros(8), np.zeros(3)
    for words in x.numpy():  # one sentence after the other, with numpy alone
        tokens = state["words.weight"][words]

        def layer(name: str, a: np.ndarray) -> np.ndarray:
            return a @ state[f"{name}.weight"].T + state[f"{name}.bias"]

        def normed(name: str, a: np.ndarray) -> np.ndarray:
            a = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
            return a * state[f"{name}.weight"] + state[f"{name}.bias"]

        n = normed("norm1", tokens)
        q, k, v = layer("q", n), layer("k", n), layer("v", n)
        heads = []
        for part in (slice(0, 3), slice(3, 6)):
            e = np.exp(q[:, part] @ k[:, part].T / 3**0.5)
            heads.append(e / e.sum(1, keepdims=True) @ v[:, part])
        tokens = tokens + layer("o", np.concatenate(heads, 1))
        hidden = gelu(torch.from_numpy(layer("fc1", normed("norm2", tokens)))).numpy()
        h += hidden.mean(0) / len(x)
        logits += layer("head", (tokens + layer("fc2", hidden)).mean(0, keepdims=True))[0] / len(x)
    assert_rates(rates, "fc1", torch.from_numpy(h), number=1, of=2, units=4 * 8)
    assert_rates(rates, "head", torch.from_numpy(logits), number=2, of=2, units=3)


def test_of_a_gated_unit_only_the_gate_holds_neurons() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(x + m.down(functional.silu(m.gate(x)) * m.up(x)))

    linear = {"gate": nn.Linear(3, 6), "up": nn.Linear(3, 6), "down": nn.Linear(6, 3)}
    model, x = filled(By(forward, **linear, head=nn.Linear(3, 2))), drawn(7, 3, seed=70)
    rates = rates_of(model, x)
    assert list(rates.layers) == ["gate", "head"]
    assert_rates(rates, "gate", silu(model.gate(x)).mean(0), number=1, of=2, units=6)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("activation", "by_hand"), [("relu", relu), ("gelu", gelu)])
def test_torchs_transformer_layer(
    activation: str, by_hand: Callable[[torch.Tensor], torch.Tensor], norm_first: bool
) -> None:
    """Its fused kernel, which eval mode uses without gradients, would hide linear1."""
    layer = nn.TransformerEncoderLayer(6, 2, 8, activation=activation, batch_first=True, norm_first=norm_first)
    model = filled(By(lambda m, x: m.head(m.layer(x).mean(1)), layer=layer, head=nn.Linear(6, 3)))
    x = drawn(5, 4, 6, seed=70)
    rates = rates_of(model.train(), x)
    assert list(rates.layers) == ["layer.linear1", "head"]
    assert set(rates.factors) == {"layer.linear1.weight", "layer.linear1.bias", "head.weight", "head.bias"}
    own = model.eval().layer
    with torch.enable_grad():  # not fused
        n = own.norm1(x) if norm_first else x
        a = x + own.self_attn(n, n, n, need_weights=False)[0]
        h = by_hand(own.linear1(own.norm2(a) if norm_first else own.norm1(a))).mean((0, 1))
    assert_rates(rates, "layer.linear1", h, number=1, of=2, units=4 * 8)


def test_torchs_transformer_with_a_padding_mask_and_torchs_decoder() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        mask = torch.tensor([False, False, False, True]).expand(len(x), 4)
        coded = m.encoder(x, src_key_padding_mask=mask)
        return m.head(m.decoder(x, coded)[:, 0])

    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    decoder = nn.TransformerDecoderLayer(6, 2, 8, batch_first=True, activation=torch.tanh)
    model = filled(By(forward, encoder=encoder, decoder=decoder, head=nn.Linear(6, 3)))
    rates = rates_of(model, drawn(5, 4, 6, seed=70))
    hidden = ["encoder.layers.0.linear1", "encoder.layers.1.linear1", "decoder.linear1"]
    assert list(rates.layers) == [*hidden, "head"]


def test_recurrent_cells_and_embeddings_keep_eta() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(m.lstm(m.words(x))[0][:, -1])

    words, lstm, head = nn.Embedding(11, 3), nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 3)
    model = filled(By(forward, words=words, lstm=lstm, head=head))
    x = torch.randint(0, 11, (5, 4), generator=torch.Generator().manual_seed(0))
    rates = rates_of(model, x)
    assert set(rates.factors) == {"head.weight", "head.bias"}
    assert_rates(rates, "head", model(x).mean(0), number=1, of=1, units=3)


# ---------------------------------------------------------------- convolutions


CONVOLUTIONS: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], bool]] = {
    "pooling before ReLU": (lambda m, x: functional.max_pool2d(m.conv(x), 2).relu(), False),
    "nothing": (lambda m, x: m.conv(x), False),
    "a residual sum before ReLU": (lambda m, x: (x + m.norm(m.conv(x))).relu(), True),
    "a residual sum in place before ReLU": (lambda m, x: (m.norm(m.conv(x)).add_(x)).relu_(), True),
    "a normalisation": (lambda m, x: m.norm(m.conv(x)), True),
    "flattening before ReLU": (lambda m, x: m.conv(x).flatten(1).relu().unflatten(1, (4, 4, 4)), False),
}


@pytest.mark.parametrize("what", CONVOLUTIONS)
def test_a_convolution_without_its_own_nonlinearity_has_relu(what: str) -> None:
    """A convolution holds neurons in any case; the paper's h comes after ReLU."""
    after, normalised = CONVOLUTIONS[what]
    parts = {"conv": nn.Conv2d(4, 4, 3, padding=1), "norm": nn.BatchNorm2d(4), "head": nn.Linear(4, 2)}
    model, x = filled(By(lambda m, x: m.head(after(m, x).mean((2, 3))), **parts)), drawn(5, 4, 4, 4, seed=70)
    rates = rates_of(model, x)
    with torch.no_grad():
        y = model.eval().conv(x)
        h = relu(model.norm(y) if normalised else y).mean((0, 2, 3))
    assert_rates(rates, "conv", h, number=1, of=2, units=4 * 4 * 4)
    assert ("norm.weight" in rates.factors) == normalised


def test_a_batch_norm_behind_two_convolutions_keeps_eta() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head((m.norm(m.a(x)).relu() + m.norm(m.b(x)).relu()).mean((2, 3)))

    parts = {"a": nn.Conv2d(2, 4, 3), "b": nn.Conv2d(2, 4, 3), "norm": nn.BatchNorm2d(4), "head": nn.Linear(4, 2)}
    model, x = filled(By(forward, **parts)), drawn(5, 2, 6, 6, seed=70)
    rates = rates_of(model, x)
    assert not {"norm.weight", "norm.bias"} & set(rates.factors)
    with torch.no_grad():
        model.eval()
        for number, name in enumerate("ab", start=1):
            h = model.norm(getattr(model, name)(x)).relu().mean((0, 2, 3))
            assert_rates(rates, name, h, number=number, of=3, units=4 * 16)


# ---------------------------------------------------------------- the classifier


@pytest.mark.parametrize("hidden", [False, True])
def test_an_auxiliary_head_that_runs_last_is_not_the_classifier(hidden: bool) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.fc(x).relu()
        logits = m.head(h)
        m.side = m.aux(m.aux_fc(h).relu() if hidden else h)
        return logits

    parts = {"fc": nn.Linear(3, 6), "head": nn.Linear(6, 2), "aux_fc": nn.Linear(6, 6), "aux": nn.Linear(6, 2)}
    model, x = filled(By(forward, **parts)), drawn(7, 3, seed=70)
    rates = rates_of(model, x)
    assert list(rates.layers) == ["fc", *(["aux_fc"] if hidden else []), "head"]  # the classifier is l = L
    assert not {"aux.weight", "aux.bias"} & set(rates.factors)
    of = len(rates.layers)
    assert_rates(rates, "head", model(x).mean(0), number=of, of=of, units=2)
    assert rates_of(model, x, classifier=False).layers["head"].factors is None
    assert rates_of(model, x, classifier=False).layers["fc"].factors is not None


AFTER_HEAD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nothing": lambda y: y,
    "log_softmax": lambda y: functional.log_softmax(y, 1),
    "softmax": nn.Softmax(1),
    "sigmoid": torch.sigmoid,
    "squeeze": lambda y: y[:, :, None].squeeze(2),
    "view": lambda y: y.view(-1, 4),
    "transpose": lambda y: y.unsqueeze(1).transpose(1, 2).flatten(1),
    "dropout": lambda y: functional.dropout(y, 0.5, training=False),
    "a cast": lambda y: y.float(),
}


@pytest.mark.parametrize("what", AFTER_HEAD)
def test_the_classifier_is_the_layer_whose_output_is_the_models_result(what: str) -> None:
    after = AFTER_HEAD[what]
    model = filled(By(lambda m, x: after(m.head(m.fc(x).relu())), fc=nn.Linear(3, 6), head=nn.Linear(6, 4)))
    x = drawn(7, 3, seed=70)
    assert [(layer.name, layer.last) for layer in find_layers(model, x[:1])] == [("fc", False), ("head", True)]
    logits = model.head(model.fc(x).relu())
    assert_rates(rates_of(model, x), "head", logits.mean(0), number=2, of=2, units=4)


@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(1), lambda y: y.mean((2, 3))])
def test_a_convolution_averaged_over_its_positions_is_the_classifier(
    pool: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return pool(m.head(m.conv(x).relu())).flatten(1)

    model = filled(By(forward, conv=nn.Conv2d(2, 4, 3), head=nn.Conv2d(4, 3, 1)))
    x = drawn(5, 2, 6, 6, seed=70)
    assert [layer.last for layer in find_layers(model, x[:1])] == [False, True]
    assert_rates(rates_of(model, x), "head", model(x).mean(0), number=2, of=2, units=3 * 16)


NO_CLASSIFIER: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "scaled": lambda y, z: 0.5 * y,
    "scaled in place": lambda y, z: y.div_(2.0),
    "a sum": lambda y, z: y + z,
    "a tuple": lambda y, z: (y, z),
}


@pytest.mark.parametrize("what", NO_CLASSIFIER)
def test_without_a_classifier_all_layers_count_up_to_the_last(what: str) -> None:
    def forward(m: Any, x: torch.Tensor) -> Any:
        h = m.fc(x).relu()
        return NO_CLASSIFIER[what](m.head(h), m.other(h))

    parts = {"fc": nn.Linear(3, 6), "head": nn.Linear(6, 2), "other": nn.Linear(6, 2)}
    model, x = filled(By(forward, **parts)), drawn(7, 3, seed=70)
    assert [(layer.name, layer.last) for layer in find_layers(model, x[:1])] == [("fc", False)]
    rates = rates_of(model, x, classifier=False)
    assert_rates(rates, "fc", model.fc(x).relu().mean(0), number=1, of=1, units=6)


GREY, TEXT = Inputs(Kind.IMAGE, (1, 28, 28)), Inputs(Kind.TOKENS, (6,), 9)
NETWORKS: dict[str, tuple[Inputs, list[str], dict[str, Any]]] = {  # examples, layers with neurons, settings
    "mlp": (GREY, ["fc1", "fc2"], {}),
    "mlp3": (GREY, ["fc1", "fc2", "fc3"], {}),
    "svm": (GREY, ["fc"], {}),
    "cnn_mnist": (GREY, ["conv1", "conv2", "fc1", "fc2"], {}),
    "cnn_emnist": (Inputs(Kind.IMAGE, (1, 8, 8)), ["conv1", "conv2", "fc1", "fc2"], {}),
    "lenet5": (GREY, ["conv1", "conv2", "fc1", "fc2", "fc3"], {}),
    "cnn2conv3fc": (GREY, ["conv1", "conv2", "fc1", "fc2", "fc3"], {}),
    "simple_cnn": (GREY, ["conv1", "conv2", "conv3", "fc1", "fc2"], {}),
    "vgg9": (GREY, [*(f"conv{i}" for i in range(1, 7)), "fc1", "fc2", "fc3"], {}),
    "cnn_cifar10": (GREY, [*(f"conv{i}" for i in range(1, 7)), "fc1", "fc2", "fc3"], {}),
    "resnet20": (
        GREY,
        ["conv1", *(f"stage{s}.{b}.conv{c}" for s in (1, 2, 3) for b in (0, 1, 2) for c in (1, 2)), "fc"],
        {},
    ),
    "cnn1d": (Inputs(Kind.SIGNAL, (3, 32)), ["conv1", "conv2", "conv3", "fc"], {}),
    "vit": (GREY, ["layers.0.linear1", "layers.1.linear1", "head"], {"depth": 2, "width": 16, "mlp_width": 8}),
    "transformer": (TEXT, ["layers.0.linear1", "layers.1.linear1", "head"], {}),
    "textcnn": (TEXT, ["convs.0", "convs.1", "convs.2", "fc"], {}),
    "lstm": (TEXT, ["fc"], {}),
}
"""Without wrn56_4, which has resnet20's blocks, and without the networks of torchvision."""


@pytest.mark.parametrize("name", NETWORKS)
def test_the_projects_networks(name: str) -> None:
    inputs, layers, settings = NETWORKS[name]
    config: Choice = MODELS.config(name)(**settings)
    model = networks_by_name.build(config, inputs, 10, seed=1)
    x = torch.randint(1, 9, (3, 6)) if inputs is TEXT else torch.rand(3, *inputs.shape)
    found = find_layers(model, x[:1])
    assert [layer.name for layer in found] == layers
    assert [layer.last for layer in found] == [False] * (len(layers) - 1) + [True]
    own = {name for name, _ in model.named_parameters()}
    if name in ("vit", "transformer", "textcnn", "lstm"):  # embeddings, attention and recurrent layers keep eta
        own = {each for each in own if each.rsplit(".", 1)[0] in layers}
    assert set(rates_of(model, x).factors) == own


# ---------------------------------------------------------------- shared tensors and shared modules


@pytest.mark.parametrize("first", ["words", "decoder"])
def test_a_tensor_shared_by_an_embedding_and_a_linear_layer_keeps_eta(first: str) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.decoder(m.fc(m.words(x)).tanh())

    made = {"words": nn.Embedding(11, 6), "decoder": nn.Linear(6, 11)}
    ordered = {name: made[name] for name in sorted(made, reverse=first == "words")}
    model = By(forward, **ordered, fc=nn.Linear(6, 6))
    model.decoder.weight = model.words.weight
    model = filled(model)
    assert next(iter(dict(model.named_parameters()))) == f"{first}.weight"
    x = torch.randint(0, 11, (5, 4), generator=torch.Generator().manual_seed(0))
    rates = rates_of(model, x)
    assert set(rates.factors) == {"fc.weight", "fc.bias"}
    assert not any(layer.last for layer in find_layers(model, x[:1]))
    assert_rates(rates, "fc", model.fc(model.words(x)).tanh().mean((0, 1)), number=1, of=1, units=4 * 6)


@pytest.mark.parametrize("swapped", [False, True])
def test_two_linear_layers_with_one_weight_keep_eta(swapped: bool) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        first, second = (m.b, m.a) if swapped else (m.a, m.b)
        return m.head(m.fc(second(first(x).relu()).tanh()).relu())

    parts = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "fc": nn.Linear(4, 5), "head": nn.Linear(5, 2)}
    model = By(forward, **parts)
    model.b.weight = model.a.weight
    model, x = filled(model), drawn(7, 4, seed=70)
    rates = rates_of(model, x)
    assert set(rates.factors) == {"fc.weight", "fc.bias", "head.weight", "head.bias"}
    assert_rates(rates, "head", model(x).mean(0), number=2, of=2, units=2)


def test_a_shared_bias_keeps_eta() -> None:
    parts = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "head": nn.Linear(4, 2)}
    model = By(lambda m, x: m.head(m.b(m.a(x).relu()).relu()), **parts)
    model.b.bias = model.a.bias
    rates = rates_of(filled(model), drawn(7, 4, seed=70))
    assert set(rates.factors) == {"a.weight", "b.weight", "head.weight", "head.bias"}


def test_a_linear_layer_called_twice_averages_over_its_nonlinearities() -> None:
    model = filled(By(lambda m, x: m.head(m.fc(m.fc(x).relu()).tanh()), fc=nn.Linear(4, 4), head=nn.Linear(4, 2)))
    x = drawn(7, 4, seed=70)
    first = model.fc(x).relu()
    h = (first.mean(0) + model.fc(first).tanh().mean(0)) / 2
    assert_rates(rates_of(model, x), "fc", h, number=1, of=2, units=4)


def test_a_linear_layer_with_one_call_without_a_nonlinearity_keeps_eta() -> None:
    model = filled(By(lambda m, x: m.head(m.fc(m.fc(x).relu())), fc=nn.Linear(4, 4), head=nn.Linear(4, 2)))
    assert set(rates_of(model, drawn(7, 4, seed=70)).factors) == {"head.weight", "head.bias"}


# ---------------------------------------------------------------- exclude


def attention() -> Any:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(m.fc(x + m.att.out(m.att.q(x).relu() * m.att.k(x).relu())).relu())

    att = nn.ModuleDict({"q": nn.Linear(4, 4), "k": nn.Linear(4, 4), "out": nn.Linear(4, 4)})
    return filled(By(forward, att=att, fc=nn.Linear(4, 5), head=nn.Linear(5, 2)))


def test_excluded_layers_keep_eta_and_do_not_count() -> None:
    model, x = attention(), drawn(7, 4, seed=70)
    assert list(rates_of(model, x).layers) == ["att.q", "att.k", "fc", "head"]
    rates = rates_of(model, x, exclude=["att.*"])
    assert list(rates.layers) == ["fc", "head"]
    assert set(rates.factors) == {"fc.weight", "fc.bias", "head.weight", "head.bias"}
    assert rates.layers["fc"].mu == pytest.approx(1.0 + 1 / 2 + np.log10(5))
    assert_rates(rates, "head", model(x).mean(0), number=2, of=2, units=2)


def test_exclude_takes_several_patterns_and_the_classifier() -> None:
    model, x = attention(), drawn(7, 4, seed=70)
    rates = rates_of(model, x, exclude=["*.q", "head"])
    assert list(rates.layers) == ["att.k", "fc"]
    assert rates_of(model, x, exclude=["*"]).factors == {}


def test_a_module_with_two_names_is_excluded_by_either() -> None:
    fc = nn.Linear(3, 6)
    model = filled(By(lambda m, x: m.head(m.b(x).relu()), a=fc, b=fc, head=nn.Linear(6, 2)))
    for pattern in "ab":
        assert list(rates_of(model, drawn(7, 3), exclude=[pattern]).layers) == ["head"]


def test_a_batch_norm_behind_an_excluded_convolution_keeps_eta() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    assert set(rates_of(model, torch.rand(5, 1, 6, 6), exclude=["0"]).factors) == {"4.weight", "4.bias"}


@pytest.mark.parametrize("pattern", ["at.*", "words", "att", "FC"])
def test_a_pattern_that_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError) as raised:
        rates_of(attention(), drawn(7, 4), exclude=["fc", pattern])
    assert str(raised.value) == (
        f"exclude = ['fc', '{pattern}'] is not allowed: the pattern '{pattern}' matches no linear or convolution "
        "module of the model; the names of these modules are: 'att.q', 'att.k', 'att.out', 'fc', 'head'"
    )


def test_the_refusal_of_a_pattern_stays_short() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(50)))
    with pytest.raises(ConfigError, match=r"'19' and 30 more$"):
        rates_of(model, drawn(7, 2), exclude=["a"])


def test_exclude_is_not_a_single_text() -> None:
    with pytest.raises(ConfigError, match=r"exclude = 'fc' is not allowed: exclude must be a list of patterns"):
        rates_of(attention(), drawn(7, 4), exclude="fc")


def test_exclude_is_a_setting_of_the_rule() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    images = np.random.default_rng(0).integers(0, 256, (6, 1, 4, 4), dtype=np.uint8)
    spec = Spec.images(images.shape[1:], 10, (0.4,), (0.3,))
    data = Examples(images, np.zeros(6, int), spec, device=torch.device("cpu"))

    def found(**settings: Any) -> set[int]:
        config = RULES.unflatten(RULES.flatten(RULES.config("fednlr")(**settings)))  # as a message brings it
        job = Job(0, 1, 0, config, data, model, torch.device("cpu"))
        return set(RULES.make(config).begin(job, Received("fednlr"), {}).factors)

    assert found() == {0, 1, 2, 3, 4, 5}
    assert found(exclude=["3"]) == {0, 1, 4, 5}
    with pytest.raises(ConfigError, match=r"the pattern '0' matches no linear or convolution module"):
        found(exclude=["0"])


# ---------------------------------------------------------------- what both passes leave as it was (A5-10)


class Draws(nn.Module):
    """Draws random numbers, counts and replaces a buffer in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(3, 6), nn.Linear(6, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        h = functional.dropout(self.fc(x).relu(), 0.5, training=True)
        self.mean = 0.9 * self.mean + h.mean(0)
        return self.head(h)


def test_a_model_that_draws_and_counts_in_eval_mode_is_left_as_it_was() -> None:
    torch.manual_seed(3)
    model, x = Draws(), torch.rand(7, 3)
    mean, state = model.mean, torch.get_rng_state()
    first = rates_of(model, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.mean is mean
    assert not mean.any()
    assert not model.calls
    second = rates_of(model, x)
    assert all(torch.equal(first.factors[name], second.factors[name]) for name in first.factors)


@pytest.fixture
def fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.parametrize("enabled", [False, True])
def test_torchs_fast_path_is_set_as_before(enabled: bool, fast_path: None) -> None:
    torch.backends.mha.set_fastpath_enabled(enabled)
    seen = []

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.backends.mha.get_fastpath_enabled())
        return m.fc(x)

    model = By(forward, fc=nn.Linear(3, 2))
    network_rates(model, [torch.rand(4, 3)], torch.rand(1, 3))
    assert seen == [False, False]
    assert torch.backends.mha.get_fastpath_enabled() is enabled
    with pytest.raises(RuntimeError):
        network_rates(model, [torch.rand(4, 5)], torch.rand(1, 3))
    assert torch.backends.mha.get_fastpath_enabled() is enabled


def test_a_layer_that_no_batch_calls_keeps_eta() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(m.fc(x).relu()) if len(x) == 1 else m.head(m.other(x).relu())

    parts = {"fc": nn.Linear(3, 6), "other": nn.Linear(3, 6), "head": nn.Linear(6, 2)}
    model, x = filled(By(forward, **parts)), drawn(8, 3)
    layers = find_layers(model, x[:1])
    assert torch.isnan(mean_activations(model, layers, [x])[0]).all()
    assert set(network_rates(model, [x], x[:1]).factors) == {"head.weight", "head.bias"}


def test_without_batches_there_are_no_rates() -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        network_rates(nn.Linear(3, 2), [], torch.rand(1, 3))


def test_the_means_of_time_major_outputs_do_not_depend_on_the_batches() -> None:
    """A layer inside may see (time, batch, units); eq. 14 counts each example once."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.head(m.fc(x.transpose(0, 1)).relu().mean(0))

    model, x = filled(By(forward, fc=nn.Linear(3, 6), head=nn.Linear(6, 2))), drawn(9, 4, 3)
    layers = find_layers(model, x[:1])
    whole, cut = mean_activations(model, layers, [x]), mean_activations(model, layers, [x[:8], x[8:]])
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
