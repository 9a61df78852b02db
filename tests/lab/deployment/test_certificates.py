"""Certificates and keys: which files are created, their permissions, refusals, and verification by TLS."""

from __future__ import annotations

import shutil
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from fedstride.errors import ConfigError, RunError
from lab.deployment.certificates import free_node_names, make

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "certificates"


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """A umask of 0: the permissions must not depend on the user's umask."""
    import os

    before = os.umask(0)
    yield
    os.umask(before)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- created files


def test_all_files_are_created_with_their_purposes(folder: Path) -> None:
    made = make(folder, names=["superlink"], addresses=["192.0.2.7"], nodes=["a", "b"])
    names = ["ca.crt", "ca.key", "server.crt", "server.key", "a", "a.pub", "b", "b.pub"]
    assert [file.path for file in made] == [folder / name for name in names]
    assert set(contents(folder)) == set(names)
    assert len({file.purpose for file in made}) == len(names)


def test_only_the_owner_can_read_them(folder: Path) -> None:
    make(folder, names=["superlink"], nodes=["a"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_ca(folder: Path) -> None:
    make(folder, names=["superlink"], now=NOW)
    ca = certificate(folder / "ca.crt")
    basic = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage)
    assert basic.critical and basic.value == x509.BasicConstraints(ca=True, path_length=0)
    assert usage.critical and usage.value.key_cert_sign and usage.value.crl_sign
    assert not usage.value.digital_signature
    assert isinstance(ca.public_key(), ec.EllipticCurvePublicKey)
    assert ca.public_key().curve.name == "secp256r1"
    assert ca.not_valid_after_utc == NOW + timedelta(days=3650)


def test_the_servers_certificate(folder: Path) -> None:
    make(folder, names=["superlink", "fl.example.org"], addresses=["192.0.2.7", "2001:db8::7"], days=30, now=NOW)
    server = certificate(folder / "server.crt")
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["superlink", "fl.example.org", "localhost"]
    assert hosts.get_values_for_type(x509.IPAddress) == [
        ip_address(text) for text in ("192.0.2.7", "2001:db8::7", "127.0.0.1")
    ]
    usage = server.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature and not usage.key_cert_sign
    assert list(server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert server.not_valid_before_utc < NOW
    assert server.not_valid_after_utc == NOW + timedelta(days=30)


@pytest.mark.parametrize("host", ["superlink", "localhost", "127.0.0.1", "::1"])
def test_a_strict_verifier_accepts_it(folder: Path, host: str) -> None:
    make(folder, names=["superlink"], addresses=["::1"], now=NOW)
    subject: x509.GeneralName = x509.DNSName(host) if host[0].isalpha() else x509.IPAddress(ip_address(host))
    assert isinstance(subject, (x509.DNSName, x509.IPAddress))
    verifier = (
        PolicyBuilder().store(Store([certificate(folder / "ca.crt")])).time(NOW).build_server_verifier(subject)
    )
    assert len(verifier.verify(certificate(folder / "server.crt"), [])) == 2


def test_a_handshake(folder: Path, tmp_path: Path) -> None:
    """Over a real socket pair: our CA is accepted; another CA and another host name are not."""
    make(folder, names=["superlink"])
    make(tmp_path / "foreign", names=["superlink"])
    shake(folder, folder / "ca.crt", "superlink")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature|issuer"):
        shake(folder, tmp_path / "foreign/ca.crt", "superlink")
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        shake(folder, folder / "ca.crt", "elsewhere")


def shake(folder: Path, ca: Path, host: str) -> None:
    import socket

    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.crt", folder / "server.key")
    asking = ssl.create_default_context(cafile=str(ca))
    a, b = socket.socketpair()

    def serve() -> None:
        try:
            serving.wrap_socket(a, server_side=True).close()
        except OSError:
            a.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with asking.wrap_socket(b, server_hostname=host):
            pass
    finally:
        b.close()
        thread.join()


def test_a_nodes_key_pair(folder: Path) -> None:
    make(folder, nodes=["hospital-a"])
    private = load_ssh_private_key((folder / "hospital-a").read_bytes(), password=None)
    public = load_ssh_public_key((folder / "hospital-a.pub").read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == public
    assert set(contents(folder)) == {"hospital-a", "hospital-a.pub"}  # keys need no CA


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")
def test_ssh_keygen_reads_it(folder: Path) -> None:
    make(folder, nodes=["a"])
    done = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(folder / "a")], capture_output=True, text=True, check=True
    )
    assert (folder / "a.pub").read_text().startswith(done.stdout.strip())
    listed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(folder / "a.pub")], capture_output=True, text=True, check=True
    )
    assert "384" in listed.stdout and "ECDSA" in listed.stdout


# ---------------------------------------------------------------- later additions


def test_nodes_are_added_and_other_files_stay_unchanged(folder: Path) -> None:
    make(folder, names=["superlink"], nodes=free_node_names(folder, 2))
    before = contents(folder)
    make(folder, nodes=free_node_names(folder, 2))
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"node3", "node3.pub", "node4", "node4.pub"}


def test_free_names_fill_gaps_but_never_complete_half_a_pair(folder: Path) -> None:
    make(folder, nodes=["node1", "node3"])
    (folder / "node1").unlink()
    assert free_node_names(folder, 2) == ["node2", "node4"]


def test_a_new_certificate_from_the_same_ca(folder: Path) -> None:
    make(folder, names=["superlink"])
    ca = (folder / "ca.crt").read_bytes()
    for name in ("server.crt", "server.key"):
        (folder / name).rename(folder / f"old-{name}")
    make(folder, names=["superlink"], days=30)
    assert (folder / "ca.crt").read_bytes() == ca
    certificate(folder / "server.crt").verify_directly_issued_by(certificate(folder / "ca.crt"))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "no file to create"),
        ({"names": ["super_link"]}, "--name 'super_link' is not allowed: a host name consists of letters"),
        ({"names": ["https://x.org"]}, "no port, no https"),
        ({"names": ["x.org:8000"]}, "--name 'x.org:8000'"),
        ({"names": ["-x.org"]}, "--name '-x.org'"),
        ({"names": ["a..b"]}, "--name 'a..b'"),
        ({"names": [""]}, "--name ''"),
        ({"names": ["x" * 64]}, "--name 'xxx"),
        ({"names": ["bücher.example"]}, "--name 'bücher.example'"),
        ({"names": ["127.0.0.1"]}, "it is an IP address; use --address"),
        ({"addresses": ["superlink"]}, "--address 'superlink' is not allowed: it must be an IP address"),
        ({"addresses": ["192.0.2.256"]}, "--address '192.0.2.256'"),
        ({"addresses": ["192.0.2.7:8000"]}, "no port"),
        ({"names": ["x"], "days": 0}, "--days = 0 is not allowed: it must be between 1 and 3650"),
        ({"names": ["x"], "days": 4000}, "--days = 4000"),
        ({"nodes": ["server"]}, "node name 'server' is not allowed"),
        ({"nodes": ["../x"]}, "node name '../x' is not allowed"),
        ({"nodes": ["a.pub"]}, "node name 'a.pub' is not allowed"),
        ({"nodes": ["ca.key"]}, "node name 'ca.key' is not allowed"),
        ({"nodes": ["2nd-clinic"]}, "node name '2nd-clinic' is not allowed: it must be a letter, then letters"),
        ({"nodes": ["a", "a"]}, "node name 'a' is given twice"),
    ],
)
def test_an_invalid_request_creates_no_file(folder: Path, request_: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(folder, **request_)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["server.crt", "server.key", "a", "b.pub"])
def test_no_file_is_replaced(folder: Path, name: str) -> None:
    folder.mkdir(mode=0o700)
    (folder / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"{name} exists and is not replaced"):
        make(folder, names=["superlink"], nodes=["a", "b"])
    assert contents(folder) == {name: b"mine"}


def test_a_dangling_link_is_not_written_through(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="exists and is not replaced"):
        make(folder, nodes=["a"])
    assert not (tmp_path / "elsewhere").exists()


def test_half_a_ca(folder: Path) -> None:
    make(folder, names=["superlink"])
    (folder / "ca.key").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt exists without its counterpart"):
        make(folder, names=["other"])


def test_a_key_of_another_ca(folder: Path, tmp_path: Path) -> None:
    make(folder, names=["superlink"])
    make(tmp_path / "other", names=["superlink"])
    shutil.copy(tmp_path / "other/ca.key", folder / "ca.key")
    for name in ("server.crt", "server.key"):
        (folder / name).unlink()
    with pytest.raises(ConfigError, match=r"ca\.key is not the key of .*ca\.crt"):
        make(folder, names=["superlink"])
    (folder / "ca.key").write_text("nonsense")
    with pytest.raises(ConfigError, match="cannot be read"):
        make(folder, names=["superlink"])


def test_no_certificate_outlives_its_ca(folder: Path) -> None:
    make(folder, names=["superlink"], now=NOW - timedelta(days=3600))
    for name in ("server.crt", "server.key"):
        (folder / name).unlink()
    with pytest.raises(ConfigError, match=r"--days = 365 is not allowed: the CA expires on 2026-06-20"):
        make(folder, names=["superlink"], now=NOW)


def test_a_folder_that_others_can_write_to(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="is writable by other users: chmod 700"):
        make(folder, nodes=["a"])


def test_a_folder_that_cannot_be_created(folder: Path) -> None:
    folder.write_text("a file")
    for path in (folder, folder / "below"):
        with pytest.raises(ConfigError, match="a file has this name"):
            make(path, nodes=["a"])
    with pytest.raises(RunError, match="/proc/certificates cannot be created"):
        make(Path("/proc/certificates"), nodes=["a"])


def test_zero_nodes(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--nodes = 0 is not allowed: it must be at least 1"):
        free_node_names(folder, 0)


# ---------------------------------------------------------------- existing files stay


def test_keep_creates_only_missing_files(folder: Path) -> None:
    make(folder, names=["superlink"], nodes=["a"])
    before = contents(folder)
    made = make(folder, names=["superlink"], nodes=["a", "b"], keep=True)
    assert [file.path.name for file in made] == ["b", "b.pub"]
    assert before.items() <= contents(folder).items()
    assert make(folder, names=["superlink"], nodes=["a", "b"], keep=True) == []


@pytest.mark.parametrize("half", ["server.crt", "server.key", "a", "a.pub"])
def test_keep_does_not_create_half_of_a_pair(folder: Path, half: str) -> None:
    make(folder, names=["superlink"], nodes=["a"])
    (folder / half).unlink()
    before = contents(folder)
    with pytest.raises(ConfigError, match="exists and is not replaced"):
        make(folder, names=["superlink"], nodes=["a"], keep=True)
    assert contents(folder) == before
