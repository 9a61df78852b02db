"""MOON: its term on worked numbers, one client's rounds against torch's autograd, and its state."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_talk import initial, node, round_config, same, sgd, train

from client_app import from_message
from client_app.objectives.moon import Moon, contrast
from client_app.registry import OBJECTIVES, MoonSettings
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.models.last_layer import last_layer
from fedstride.tasks.models.tensors import load_arrays

RUN = "0123456789abcdef"
SGD = sgd(batch_size=50, lr=0.1)


def moon(mu: float = 1.0, temperature: float = 0.5) -> Any:
    return OBJECTIVES.config("moon")(mu=mu, temperature=temperature)


def later(server_round: int, accepted: int, **more: Any) -> Any:
    versions = {wire.RUN: RUN, wire.ACCEPTED: accepted, wire.OLDEST: 0}
    return round_config(server_round, **{"client": SGD, **more, **versions})


def rows(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


# ---------------------------------------------------------------- the term


def test_worked_numbers() -> None:
    assert float(contrast(rows(1, 0), rows(0.6, 0.8), rows(0, 1), 0.5)) == pytest.approx(0.2632824673, abs=1e-9)


def test_equal_frozen_representations_give_ln_2_and_no_gradient() -> None:
    z = rows(0.3, -1.2, 2.0).requires_grad_()
    other = rows(0.1, 0.7, -0.4)
    value = contrast(z, other, other.clone(), 0.5)
    value.backward()
    assert float(value) == pytest.approx(math.log(2.0), abs=1e-12)
    assert z.grad is not None and float(z.grad.abs().max()) < 1e-15


def test_a_high_temperature_gives_ln_2() -> None:
    assert float(contrast(rows(1, 0), rows(1, 0), rows(-1, 0), 1e12)) == pytest.approx(math.log(2.0), abs=1e-9)


def test_zero_representations_are_finite() -> None:
    z = torch.zeros((2, 3), dtype=torch.float64, requires_grad=True)
    value = contrast(z, torch.ones_like(z), torch.zeros_like(z), 1e-3)
    value.backward()
    assert float(value) == pytest.approx(math.log(2.0), abs=1e-12)
    assert z.grad is not None and bool(z.grad.isfinite().all())


def test_a_large_difference_does_not_overflow() -> None:
    assert float(contrast(rows(1, 0), rows(-1, 0), rows(1, 0), 1e-4)) == pytest.approx(20_000.0)


# ---------------------------------------------------------------- a client's rounds


def test_the_first_participation_and_mu_zero_have_plain_bits() -> None:
    plain, _ = train(later(1, 0))
    assert same(plain, train(later(1, 0, objective=moon()))[0])
    second = train(later(2, 1))[0]
    assert same(second, train(later(2, 1, objective=moon(0.0)))[0])
    assert not same(second, train(later(2, 1, objective=moon()))[0])


def test_two_rounds_against_autograd(tiny: str, tmp_path: Path) -> None:
    """With BatchNorm and dropout, whose draws are those of a round without the term."""
    first, _ = train(later(1, 0, objective=moon(0.7), model=tiny))
    sent = initial(tiny, seed=2)
    got, _ = train(later(2, 1, objective=moon(0.7), model=tiny), sent)
    expected = by_hand(later(2, 1, model=tiny), received=sent, previous=first, mu=0.7)
    other = by_hand(later(2, 1, model=tiny), received=sent, previous=initial(tiny), mu=0.7)
    for name, array in expected.items():
        assert got[name] == pytest.approx(array, abs=1e-5), name
    assert max(np.abs(other[name] - got[name]).max() for name in got if "num" not in name) > 1e-4


def by_hand(config: Any, *, received: Any, previous: Any, mu: float) -> dict[str, np.ndarray]:
    """A round with plain autograd; the two frozen models are separate networks, run by hand up to their `fc`."""
    from client_app.training import batches
    from fedstride import seeds
    from fedstride.tasks.models.torch_seeds import seeded

    job = from_message.read(config, node())
    model = copy.deepcopy(job.model)
    frozen = [copy.deepcopy(job.model).eval() for _ in range(2)]
    load_arrays(model, received)
    for network, arrays in zip(frozen, (received, previous), strict=True):
        load_arrays(network, arrays)

    def features(network: Any, x: torch.Tensor) -> torch.Tensor:
        z = network.bn(network.conv(x)).relu().flatten(1)
        return torch.nn.functional.dropout(z, 0.2, network.training)

    model.train()
    with seeded(seeds.derive(job.seed, "dropout", job.server_round, job.client_id), job.device):
        for positions in batches.epochs(
            len(job.examples), 50, 1, seed=job.seed, server_round=job.server_round, client=job.client_id
        ):
            x, y = job.examples.batch(positions)
            z = features(model, x)
            with torch.no_grad():
                z_g, z_p = (features(network, x) for network in frozen)
            cosines = [torch.nn.functional.cosine_similarity(z, other, eps=1e-8) / 0.5 for other in (z_g, z_p)]
            term = -torch.log_softmax(torch.stack(cosines, 1), 1)[:, 0].mean()  # the form of the paper
            value = torch.nn.functional.cross_entropy(model.fc(z), y) + mu * term
            gradients = torch.autograd.grad(value, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= 0.1 * gradient
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def test_a_rejected_round_leaves_no_trace_and_a_lost_state_is_reported(tmp_path: Path) -> None:
    first, _ = train(later(1, 0, objective=moon()))
    clean = train(later(3, 1, objective=moon()), first)[0]
    train(later(2, 1, objective=moon()), initial())  # rejected by the server: not named in round 3
    again, metrics = train(later(3, 1, objective=moon()), first)
    assert same(clean, again) and wire.STATE_LOST not in metrics
    (tmp_path / "state" / RUN / "0" / "round-000001.safetensors").unlink()
    lost, metrics = train(later(3, 1, objective=moon()), first)
    assert metrics[wire.STATE_LOST] == 1
    assert same(lost, train(later(3, 1), first)[0])


def test_a_state_of_another_network_is_refused(tiny: str) -> None:
    train(later(1, 0, objective=moon(), model=tiny))
    with pytest.raises(ConfigError, match="the state of moon does not fit"):
        train(later(2, 1, objective=moon()))


def test_the_frozen_models_do_not_change_and_no_hook_is_left(tiny: str) -> None:
    job = from_message.read(later(1, 0, model=tiny), node())
    method, state = Moon(MoonSettings()), initial(tiny)
    plan = method.begin(job, None, state)  # type: ignore[arg-type]
    before = [copy.deepcopy(each.state_dict()) for each in (method.received, method.previous)]
    train(later(1, 0, model=tiny, objective=moon()))
    x, y = job.examples.batch(np.arange(20))
    with plan.contexts[0]:
        term = method.term(job.model, x, y, job.model(x))
        term.backward()
    for network, arrays in zip((method.received, method.previous), before, strict=True):
        assert not network.training and not any(p.requires_grad for p in network.parameters())
        assert all(torch.equal(arrays[name], tensor) for name, tensor in network.state_dict().items())
    assert not last_layer(job.model, job.examples.spec.inputs)._forward_pre_hooks


def test_the_hook_is_removed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    train(later(1, 0, objective=moon()))
    monkeypatch.setattr(Moon, "term", lambda *_: torch.zeros(2))  # not a scalar: autograd raises
    with pytest.raises(RuntimeError):
        train(later(2, 1, objective=moon()))
    job = from_message.read(later(1, 0), node())
    assert not last_layer(job.model, job.examples.spec.inputs)._forward_pre_hooks
