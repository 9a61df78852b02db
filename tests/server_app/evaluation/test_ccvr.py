"""CCVR: the fit against torch's SGD, runs, what is not affected, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from desk import play, table, weights, whole_and_resumed
from safetensors.numpy import load_file

from client_app.app import app as real
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.statistics.class_moments import ClassMoments, of_examples
from server_app import preparation
from server_app.config.calibrations import CCVRSettings
from server_app.config.compose import compose
from server_app.evaluation.ccvr import CCVR, LastLayer, drawn_representations, refitted
from server_app.exchange.timeouts import Waits

CCVR_RUN = ("calibration=ccvr", "calibration.draws=40", "rounds=2", "strategy=fedavg", "calibration.lr=0.05")


def moments() -> ClassMoments:
    rng = np.random.default_rng(5)
    return of_examples(
        rng.standard_normal((60, 3)) @ np.array([[2, 1, 0], [0, 1, 0], [0, 0, 0.0]]) + 4, np.arange(60) % 2 * 2
    )


@pytest.mark.slow
def test_draws_have_the_moments_of_the_class_and_a_zero_variance_stays_zero() -> None:
    found = moments()
    vectors, labels = drawn_representations(found, 50_000, seed=1, server_round=3)
    assert vectors.dtype == torch.float64 and sorted(set(labels.tolist())) == [0, 2]
    for i, c in enumerate(found.classes):
        rows = vectors[labels == int(c)].numpy()
        assert rows.mean(axis=0) == pytest.approx(found.means[i], abs=0.05)
        assert np.cov(rows.T) == pytest.approx(found.covariances[i], abs=0.15)
        assert rows[:, 2] == pytest.approx(np.full(len(rows), 4.0), abs=1e-6)


def test_draws_of_a_class_depend_on_seed_round_and_class_only() -> None:
    found = moments()
    one = ClassMoments(found.classes[1:], found.counts[1:], found.means[1:], found.covariances[1:])
    both, alone = (drawn_representations(each, 7, 1, 3)[0] for each in (found, one))
    assert torch.equal(both[7:], alone)
    assert not torch.equal(alone, drawn_representations(one, 7, 2, 3)[0])
    assert not torch.equal(alone, drawn_representations(one, 7, 1, 4)[0])


def test_a_negative_eigenvalue_counts_as_zero() -> None:
    odd = ClassMoments(np.array([0]), np.array([5]), np.zeros((1, 2)), np.array([[[1.0, 0.0], [0.0, -3.0]]]))
    vectors, _ = drawn_representations(odd, 100, 1, 1)
    assert (vectors[:, 1] == 0).all() and vectors[:, 0].std() > 0.5


@pytest.mark.slow
def test_the_fit_is_torchs_sgd() -> None:
    vectors, labels = drawn_representations(moments(), 50, 1, 1)
    start = [torch.randn(4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)]
    kind = CCVRSettings(lr=0.1, epochs=2, batch_size=1000, weight_decay=0.01)
    got = refitted(start, vectors, labels, kind, 1, 1)
    w = [torch.nn.Parameter(each.clone()) for each in start]
    sgd = torch.optim.SGD(w, lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(2):  # the batch is everything, so its order matters up to rounding only
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(vectors @ w[0].T + w[1], labels).backward()
        sgd.step()
    for a, b in zip(got, w, strict=True):
        assert a.numpy() == pytest.approx(b.detach().numpy(), abs=1e-12)
    assert all(
        torch.equal(a, b)
        for a, b in zip(refitted(start, vectors, labels, CCVRSettings(epochs=0), 1, 1), start, strict=True)
    )


def calibrated(epochs: int, replies: Any) -> Any:
    layer = LastLayer("fc.weight", "fc.bias", 4, 3)
    ccvr = CCVR(CCVRSettings(epochs=epochs, draws=20), layer, seed=1, rounds=1)
    model = {
        "body": np.float32([1, 2]),
        "fc.weight": np.ones((4, 3), np.float32),
        "fc.bias": np.zeros(4, np.float32),
    }
    record = to_record(model)
    return model, ccvr(1, record, {0: 60, 1: 60}, lambda values, returns: replies, lambda client: f"site-{client}")


def reply(moments: ClassMoments) -> Any:
    from flwr.app import Message, MessageType, RecordDict

    from fedstride.flower import identity

    identity.set_identity()
    asked = Message(RecordDict(), dst_node_id=2, message_type=MessageType.QUERY)
    identity.stamp(asked)
    return Message(RecordDict({wire.CLASS_MOMENTS: to_record(moments.packed())}), reply_to=asked)


def test_only_the_last_layer_changes_and_zero_epochs_change_nothing() -> None:
    replies = {0: reply(moments()), 1: reply(moments())}
    model, copy = calibrated(3, replies)
    got = views(copy.arrays)
    assert copy.clients == 2 and list(got) == list(model)
    assert got["body"].tobytes() == model["body"].tobytes()
    assert got["fc.weight"].dtype == np.float32 and (got["fc.weight"] != model["fc.weight"]).any()
    _, same = calibrated(0, replies)
    assert all(views(same.arrays)[name].tobytes() == model[name].tobytes() for name in model)


def test_invalid_replies_are_left_out_and_without_any_the_copy_is_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = moments()
    broken.means[0, 0] = np.nan
    _, good = calibrated(2, {0: reply(moments())})
    _, both = calibrated(2, {0: reply(moments()), 1: reply(broken)})
    assert both.clients == 1
    assert views(good.arrays)["fc.weight"].tobytes() == views(both.arrays)["fc.weight"].tobytes()
    assert "client site-1: its moments of classes are not used" in caplog.text
    model, none = calibrated(2, {1: reply(broken)})
    assert none.clients == 0 and views(none.arrays)["fc.weight"].tobytes() == model["fc.weight"].tobytes()


# ---------------------------------------------------------------- runs


@pytest.mark.slow
def test_training_is_not_affected_and_the_figures_are_recorded(tmp_path: Path) -> None:
    plain = play(tmp_path, *CCVR_RUN[2:4], "name=plain")
    done = play(tmp_path, *CCVR_RUN, "name=ccvr")
    assert weights(plain.folder) == weights(done.folder)
    assert "ccvr/accuracy" not in done.rows[-2]
    assert done.rows[-1]["ccvr/clients"] == 4 and done.rows[-1]["ccvr/bytes"] > 4 * 784 * 200 * 4
    assert done.rows[-1]["ccvr/accuracy"] != done.rows[-1]["test/accuracy"] == plain.rows[-1]["test/accuracy"]


@pytest.mark.slow
def test_the_server_learns_how_long_clients_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it waits for a client in a later round as long as it is known to take, not as for a new one."""
    finished: list[tuple[str, set[int]]] = []
    wait = Waits.wait

    def watched(self: Waits, kind: str, clients: Any) -> Any:
        made = wait(self, kind, clients)  # type: ignore[arg-type]
        end = made.finished

        def noted(used: Any) -> None:
            finished.append((kind, set(used)))
            end(used)

        made.finished = noted  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(Waits, "wait", watched)
    play(tmp_path, *CCVR_RUN, "calibration.rounds=2", "calibration.epochs=0")
    assert [clients for kind, clients in finished if kind == "calibrate"] == [{0, 1, 2, 3}] * 2


@pytest.mark.slow
def test_zero_epochs_give_the_figures_of_the_model(tmp_path: Path) -> None:
    row = play(tmp_path, *CCVR_RUN, "calibration.epochs=0").rows[-1]
    assert (row["ccvr/accuracy"], row["ccvr/loss"]) == (row["test/accuracy"], row["test/loss"])


@pytest.mark.slow
def test_the_bits_do_not_depend_on_workers_and_survive_a_resume(tmp_path: Path) -> None:
    runs = [play(tmp_path, *CCVR_RUN, f"name={n}", workers=n).folder for n in (0, 2)]
    assert table(runs[0]) == table(runs[1])
    given = [*CCVR_RUN[:2], *CCVR_RUN[3:], "calibration.rounds=2", "rounds=4"]
    whole, resumed = whole_and_resumed(tmp_path, *given)
    assert table(whole) == table(resumed)


@pytest.mark.slow
def test_the_moments_are_those_of_the_training_examples_in_eval_mode(tmp_path: Path) -> None:
    """By hand, from the saved model and the clients' parts."""
    from fedstride.tasks import data
    from fedstride.tasks.models import networks_by_name
    from fedstride.tasks.models.tensors import Examples, load_arrays
    from fedstride.tasks.registry import MODELS, TASKS
    from fedstride.tasks.statistics.class_moments import pooled

    seen: list[Any] = []

    def spying(message: Any, context: Any) -> Any:
        got = real(message, context)
        if wire.CLASS_MOMENTS in (got.content.array_records if got.has_content() else {}):
            seen.append(views(got.content.array_records[wire.CLASS_MOMENTS]))
        return got

    folder = play(tmp_path, *CCVR_RUN, "partition=iid", app=spying).folder  # type: ignore[arg-type]
    source = data.load(TASKS.config("mnist5k")())
    model = networks_by_name.build(MODELS.config("mlp")(), source.spec.inputs, 10, 0)
    load_arrays(model, load_file(folder / "model.safetensors"))
    x, y = Examples(source.train_x, source.train_y, source.spec, device=torch.device("cpu")).batch(
        np.arange(len(source.train_y))
    )
    with torch.no_grad():
        hidden = model.fc1(x.flatten(1)).relu().numpy()
    expected = of_examples(hidden, y.numpy())
    from fedstride.tasks.statistics.class_moments import unpacked

    found = pooled([unpacked(each, 10, 200, 10**6) for each in seen])
    assert len(seen) == 4 and found.counts.tolist() == expected.counts.tolist()
    assert found.means == pytest.approx(expected.means, abs=1e-4)
    assert found.covariances == pytest.approx(expected.covariances, abs=1e-3)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["privacy=local", "evaluate_clients=false"], "calibration = 'ccvr' .*none with privacy=local"),
        (["test_set=false"], "none without a test set"),
        (["target=0.9"], r"target = 0\.9 .*null with calibration=ccvr"),
        (["patience=3"], "patience = 3 .*null with calibration=ccvr"),
        (["train=[fc1]"], r"calibration = 'ccvr' is not allowed with train = .*fc2"),
        (["task=diabetes"], "calibration = 'ccvr' is not allowed: .*cross_entropy"),
        (["task.loss=hinge"], "calibration = 'ccvr' is not allowed: .*cross_entropy"),
    ],
)
def test_refusals(overrides: list[str], said: str, tmp_path: Path) -> None:
    given = ["model=mlp", "calibration=ccvr", "strategy=fedavg", f"out={tmp_path}", *overrides]
    with pytest.raises(ConfigError, match=said):
        preparation.prepare(compose(given))
    assert not any(tmp_path.iterdir())
