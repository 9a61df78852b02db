"""The reference computation against every worked number of docs/methods.md, and its own branches by hand."""

from __future__ import annotations

import numpy as np
import pytest
import reference as ref
from reference import Array, Model

SHARES = [0.1, 0.3, 0.6]
UNIFORM = [1.0 / 3.0] * 3


def toy(a_weight: object, a_bias: object, b_weight: object) -> Model:
    values = {"a.weight": a_weight, "a.bias": a_bias, "b.weight": b_weight}
    return {name: np.array(value, dtype=np.float64) for name, value in values.items()}


SENT = toy([[1, -2], [0.5, 3]], [0, 1], [[2, -1]])
DELTAS = [
    toy([[0.1, 0.2], [-0.1, 0.0]], [0.1, 0.0], [[0.3, -0.1]]),
    toy([[-0.2, 0.1], [0.1, 0.3]], [0.0, -0.1], [[-0.1, 0.2]]),
    toy([[0.1, -0.1], [0.2, 0.1]], [0.2, 0.1], [[0.2, 0.1]]),
]
CLIENTS = [{name: SENT[name] + delta[name] for name in SENT} for delta in DELTAS]


def printed(value: object, digits: int = 10) -> object:
    """Equal to a number printed with so many digits after the point."""
    return pytest.approx(value, rel=0, abs=0.51 * 10.0**-digits)


def fedavg(sent: Model, clients: list[Model], shares: list[float]) -> Model:
    mean = ref.weighted_sum([ref.difference(client, sent) for client in clients], shares)
    return ref.build(sent, mean, ref.average_buffers(sent, clients, shares))


def flat(model: Model) -> Array:
    return np.concatenate([ref.f64(model[name]).ravel() for name in ref.parameters(model)])


# ---- the worked round ----
def test_worked_fednnnn_by_examples() -> None:
    got = ref.FedNNNN(0.7, 0.8).round(SENT, CLIENTS, SHARES)
    assert got["N"] == printed(0.2942787794)
    assert got["E"] == printed(0.4260946646)
    assert got["average"]["a.weight"][0] == printed([1.01, -2.01])
    assert got["sent"]["a.weight"][0] == printed([1.0101355003, -2.0101355003])
    assert not got["skipped"]


def test_worked_fednnnn_uniform() -> None:
    got = ref.FedNNNN(0.7, 0.8).round(SENT, CLIENTS, UNIFORM)
    assert got["N"] == printed(0.2426703296)
    assert got["E"] == printed(0.4276262315)
    assert got["sent"]["a.weight"][0] == printed([1.0, -1.9177654275])


def test_worked_fedalr_unit() -> None:
    got = ref.Fedalr("unit", 1.0).round(SENT, CLIENTS)
    assert got["eta"] == printed([0.4995305513, 0.4700688899, 0.5651899423])
    assert got["model"]["a.weight"][0] == printed([1.0176925892, -1.9307311152])
    assert got["step"] == printed(0.2984751291)


def test_worked_fedalr_mean_norm() -> None:
    got = ref.Fedalr("mean_norm", 1.0).round(SENT, CLIENTS)
    assert got["model"]["a.weight"][0] == printed([1.0075658152, -1.9703788078])
    assert got["step"] == printed(0.1276357947)


def test_worked_fedlws() -> None:
    got = ref.fedlws(SENT, CLIENTS, fedavg(SENT, CLIENTS, SHARES), beta=0.1)
    assert got["tau"] == printed({"a": 0.2825629141, "b": 0.1929932615})
    assert got["gamma"] == printed({"a": 0.9982292886, "b": 0.9985969591})
    assert got["model"]["a.weight"][0] == printed([1.0082115815, -2.0064408701])
    assert got["model"]["b.weight"][0] == printed([2.1170255534, -0.8887512936])


def test_worked_fedlws_model_wise() -> None:
    got = ref.fedlws(SENT, CLIENTS, fedavg(SENT, CLIENTS, SHARES), beta=0.1, granularity="model")
    assert got["tau"] == printed({"model": 0.3495077873})
    assert got["gamma"] == printed({"model": 0.9977195960})


# ---- the worked detector and the rates of 2D-LRD ----
def test_worked_detector() -> None:
    steps = [1, 0.5, -0.4, 0.3, -0.3, 0.2, -0.2, 0.2, -0.2, 0.1, -0.1, 0.1, -0.1]
    detector = ref.Pflug(window=2)
    theta, got = 0.0, []
    for step in steps:
        before, theta = theta, theta + step
        got.append(detector.round({"x": np.array([before])}, {"x": np.array([theta])}))
    s_before = [0, 0.5, 0.3, 0.18, 0.09, 0.03, -0.01, -0.04, -0.08, -0.10]
    assert [one["S_before"] for one in got[:10]] == pytest.approx(s_before, abs=1e-12)
    assert [one["d"] for one in got] == [0] * 6 + [1] * 3 + [2] * 3 + [3]
    assert [r for r, one in enumerate(got, 1) if one["triggered"]] == [7, 10, 13]
    assert [one["S"] for one in got if one["triggered"]] == [0.0, 0.0, 0.0]
    assert got[1]["inner"] == pytest.approx(0.5)


@pytest.mark.parametrize(("d", "alpha"), [(0, 1.0), (1, 0.8), (2, 0.6), (3, 0.4), (4, 0.2)])
def test_printed_attenuation(d: int, alpha: float) -> None:
    assert ref.rates(0.1, 0.2, d, 3) == pytest.approx([0.1, 0.1 * alpha, 0.1 * alpha**2])
    assert ref.rates(0.1, 0.2, d, 3, "additive") == pytest.approx([0.1, 0.1 * alpha, 0.1 * alpha])


def test_switch_to_one_iteration() -> None:
    assert ref.rates(0.1, 0.2, 5, 3) == ref.rates(0.1, 0.2, 5, 3, "additive") == [0.1]
    assert ref.rates(0.1, 0.2, 9, 3) == [0.1]
    assert ref.rates(0.1, 1.0 / 3.0 - 1e-12, 3, 4) == [0.1]
    assert ref.rates(0.1, 0.0, 50, 2) == [0.1, 0.1]
    assert ref.rates(0.1, 0.2, 2, 3, "all") == pytest.approx([0.064] * 3)


# ---- Example 1 of FedNLR ----
W1 = np.array([[1, 1 / 3], [1 / 3, 1]])
W2 = np.array([[10 / 9, 2 / 3], [2 / 3, 10 / 9]])
X1, X2 = np.array([1, 1 / 3]), np.array([1 / 3, 1])


def softmax(z: Array) -> Array:
    return np.exp(z - z.max()) / np.exp(z - z.max()).sum()


def forward(x: Array, w1: Array, w2: Array) -> tuple[Array, Array]:
    h = np.maximum(w1 @ x, 0.0)
    return h, softmax(w2 @ h)


def one_step(rates1: Array, rates2: Array) -> tuple[Array, Array]:
    """A step of client 1, which holds X1 of class 1, with one rate per row of weights."""
    h, p = forward(X1, W1, W2)
    at_logits = p - np.array([1.0, 0.0])
    at_hidden = (W2.T @ at_logits) * (h > 0.0)
    w1 = W1 - rates1[:, None] * np.outer(at_hidden, X1)
    return w1, W2 - rates2[:, None] * np.outer(at_logits, h)


def test_example_1_sgd() -> None:
    h, p = forward(X2, W1, W2)
    assert h == printed([0.6666667, 1.1111111], 7)
    assert p == printed([0.4507772, 0.5492228], 7)
    half = np.full(2, 0.5)
    h, p = forward(X2, *one_step(half, half))
    assert h == printed([0.7334485, 1.0443293], 7)
    assert p == printed([0.6325166, 0.3674834], 7)
    assert 10 / 9 - h[1] == printed(0.067, 3)


def test_example_1_fednlr() -> None:
    h_mean, logits = W1 @ X1, W2 @ (W1 @ X1)
    rates1 = ref.fednlr_rates(h_mean, 0.5, layer_index=1, n_layers=2, units=2)
    rates2 = ref.fednlr_rates(logits, 0.5, layer_index=2, n_layers=2, units=2)
    assert rates1 == printed([0.6429885, 0.3570115], 7)
    assert rates2 == printed([0.6970642, 0.3029358], 7)
    for rates, h, mu, temperature in (
        (rates1, h_mean, 1.8010300, 0.7553971),
        (rates2, logits, 2.3010300, 0.2370303),
    ):
        assert rates.max() / rates.min() == printed(mu, 7)
        assert (h.max() - h.min()) / np.log(rates.max() / rates.min()) == printed(temperature, 7)
        assert rates.mean() == pytest.approx(0.5)
    h, _ = forward(X2, *one_step(rates1, rates2))
    assert h == printed([0.7525465, 1.0634274], 7)
    assert 10 / 9 - h[1] == printed(0.048, 3)


def test_fednlr_equal_rates() -> None:
    def rates(h: list[float], **options: float) -> list[float]:
        return list(ref.fednlr_rates(np.array(h), 0.1, layer_index=1, n_layers=2, units=4, **options))

    assert rates([2.0, 2.0, 2.0]) == [0.1] * 3
    assert rates([2.0]) == [0.1]
    assert rates([1.0, 2.0], a1=0.0, a2=0.0) == [0.1] * 2
    assert rates([1.0, 2.0], mu0=0.1, a1=0.1, a2=0.1) == [0.1] * 2
    assert rates([1.0, 2.0, 4.0]) == pytest.approx(rates([1e3 + 1, 1e3 + 2, 1e3 + 4]))


# ---- models, buffers, groups ----
def test_layers_and_groups() -> None:
    model = ref.make_model(np.random.default_rng(0))
    assert ref.layers(model) == {
        "conv1": ["conv1.weight", "conv1.bias"],
        "bn1": ["bn1.weight", "bn1.bias"],
        "fc": ["fc.weight", "fc.bias"],
        "scale": ["scale"],
    }
    groups = [["conv1.weight", "conv1.bias"], ["bn1.weight", "bn1.bias"], ["fc.weight", "fc.bias", "scale"]]
    assert ref.reference_groups(model) == groups
    assert list(ref.lws_groups(model, "layer", "reference")) == ["conv1", "bn1", "fc"]
    del model["conv1.bias"]
    assert ref.reference_groups(model)[0] == ["conv1.weight", "bn1.weight", "bn1.bias"]
    assert ref.reference_groups({"u.weight": SENT["b.weight"], "v": SENT["b.weight"]}) == [["u.weight", "v"]]
    assert ref.is_buffer("index", np.arange(3)) and ref.is_buffer("mask", np.array(True))
    assert ref.is_buffer("a.running_mean", np.zeros(2)) and not ref.is_buffer("running_mean.a", np.zeros(2))


def test_buffers() -> None:
    sent: Model = {"w": np.zeros(1), "i": np.array(0), "b": np.array([True, False, True]), "running_var": W1}
    clients: list[Model] = [
        {"w": np.zeros(1), "i": np.array(2), "b": np.array([True, True, False]), "running_var": W1},
        {"w": np.zeros(1), "i": np.array(3), "b": np.array([False, False, False]), "running_var": 3 * W1},
    ]
    got = ref.average_buffers(sent, clients, [0.5, 0.5])
    assert list(got) == ["i", "b", "running_var"]
    assert got["i"] == 2 and got["i"].dtype == sent["i"].dtype
    assert got["b"].tolist() == [True, False, False] and got["b"].dtype == bool
    assert np.allclose(got["running_var"], 2 * W1)
    assert ref.average_buffers(sent, clients, [0.2, 0.8])["b"].tolist() == [False, False, False]


def test_make_clients() -> None:
    rng = np.random.default_rng(1)
    model = ref.make_model(rng)
    for client in ref.make_clients(rng, model, 4, size=2.0):
        assert [(n, a.shape, a.dtype) for n, a in client.items()] == [
            (n, a.shape, a.dtype) for n, a in model.items()
        ]
        assert (client["bn1.running_var"] > 0).all()
        assert client["bn1.num_batches_tracked"] > model["bn1.num_batches_tracked"]


# ---- trajectories and the identities of docs/methods.md ----
@pytest.fixture
def rounds() -> list[tuple[Model, list[Model]]]:
    rng = np.random.default_rng(2)
    model = ref.make_model(rng)
    return [(model, ref.make_clients(rng, model, 3)) for _ in range(3)]


@pytest.mark.parametrize("per_layer", [False, True])
def test_fednnnn_over_rounds(rounds: list[tuple[Model, list[Model]]], per_layer: bool) -> None:
    plain, rule = ref.FedNNNN(0.7, 0.0, per_layer), ref.FedNNNN(0.7, 0.8, per_layer)
    d = np.zeros(0)
    for index, (sent, clients) in enumerate(rounds):
        base, got = plain.round(sent, clients, SHARES), rule.round(sent, clients, SHARES)
        fresh = flat(base["sent"]) - flat(sent)
        d = fresh if index == 0 else 0.8 * d + fresh
        assert flat(got["sent"]) - flat(sent) == pytest.approx(d)
        if not per_layer:
            assert np.linalg.norm(fresh) == pytest.approx(0.7 * got["E"])
        for name in ref.layers(sent)["conv1"] if per_layer else []:
            mean = got["average"][name] - sent[name]
            factor = 0.7 * got["layer_E"]["conv1"] / got["layer_N"]["conv1"]
            assert np.allclose(base["sent"][name] - sent[name], factor * mean)
        assert got["N"] <= got["E"]
        assert got["N"] ** 2 == pytest.approx(sum(n**2 for n in got["layer_N"].values()))
        assert np.array_equal(got["sent"]["bn1.running_var"], got["average"]["bn1.running_var"])


def test_fednnnn_skips() -> None:
    back = [{name: SENT[name] - DELTAS[0][name] for name in SENT}, CLIENTS[0]]
    rule = ref.FedNNNN(0.7, 0.8)
    rule.round(SENT, CLIENTS, SHARES)
    before = flat(rule.d)
    got = rule.round(SENT, back, [0.5, 0.5])
    assert got["skipped"] and got["E"] > 0
    assert np.array_equal(flat(got["sent"]), flat(SENT)) and np.array_equal(flat(rule.d), before)
    assert rule.round(SENT, [SENT], [1.0])["skipped"]
    still = [{**client, "b.weight": SENT["b.weight"]} for client in CLIENTS]
    got = ref.FedNNNN(0.7, 0.8, per_layer=True).round(SENT, still, SHARES)
    assert not got["skipped"] and np.array_equal(got["sent"]["b.weight"], SENT["b.weight"])
    assert not np.array_equal(got["sent"]["a.weight"], SENT["a.weight"])


def test_momentum_over_rounds(rounds: list[tuple[Model, list[Model]]]) -> None:
    rule, d = ref.Momentum(0.9), np.zeros(0)
    for index, (sent, clients) in enumerate(rounds):
        mean = flat(fedavg(sent, clients, SHARES)) - flat(sent)
        d = mean if index == 0 else 0.9 * d + mean
        assert flat(rule.round(sent, clients, SHARES)) - flat(sent) == pytest.approx(d)


def test_fedalr_over_rounds(rounds: list[tuple[Model, list[Model]]]) -> None:
    rule, seen = ref.Fedalr("raw", 0.5), []
    for sent, clients in rounds:
        got = rule.round(sent, clients)
        g = np.array([flat(sent) - flat(client) for client in clients])
        u = g / np.linalg.norm(g, axis=1, keepdims=True)
        seen.append(u.mean(axis=0))
        big_g = np.mean(seen, axis=0)  # eq. 7 is a running mean
        assert got["c"] == pytest.approx(u @ big_g)
        assert got["cosine"] == pytest.approx(u @ big_g / np.linalg.norm(big_g))
        assert got["G_norm"] == pytest.approx(np.linalg.norm(big_g)) and got["G_norm"] <= 1
        step = 0.5 * np.mean(np.exp(u @ big_g - 1)[:, None] * g, axis=0)
        assert flat(sent) - flat(got["model"]) == pytest.approx(step)
        assert got["step"] == pytest.approx(np.linalg.norm(step))


def test_fedalr_one_client_and_still_client() -> None:
    got = ref.Fedalr("unit", 1.0).round(SENT, CLIENTS[:1])
    assert got["eta"] == got["c"] == got["cosine"] == pytest.approx([1.0])
    assert got["step"] == pytest.approx(1.0)
    got = ref.Fedalr("unit", 1.0).round(SENT, [CLIENTS[0], SENT])
    assert got["c"] == pytest.approx([0.5, 0.0]) and got["G_norm"] == pytest.approx(0.5)


def test_fedlws_options() -> None:
    average = fedavg(SENT, CLIENTS, SHARES)
    gamma = 0.9982292886
    w, s = SENT["a.weight"], average["a.weight"] - SENT["a.weight"]
    for terms, want in (("optimization", w + gamma * s), ("regularization", gamma * w + s)):
        got = ref.fedlws(SENT, CLIENTS, average, beta=0.1, terms=terms)
        assert np.allclose(got["model"]["a.weight"], want, rtol=0, atol=1e-9)
    got = ref.fedlws(SENT, CLIENTS, average, beta=0.1, tau_min=0.02, tau_max=0.025)
    ratio = {k: (1 / got["gamma"][k] - 1) for k in "ab"}
    for layer, product in (("a", 0.025), ("b", 0.02)):
        names = ref.layers(SENT)[layer]
        moved = ref.norm(ref.difference(average, SENT), names) / ref.norm(SENT, names)
        assert ratio[layer] == pytest.approx(product * moved)
    got = ref.fedlws(SENT, CLIENTS, average, beta=0.1, fixed=[1.0, 0.96])
    assert got["gamma"] == {"a": 1.0, "b": 0.96}
    assert np.array_equal(got["model"]["b.weight"], 0.96 * average["b.weight"])


def test_fedlws_identities() -> None:
    average = fedavg(SENT, CLIENTS, SHARES)
    assert np.array_equal(flat(ref.fedlws(SENT, CLIENTS, average, beta=0.0)["model"]), flat(average))
    one = ref.fedlws(SENT, CLIENTS[:1], CLIENTS[0], beta=0.1)
    assert one["tau"] == {"a": 0.0, "b": 0.0} and one["gamma"] == {"a": 1.0, "b": 1.0}
    empty = {**SENT, "b.weight": np.zeros((1, 2))}
    assert ref.fedlws(empty, CLIENTS, average, beta=0.1)["gamma"]["b"] == 1.0


def test_fedlws_shrinks_no_buffer(rounds: list[tuple[Model, list[Model]]]) -> None:
    sent, clients = rounds[0]
    average = fedavg(sent, clients, SHARES)
    for grouping in ("module", "reference"):
        got = ref.fedlws(sent, clients, average, beta=0.1, grouping=grouping)
        for name in average:
            assert np.array_equal(got["model"][name], average[name]) == ref.is_buffer(name, sent[name])
        assert all(0 < gamma < 1 for gamma in got["gamma"].values())


# ---- SCAFFOLD and FedDyn on the toy problem T2 ----
RATES = [0.1, 0.1]
START = {"w": np.array([1.0])}
GRADIENTS = [lambda w: {"w": 2.0 * (w["w"] - 3.0)}, lambda w: {"w": w["w"] + 1.0}]
A, B = 0, 1


def scaffold_round(rule: ref.Scaffold, sent: Model, who: list[int]) -> tuple[Model, list[float]]:
    """The next model, and the Delta_k."""
    done = [rule.client(k, sent, GRADIENTS[k], RATES) for k in who]
    model = rule.round(sent, [w for w, _ in done], [delta for _, delta in done])
    return model, [float((w["w"] - sent["w"])[0]) for w, _ in done]


def test_worked_scaffold_with_all_clients() -> None:
    rule = ref.Scaffold(2)
    first, _ = scaffold_round(rule, START, [A, B])
    assert first["w"] == printed([1.17])
    assert [rule.of_client[k]["w"][0] for k in (A, B)] == [printed(-3.6), printed(1.9)]
    assert rule.c["w"] == printed([-0.85])
    second, moved = scaffold_round(rule, first, [A, B])
    assert moved == [printed(0.1638), printed(0.1102)]
    assert [rule.of_client[k]["w"][0] for k in (A, B)] == [printed(-3.569), printed(2.199)]
    assert (rule.c["w"], second["w"]) == (printed([-0.685]), printed([1.307]))


def test_worked_scaffold_with_one_client_a_round() -> None:
    rule = ref.Scaffold(2)
    first, _ = scaffold_round(rule, START, [A])
    assert (first["w"], rule.c["w"]) == (printed([1.72]), printed([-1.8]))
    second, moved = scaffold_round(rule, first, [B])
    assert moved == [printed(-0.1748)]
    assert rule.of_client[B]["w"] == printed([2.674])
    assert (rule.c["w"], second["w"]) == (printed([-0.463]), printed([1.5452]))


def test_worked_scaffold_with_momentum() -> None:
    rule = ref.Scaffold(2)
    first, _ = scaffold_round(rule, START, [A, B])
    model, _ = rule.client(A, first, GRADIENTS[A], RATES, rho=0.9)
    assert (model["w"], rule.of_client[A]["w"]) == (printed([1.6632]), printed([-5.216]))


def feddyn_round(rule: ref.FedDyn, sent: Model, who: list[int]) -> tuple[Model, list[float]]:
    """The next model, and the w_k."""
    models = [rule.client(k, sent, GRADIENTS[k], RATES) for k in who]
    return rule.round(sent, models), [float(w["w"][0]) for w in models]


def test_worked_feddyn_with_all_clients() -> None:
    rule = ref.FedDyn(2, 0.1)
    first, models = feddyn_round(rule, START, [A, B])
    assert models == [printed(1.716), printed(0.622)]
    assert (rule.u["w"], first["w"]) == (printed([0.169]), printed([1.338]))
    second, models = feddyn_round(rule, first, [A, B])
    assert models == [printed(1.9201796), printed(0.9032622)]
    assert [rule.of_client[k]["w"][0] for k in (A, B)] == [printed(1.2981796), printed(-0.8127378)]
    assert (rule.u["w"], second["w"]) == (printed([0.2427209]), printed([1.6544418]))


def test_worked_feddyn_with_one_client_a_round() -> None:
    rule = ref.FedDyn(2, 0.1)
    first, _ = feddyn_round(rule, START, [A])
    assert first["w"] == printed([2.074])
    second, models = feddyn_round(rule, first, [B])
    assert models == [printed(1.493014)]
    assert (rule.u["w"], second["w"]) == (printed([0.067507]), printed([1.560521]))
