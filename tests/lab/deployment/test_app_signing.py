"""Keys that sign apps, and signatures: what Flower's own verification makes of them, and files that are none."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from app_store import for_flower
from flwr.supercore.fab import Fab
from flwr.supernode import start_client_internal as loop
from flwr.supernode.cli.flower_supernode import _try_obtain_trusted_entities, _validate_public_keys_ed25519
from typer.testing import CliRunner

from fedstride.errors import ConfigError
from fedstride.flower.bundles import bundle
from fedstride.flower.for_nodes.connection import Bundle
from fedstride.messages.app_signatures import load
from lab.cli.main import app
from lab.deployment.app_signing import new_key, read_signature, sign, write_signature
from lab.flower.bundle import app_folder
from node.apps import app_signer
from node.log.log_lines import RefusedError

BUNDLE = b"an app" * 100


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "keys/study")
    return tmp_path / "keys/study"


def checked(bundle: bytes, text: str, trusted: Path) -> Fab:
    entities = _try_obtain_trusted_entities(trusted)
    _validate_public_keys_ed25519(entities)
    digest = hashlib.sha256(bundle).hexdigest()
    app_signer.signer_of(Bundle(bundle, {"stale": "{}"}), digest, text, entities)
    signatures = {"valid_license": "-", **for_flower(load(text))}
    return Fab(digest, bundle, signatures)


def test_flower_verifies_what_is_signed_here(key: Path) -> None:
    signature = sign(BUNDLE, key)
    trusted = key.with_name("study.yaml")
    fab = checked(BUNDLE, signature.dump(), trusted)
    assert loop._verify_fab(fab, yaml.safe_load(trusted.read_text()))
    assert load(signature.dump()) == signature
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_unsigned_altered_and_signed_by_a_stranger_are_refused(key: Path, tmp_path: Path) -> None:
    trusted = key.with_name("study.yaml")
    new_key(tmp_path / "stranger")
    signed, by_stranger = sign(BUNDLE, key), sign(BUNDLE, tmp_path / "stranger")
    pretends = by_stranger.dump().replace(by_stranger.key, signed.key)
    for content, text, said in (
        (BUNDLE, "", "is not signed, and this node runs signed apps only"),
        (BUNDLE + b"!", signed.dump(), "is not the one that was signed by fpk_"),
        (BUNDLE, pretends, "is not the one that was signed by fpk_"),
        (BUNDLE, by_stranger.dump(), f"is signed by {by_stranger.key}, a key that this node does not trust"),
        (BUNDLE, "{}", "has no valid signature: it is not a signature of the format"),
    ):
        with pytest.raises(RefusedError, match=said):
            checked(content, text, trusted)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "pgp"}, {"app": "x"}, {"key": 3}, {"signed_at": -1}, {"signed_at": True}, {"signed_at": 2**63},
        {"signature": "AAAA"}, {"signature": None}, {"more": 1},
    ],
)  # fmt: skip
def test_a_signature_of_another_form_is_one_line(key: Path, change: dict) -> None:
    values = json.loads(sign(BUNDLE, key).dump())
    with pytest.raises(ConfigError, match="it is not a signature"):
        load(json.dumps(values | change))


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN PGP SIGNATURE-----", "[" * 900, "1", "null", "[]", '{"a": ' + "1" * 5000]
)
def test_a_file_of_another_format_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "sig").write_text(text)
    with pytest.raises(
        ConfigError, match="sig: it is not a signature of the format fedstride-signature-1; make one"
    ):
        read_signature(tmp_path / "sig", BUNDLE)
    (tmp_path / "sig").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_signature(tmp_path / "sig", BUNDLE)


def test_the_submitter_is_told_that_the_app_is_another_one(key: Path, tmp_path: Path) -> None:
    write_signature(tmp_path / "sig", sign(BUNDLE, key))
    assert read_signature(tmp_path / "sig", BUNDLE).key.startswith("fpk_")
    with pytest.raises(ConfigError, match="is the signature of another app"):
        read_signature(tmp_path / "sig", BUNDLE + b"!")


@pytest.mark.slow
def test_a_bundle_has_the_same_bytes_for_who_signs_and_who_submits(tmp_path: Path) -> None:
    """Whenever, and with whatever rights files are written; with user-defined parts it is another one."""
    parts = tmp_path / "mine.py"
    parts.write_text("from fedstride import part\n")

    def made(given: str | None, umask: int) -> bytes:
        before = os.umask(umask)
        try:
            with app_folder(given) as folder:
                return bundle(folder)
        finally:
            os.umask(before)

    first = made(str(parts), 0o022)
    os.utime(parts, (1_000_000_000, 1_000_000_000))
    parts.chmod(0o700)
    assert made(str(parts), 0o077) == first
    assert made(None, 0o022) != first


def test_nothing_is_replaced_and_wrong_keys_are_one_line(key: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists, and is not replaced"):
        new_key(key)
    write_signature(tmp_path / "sig", sign(BUNDLE, key))
    with pytest.raises(ConfigError, match="exists, and is not replaced"):
        write_signature(tmp_path / "sig", sign(BUNDLE, key))
    for wrong in (key.with_name("study.pub"), tmp_path, tmp_path / "nothing"):
        with pytest.raises(ConfigError, match="is not a key to sign with"):
            sign(BUNDLE, wrong)


@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    call = CliRunner()
    made = call.invoke(app, ["sign", "key", str(tmp_path / "study")])
    assert made.exit_code == 0, made.output
    signed = call.invoke(app, ["sign", "app", str(tmp_path / "study"), str(tmp_path / "study.sig")])
    assert signed.exit_code == 0, signed.output
    assert load((tmp_path / "study.sig").read_text()).app in signed.output


@pytest.mark.parametrize("name", ['stu"dy', "stu'dy: #", "stüdy\\n", "\U0001f600"])
def test_a_key_of_any_name_is_trusted(tmp_path: Path, name: str) -> None:
    new_key(tmp_path / name)
    signature = sign(BUNDLE, tmp_path / name)
    assert checked(BUNDLE, signature.dump(), tmp_path / f"{name}.yaml")


@pytest.mark.parametrize("name", ["", ".", "/", "a\nb"])
def test_what_is_no_name_of_a_key_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is not the name of a file: give one for the new key"):
        new_key(Path(name))
    assert not list(tmp_path.iterdir())
