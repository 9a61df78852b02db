"""The settings of a run are read once for all its messages, and again for any other message."""

from __future__ import annotations

import pytest
import torch
from client_talk import round_config
from flwr.app import ConfigRecord, Context, RecordDict

from client_app import from_message, message_settings
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.models import numerics


def test_clients_and_rounds_of_a_run_share_what_is_read() -> None:
    first = message_settings.settings_of(round_config(**{wire.ACCEPTED: 0}))
    assert message_settings.settings_of(round_config(**{wire.ACCEPTED: 3, wire.OLDEST: 2})) is first
    assert message_settings.settings_of(round_config(**{wire.SERVER_ROUND: 7})) is first
    other = message_settings.settings_of(round_config(**{wire.SEED: 7}))
    assert (first.seed, other.seed) == (1, 7)


def test_a_round_that_is_no_number_is_noticed_by_each_client() -> None:
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
    assert from_message.read(round_config(**{wire.SERVER_ROUND: 7}), context).server_round == 7
    with pytest.raises(ConfigError, match=f"{wire.SERVER_ROUND} = -1"):
        from_message.read(round_config(**{wire.SERVER_ROUND: -1}), context)


def test_a_value_of_another_type_is_read_again() -> None:
    """In Python, True equals 1, but it is not a number of clients."""
    config = round_config(**{wire.NUM_CLIENTS: 1})
    assert message_settings.settings_of(config).clients == 1
    with pytest.raises(ConfigError, match=wire.NUM_CLIENTS):
        message_settings.settings_of(ConfigRecord({**config, wire.NUM_CLIENTS: True}))


def test_equal_values_in_another_order_are_the_same() -> None:
    config = round_config(**{wire.TRAIN: ["fc1.*"]})
    copied = {key: list(value) if isinstance(value, list) else value for key, value in reversed(config.items())}
    assert message_settings.settings_of(ConfigRecord(copied)) is message_settings.settings_of(config)


def test_torchs_switches_are_set_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other code of the process may have changed them."""
    devices: list[torch.device] = []
    monkeypatch.setattr(numerics, "repeatable", lambda device: devices.append(device) or device)
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
    for _ in range(2):
        from_message.read(round_config(), context)
    assert len(devices) == 2


def test_a_list_that_was_changed_is_read_again() -> None:
    trained = ["fc1.*"]
    config = round_config(**{wire.TRAIN: trained})
    assert message_settings.settings_of(config).trained == ("fc1.*",)
    config[wire.TRAIN].append("fc2.*")
    assert message_settings.settings_of(config).trained == ("fc1.*", "fc2.*")


@pytest.mark.parametrize(
    ("key", "value", "server"),
    [
        ("spec.target", "labels", "10 labels to predict"),
        ("spec.outputs", 9, "9 classes to predict"),
        ("spec.shape", [1, 28, 29], r"shape \(1, 28, 29\), with 10 classes"),
    ],
)
def test_data_of_another_form_than_the_servers(key: str, value: object, server: str) -> None:
    settings = message_settings.settings_of(ConfigRecord({**round_config(), key: value}))
    with pytest.raises(ConfigError, match=rf"this node is image, .* 10 classes .*, but on the server .*{server}"):
        _ = settings.source
