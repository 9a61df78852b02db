"""Selection of a SuperLink: by a connection of Flower's config.toml, or by an address."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from lab.flower.flower_command import FlowerConnection, toml_string
from lab.flower.superlink_choice import at_address, named


def test_a_connection_by_name(home: Path) -> None:
    target = named("clinic")
    assert (target.name, target.address) == ("clinic", "fl.example.org:8000")
    assert target.commands("7") == [
        "follow it:  fedstride logs --follow 7 clinic",
        "stop it:    fedstride stop 7 clinic",
        "fetch it:   fedstride fetch 7 clinic",
    ]


def test_an_unknown_connection_names_the_known_ones(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        named("clinics")
    assert str(caught.value) == (
        "unknown connection 'clinics'. Did you mean 'clinic'? Known: clinic, local "
        f"(in {home / 'config.toml'}); or use --address HOST:PORT"
    )


def test_a_simulation_is_not_a_superlink(home: Path) -> None:
    with pytest.raises(ConfigError, match="use fedstride simulate"):
        named("local")


def test_without_a_config_file(home: Path) -> None:
    (home / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"unknown connection 'clinic'\. Known: none"):
        named("clinic")
    assert not (home / "config.toml").exists()
    (home / "config.toml").write_text("[superlink")
    with pytest.raises(ConfigError, match=r"config\.toml cannot be read"):
        named("clinic")


@pytest.mark.parametrize(
    "address", ["superlink:8000", "fl.example.org:443", "192.0.2.7:8000", "[2001:db8::7]:8000"]
)
def test_an_address(address: str, tmp_path: Path) -> None:
    ca = tmp_path / "ca 'x'.crt"
    ca.write_text("")
    target = at_address(address, ca)
    assert (target.address, target.insecure, target.root_certificates) == (address, False, ca)
    words = shlex.split(target.commands("7")[0].partition(":")[2])
    given = ["--address", address, "--root-certificates", str(ca)]
    assert words == ["fedstride", "logs", "--follow", "7", *given]


def test_an_address_without_tls() -> None:
    target = at_address("superlink:8000", None)
    assert target.insecure
    assert target.commands("7")[1].endswith("fedstride stop 7 --address superlink:8000 --insecure")


@pytest.mark.parametrize(
    "address", ["superlink", "superlink:", ":8000", "superlink:0", "superlink:65536", "superlink:http", "[x]:1",
                "https://superlink:8000", "2001:db8::7:8000", "superlink:８０"]
)  # fmt: skip
def test_invalid_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="it must be HOST:PORT"):
        at_address(address, None)


def test_toml_strings() -> None:
    for text in ('a"b\\c', "ä 😀", "\x7f\t\n", "'"):
        assert tomllib.loads(f"x = {toml_string(text)}")["x"] == text
    assert tomllib.loads(FlowerConnection("a", "b:1").toml())["superlink"]["a"] == {
        "address": "b:1",
        "insecure": True,
    }
