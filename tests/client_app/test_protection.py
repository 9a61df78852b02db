"""The update that a client sends: clipped, with noise, and without metrics that are not protected."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from client_app import protection
from client_app.protection import Protection, protect
from client_app.state.noise_releases import Releases, releases_of
from fedstride.arrays.float64_sums import difference, norm
from fedstride.arrays.named import declare
from fedstride.errors import ConfigError, DataError
from fedstride.messages import wire

SENT = {"w": np.zeros(50_000, np.float32)}
MOVED = {"w": np.full(50_000, 0.1, np.float32)}
DESK = {wire.DESK: True}
METRICS = {wire.NUM_EXAMPLES: 321, wire.CLIENT_ID: 4, wire.TRAIN_LOSS: 0.7, "fednlr/rate_min": 0.1}


def read(config: dict[str, Any], node_config: dict[str, Any]) -> Protection:
    """The protection that a client uses, given the server's config and the node's."""
    return protection.stricter(protection.asked(config), node_config)


def kept() -> Releases:
    """What a client keeps that has no folder."""
    return Releases(None, RecordDict())


def leave(
    protection: Protection,
    server_round: int = 1,
    releases: Releases | None = None,
    moved: Any = MOVED,
    sent: Any = SENT,
) -> tuple[Any, dict[str, Any]]:
    where = {"server_round": server_round, "client_id": 4, "releases": releases or kept()}
    return protect(protection, sent, moved, METRICS, **where)  # type: ignore[arg-type]


def test_no_protection_is_required() -> None:
    model, metrics = leave(read({}, {}))
    assert model is MOVED and metrics == METRICS


def test_a_client_reports_whether_it_clipped() -> None:
    for clipping_norm, bit in ((1.0, 1.0), (1e3, 0.0)):
        model, metrics = leave(read({wire.CLIPPING_NORM: clipping_norm}, {}))
        assert norm(difference(model, SENT, ["w"])) <= clipping_norm * (1 + 1e-6)
        assert metrics == METRICS | {wire.CLIPPED: bit}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_a_mask_is_no_part_of_a_protected_update(value: float, noise: float) -> None:
    """It would make the length of the update infinite, and an update without a finite length counts as zero."""
    mask = {
        "mask": np.array([0.0, value], np.float32),
        "table": np.array(value),
        "moving": np.zeros(2, np.float32),
    }
    sent, moved = declare(SENT | mask, ["moving"]), MOVED | mask | {"moving": np.ones(2, np.float32)}
    model, _ = leave(Protection(1.0, noise), sent=sent, moved=moved)
    assert model["mask"][1:].tobytes() == mask["mask"][1:].tobytes()
    assert model["table"].tobytes() == mask["table"].tobytes()
    assert model["moving"].tolist() == [0.0, 0.0]
    if not noise:
        assert norm({"w": model["w"]}) == pytest.approx(1.0)


def test_with_local_noise_a_client_reports_no_metrics_of_its_data() -> None:
    model, metrics = leave(read({wire.CLIPPING_NORM: 1.0, wire.NOISE_MULTIPLIER: 0.5}, {}))
    assert metrics == {wire.NUM_EXAMPLES: 1, wire.CLIENT_ID: 4, wire.RELEASES: 1}
    assert model["w"].std() == pytest.approx(0.5, rel=0.02)


def test_executed_halves_are_reported_with_local_noise() -> None:
    did = {wire.done("feddyn"): 1, wire.STATE_LOST: 1}
    noised = Protection(1.0, 0.5)
    _, metrics = protect(noised, SENT, MOVED, METRICS | did, server_round=1, client_id=4, releases=kept())
    assert metrics == {wire.NUM_EXAMPLES: 1, wire.CLIENT_ID: 4, wire.RELEASES: 1} | did


def test_other_arrays_cannot_be_sent_with_a_protected_update() -> None:
    more: dict[str, Any] = {"server_round": 1, "client_id": 4, "releases": kept(), "other_arrays": ["x.b", "x.a"]}
    assert protect(Protection(), SENT, MOVED, METRICS, **more)[0] is MOVED
    for asked in (Protection(1.0), Protection(1.0, 0.5)):
        with pytest.raises(ConfigError, match=r"x\.a would be sent unprotected"):
            protect(asked, SENT, MOVED, METRICS, **more)


def test_one_invalid_element_replaces_the_whole_update_by_zero() -> None:
    """A diverged weight, or a weight that the server sent as infinity."""
    invalid = {"w": MOVED["w"].copy()}
    invalid["w"][7] = math.nan
    model, _ = leave(Protection(1.0, 0.1), moved=invalid)
    assert np.isfinite(model["w"]).all()
    assert abs(model["w"].mean()) < 0.01  # the step of 0.1 is not visible


def test_noise_without_a_seed_cannot_be_repeated_by_another() -> None:
    secret = Protection(1.0, 0.5)
    assert not np.array_equal(leave(secret)[0]["w"], leave(secret)[0]["w"])
    known = Protection(1.0, 0.5, noise_seed=3)
    assert np.array_equal(leave(known)[0]["w"], leave(known)[0]["w"])
    assert not np.array_equal(leave(known)[0]["w"], leave(known, 2)[0]["w"])


@pytest.mark.parametrize(
    ("asked", "own", "want"),
    [
        ((2.0, 0.5), (1.0, 0.1), (1.0, 0.5)),
        ((1.0, 0.1), (2.0, 0.5), (1.0, 0.5)),
        ((None, None), (1.5, None), (1.5, 0.0)),
        ((1.5, None), (None, 0.3), (1.5, 0.3)),
    ],
)
def test_the_node_config_can_only_make_protection_stricter(asked: Any, own: Any, want: Any) -> None:
    keys = (wire.CLIPPING_NORM, wire.NOISE_MULTIPLIER)
    given = [{k: v for k, v in zip(keys, one, strict=True) if v is not None} for one in (asked, own)]
    found = read(*given)
    assert (found.clipping_norm, found.noise_multiplier) == want


def test_the_server_cannot_repeat_noise_of_a_node() -> None:
    asked = {wire.CLIPPING_NORM: 1.0, wire.NOISE_MULTIPLIER: 0.5, wire.NOISE_SEED: 3}
    assert read(asked, DESK).noise_seed == 3
    assert read(asked, {wire.NOISE_MULTIPLIER: 0.1} | DESK).noise_seed is None
    for config in ({}, {wire.NOISE_MULTIPLIER: 0.1}, {wire.DESK: False}, {wire.DESK: "yes"}):
        with pytest.raises(ConfigError, match="noise-seed is not allowed at a node") as caught:
            read(asked, config)
        assert caught.value.key == wire.NOISE_SEED


# ---------------------------------------------------------------- repeated releases


def test_a_repeated_round_has_the_same_noise_and_is_no_second_release() -> None:
    known, noisy = kept(), Protection(1.0, 0.5)
    first = leave(noisy, releases=known)
    again = leave(noisy, releases=known)
    assert first[0]["w"].tobytes() == again[0]["w"].tobytes() and again[1][wire.RELEASES] == 1


def test_whatever_differs_has_other_noise_and_counts() -> None:
    known, noisy = kept(), Protection(1.0, 0.5)
    other_sent = {"w": np.full(50_000, 1e-3, np.float32)}
    other_moved = {"w": MOVED["w"] + np.float32(1e-4)}
    found = [
        leave(noisy, releases=known),
        leave(noisy, 2, releases=known),  # the next round
        leave(noisy, releases=known, sent=other_sent),  # the same round with another model
        leave(noisy, releases=known, moved=other_moved),  # and with other data
        leave(Protection(1.0, 0.6), releases=known),
        leave(Protection(0.9, 0.5), releases=known),
    ]
    assert [metrics[wire.RELEASES] for _, metrics in found] == [1, 2, 3, 4, 5, 6]
    bare = {"w": MOVED["w"] / norm(MOVED)}
    noises = [model["w"] - bare["w"] for model, _ in found]
    for i, one in enumerate(noises):
        for other in noises[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert leave(noisy, 2, releases=known)[1][wire.RELEASES] == 6


def test_the_secret_is_kept_on_disk_for_this_user_only(tmp_path: Path) -> None:
    config = {wire.RUN: "0123456789abcdef"}
    noisy = Protection(1.0, 0.5)

    def begun() -> Releases:
        """As after a restart of the node."""
        context = Context(1, 7, {"state": str(tmp_path)}, RecordDict(), {})
        return releases_of(config, context, 4)

    first, again = leave(noisy, releases=begun()), leave(noisy, releases=begun())
    other = leave(noisy, 2, releases=begun())
    assert first[0]["w"].tobytes() == again[0]["w"].tobytes()
    assert [metrics[wire.RELEASES] for _, metrics in (first, again, other)] == [1, 1, 2]
    (file,) = tmp_path.rglob("releases.json")
    assert file == tmp_path / "0123456789abcdef/4/releases.json" and file.stat().st_mode & 0o777 == 0o600


def test_releases_of_several_processes_at_once_are_all_counted(tmp_path: Path) -> None:
    """Threads are to the lock as processes are."""
    path = tmp_path / "run/4/releases.json"
    with ThreadPoolExecutor(8) as pool:
        counted = list(pool.map(lambda n: Releases(path, RecordDict()).stream(f"{n:064}", 1)[1], range(40)))
    assert sorted(counted) == list(range(1, 41))
    assert len(json.loads(path.read_text())["known"]) == 40


DAMAGED = [
    b"",
    b"{}",
    b"[]",
    b'{"secret": "ab", "known": []}',
    b"\xff",
    b'{"secret": 5}',
    b"[" * 100_000,
    b'{"secret": "%s", "known": "xyz"}' % (b"0" * 64),
    b'{"secret": "%s", "known": [1]}' % (b"0" * 64),
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_no_new_secret(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run/4/releases.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"releases\.json (is damaged|has another content): delete it"):
        leave(Protection(1.0, 0.5), releases=Releases(path, RecordDict()))
    assert path.read_bytes() == content


def test_without_a_disk_the_secret_is_kept_in_memory(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "run").write_text("a file where a folder should be")
    known = Releases(tmp_path / "run/4/releases.json", RecordDict())
    first, again = leave(Protection(1.0, 0.5), releases=known), leave(Protection(1.0, 0.5), releases=known)
    assert first[0]["w"].tobytes() == again[0]["w"].tobytes() and again[1][wire.RELEASES] == 1
    assert "is kept in memory" in caplog.text


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({wire.CLIPPING_NORM: 0.0}, "clipping-norm = 0.0"),
        ({wire.CLIPPING_NORM: math.nan}, "clipping-norm = nan"),
        ({wire.CLIPPING_NORM: "a lot"}, "clipping-norm = 'a lot'"),
        ({wire.CLIPPING_NORM: True}, "clipping-norm = True"),
        ({wire.CLIPPING_NORM: 5e-324}, "clipping-norm = 5e-324"),
        ({"clipping_norm": 1.0}, "unknown key 'clipping_norm'"),
        ({"Clip-norm": 1.0}, "unknown key 'Clip-norm'"),
        ({"noise": 1.0}, "unknown key 'noise'"),
        ({wire.NOISE_MULTIPLIER: -1.0}, "noise-multiplier = -1.0"),
        ({wire.NOISE_MULTIPLIER: math.inf}, "noise-multiplier = inf"),
        (
            {wire.NOISE_MULTIPLIER: 1e-9, wire.CLIPPING_NORM: 1.0},
            "noise-multiplier = 1e-09 must be 0, or from 1e-06",
        ),
        ({wire.NOISE_MULTIPLIER: False}, "noise-multiplier = False"),
        ({wire.NOISE_MULTIPLIER: 1.0}, "noise-multiplier = 1 needs a clipping-norm"),
    ],
)
def test_invalid_privacy_settings_are_rejected(config: dict[str, Any], said: str) -> None:
    for asked, own in ((config, {}), ({}, config)):
        with pytest.raises(ConfigError, match=said):
            read(asked, own)
