"""Networks as people write them: what works, and what is refused before a run by model and array."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedstride.errors import ConfigError
from fedstride.parts import Choice
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.network_arrays import check_arrays
from fedstride.tasks.models.networks_by_name import build
from fedstride.tasks.models.tensors import load_arrays, to_arrays
from fedstride.tasks.registry import MODELS

ROW = Inputs(Kind.TABLE, (5,))


class Small(nn.Module):
    """A network of two layers, changed by a function."""

    def __init__(self, change: Any = None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 4), nn.Linear(4, 2)
        if change is not None:
            change(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


def refused(network: nn.Module) -> str:
    with pytest.raises(ConfigError) as caught:
        check_arrays(network, "mine", ROW)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"model = 'mine' ({type(network).__name__})")
    return str(caught.value)


def buffer(name: str, value: torch.Tensor) -> Any:
    return lambda network: network.first.register_buffer(name, value)


def parameter(name: str, value: torch.Tensor, trained: bool = True) -> Any:
    return lambda network: network.register_parameter(name, nn.Parameter(value, requires_grad=trained))


# ---------------------------------------------------------------- what cannot be averaged


@pytest.mark.parametrize(
    ("change", "array", "why"),
    [
        (parameter("phase", torch.ones(2, dtype=torch.cdouble)), "phase", "is complex128"),
        (buffer("rotary", torch.ones(2, dtype=torch.cfloat)), "first.rotary", "is complex64"),
        (buffer("kernel", torch.ones(2, dtype=torch.complex32)), "first.kernel", "is complex32"),
        (parameter("small", torch.ones(2).to(torch.float8_e4m3fn), False), "small", "is float8_e4m3fn"),
        (buffer("scale", torch.ones(2).to(torch.float8_e5m2)), "first.scale", "is float8_e5m2"),
        (buffer("table", torch.eye(3).to_sparse()), "first.table", "is sparse_coo"),
        (buffer("rows", torch.eye(3).to_sparse_csr()), "first.rows", "is sparse_csr"),
        (
            buffer("eight", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)),
            "first.eight",
            "quantized",
        ),
        (buffer("nowhere", torch.ones(2, device="meta")), "first.nowhere", "has no values (device meta)"),
    ],
)
def test_arrays_that_cannot_be_averaged_are_named(change: Any, array: str, why: str) -> None:
    text = refused(Small(change))
    assert repr(array) in text and why in text


class WithState(nn.Linear):
    """A layer with state that is no tensor."""

    extra: Any = None

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None: ...


@pytest.mark.parametrize("extra", [{"version": 2}, [1, 2], "text"])
def test_extra_state_is_named(extra: Any) -> None:
    network = Small()
    network.first = WithState(5, 4)
    network.first.extra = extra
    text = refused(network)
    assert "'first._extra_state'" in text and type(extra).__name__ in text


def adds(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    state[prefix + "steps"] = torch.zeros(1)


def renames(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    state[prefix + "kernel"] = state.pop(prefix + "weight")


def drops(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    del state[prefix + "bias"]


def turns(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    state[prefix + "weight"] = state[prefix + "weight"].T


def halves(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    state[prefix + "weight"] = state[prefix + "weight"].half()


@pytest.mark.parametrize(
    ("hook", "array"),
    [
        (adds, "last.steps"),
        (renames, "last.weight"),
        (drops, "last.bias"),
        (turns, "last.weight"),
        (halves, "last.weight"),
    ],
)
def test_a_hook_that_changes_the_state_is_named(hook: Any, array: str) -> None:
    network = Small()
    network.last.register_state_dict_post_hook(hook)
    assert repr(array) in refused(network)


def ignores(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    state[prefix + "bias"] = module.bias.detach().clone()


def doubles(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    state[prefix + "bias"] = 2 * state[prefix + "bias"]


def takes(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    state.pop(prefix + "bias")


@pytest.mark.parametrize("hook", [ignores, doubles, takes])
def test_a_hook_that_does_not_load_what_it_gets_is_named(hook: Any) -> None:
    network = Small()
    network.last.register_load_state_dict_pre_hook(hook)
    assert "last.bias" in refused(network)


def test_a_network_without_parameters_is_refused() -> None:
    network = nn.Module()
    network.register_buffer("table", torch.ones(3))
    assert "no floating-point parameters" in refused(network)


@pytest.mark.parametrize(
    "change",
    [
        lambda network: setattr(network.last, "weight", network.last.weight),
        lambda network: nn.utils.parametrizations.weight_norm(network.last),
        lambda network: nn.utils.parametrizations.spectral_norm(network.first),
        lambda network: setattr(network, "head", network.last),
        lambda network: network.register_buffer("passing", torch.full((2,), torch.nan), persistent=False),
        lambda network: setattr(network, "norm", nn.BatchNorm1d(4)),
        lambda network: network.half(),
        lambda network: network.bfloat16(),
    ],
)
def test_usual_networks_pass_and_do_not_change(change: Any) -> None:
    network = Small(change)
    before = {name: array.tobytes() for name, array in to_arrays(network).items()}
    check_arrays(network, "mine", ROW)
    assert {name: array.tobytes() for name, array in to_arrays(network).items()} == before


# ---------------------------------------------------------------- what is not finite


@pytest.mark.parametrize(
    ("change", "array"),
    [
        (parameter("gate", torch.tensor([1.0, -torch.inf])), "gate"),
        (parameter("empty", torch.tensor(torch.nan)), "empty"),
        (parameter("fixed", torch.tensor([torch.nan, 1.0]), False), "fixed"),
        (lambda network: nn.init.constant_(network.last.bias, torch.inf), "last.bias"),
        (lambda network: network.half().last.weight.data.fill_(torch.inf), "last.weight"),
    ],
)
def test_a_parameter_that_begins_not_finite_is_named(change: Any, array: str) -> None:
    assert f"the parameter {array!r} begins with" in refused(Small(change))


class Counting(Small):
    """A buffer that a forward pass changes."""

    def __init__(self, change: Any, value: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("seen", value)
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.change(self, x)
        return super().forward(x)


def set_seen(network: Any, x: torch.Tensor) -> None:
    network.seen = torch.maximum(network.seen, x.max())


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (set_seen, torch.tensor(-torch.inf)),
        (lambda network, x: network.seen.copy_(x.mean(0)), torch.full((5,), torch.nan)),
        (lambda network, x: network.seen[0].zero_(), torch.full((2,), torch.inf)),
    ],
)
def test_a_buffer_that_is_not_finite_and_changes_is_named(change: Any, value: torch.Tensor) -> None:
    assert "the buffer 'seen' begins with values that are not finite" in refused(Counting(change, value))


@pytest.mark.parametrize(
    "change",
    [
        buffer("mask", torch.full((4, 4), -torch.inf).triu(1)),
        buffer("none", torch.full((3,), torch.nan)),
        buffer("lowest", torch.tensor(-torch.inf, dtype=torch.bfloat16)),
        parameter("mask", torch.tensor([0.0, -torch.inf]), False),
    ],
)
def test_a_mask_that_stays_passes(change: Any) -> None:
    check_arrays(Small(change), "mine", ROW)


# ---------------------------------------------------------------- what is made to work


def built(monkeypatch: pytest.MonkeyPatch, network: Any, inputs: Inputs = ROW) -> nn.Module:
    config: Choice = MODELS.config("mlp")()
    monkeypatch.setattr(type(MODELS), "make", lambda *_: network())
    return build(config, inputs, 2, 1)


@pytest.mark.parametrize(
    ("network", "inputs"),
    [
        (lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)), ROW),
        (
            lambda: nn.Sequential(nn.LazyConv2d(3, 3), nn.Flatten(), nn.LazyLinear(2)),
            Inputs(Kind.IMAGE, (1, 8, 8)),
        ),
        (lambda: nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(5, 2)), ROW),
        (lambda: nn.Sequential(nn.Unflatten(1, (1, 5)), nn.LazyConv1d(2, 3), nn.Flatten(), nn.LazyLinear(2)), ROW),
    ],
)
def test_lazy_modules_get_their_sizes_from_the_task(
    monkeypatch: pytest.MonkeyPatch, network: Any, inputs: Inputs
) -> None:
    one, two = (built(monkeypatch, network, inputs) for _ in range(2))
    check_arrays(one, "mine", inputs)
    assert {n: a.tobytes() for n, a in to_arrays(one).items()} == {
        n: a.tobytes() for n, a in to_arrays(two).items()
    }
    assert all(module.training for module in one.modules())


def test_lazy_modules_that_find_no_size_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Small()
    network.unused = nn.LazyLinear(3)
    with pytest.raises(ConfigError, match=r"model = 'mlp' \(Small\): 'unused.weight' has no size"):
        built(monkeypatch, lambda: network)
    with pytest.raises(ConfigError, match=r"'0.weight' has no size .*RuntimeError"):
        built(monkeypatch, lambda: nn.Sequential(nn.LazyConv2d(3, 3)))


@pytest.mark.parametrize(
    "change",
    [
        buffer("row", torch.arange(3.0).expand(4, 3)),
        buffer("one", torch.ones(()).expand(7)),
        buffer("windows", torch.arange(6.0).unfold(0, 3, 1)),
        parameter("scale", torch.ones(1).expand(4)),
        buffer("counts", torch.ones(1, dtype=torch.int64).expand(5)),
    ],
)
def test_arrays_that_share_memory_get_their_own(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    values = {name: array for name, array in to_arrays(Small(change)).items() if "first.w" not in name}
    network = built(monkeypatch, lambda: Small(change))
    check_arrays(network, "mine", ROW)
    arrays = to_arrays(network)
    other = {name: array + 1 for name, array in arrays.items()}
    load_arrays(network, other)
    assert {n: a.tobytes() for n, a in to_arrays(network).items()} == {n: a.tobytes() for n, a in other.items()}
    assert values.keys() <= arrays.keys()


def test_a_shared_buffer_stays_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = torch.ones(1).expand(3)
    network = Small(buffer("ones", shared))
    network.last.register_buffer("ones", shared)
    assert network.first.ones is network.last.ones
    built(monkeypatch, lambda: network)
    assert network.first.ones is network.last.ones
