"""Creates a CA and the server certificate that it signs, as X.509.

The extensions are those that gRPC and Python's ssl require, and they limit each certificate to its purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedstride.errors import ConfigError
from fedstride.files import private_files

CA_DAYS = 3650
CLOCK_SKEW = timedelta(minutes=5)  # a node's clock may be behind the one that signed


@dataclass(frozen=True)
class Authority:
    """A CA: its key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def files(self) -> dict[str, bytes]:
        """The contents of `ca.crt` and `ca.key`, in PEM."""
        return {"ca.crt": _pem(self.certificate), "ca.key": _pem_key(self.key)}


def new_authority(now: datetime) -> Authority:
    """A new CA, valid for ten years; EC P-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("fedstride CA")
    builder = _builder(subject, subject, key, now, CA_DAYS)
    # path_length 0: this CA may sign server certificates, but no other CA.
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(sign_certificates=True), critical=True)
    return Authority(key, builder.sign(key, SHA256()))


def read_authority(certificate_file: Path, key_file: Path) -> Authority:
    """The CA in these files. Raises ConfigError if they cannot be read or do not belong together."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        content, fault = private_files.read(key_file)
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"the CA in {certificate_file.parent} cannot be read: {str(error).splitlines()[0]}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{key_file} is not the key of {certificate_file}: replace it with the right key")
    if fault:
        raise ConfigError(f"the CA's key {key_file} {fault}")
    return Authority(key, certificate)


def server_certificate(
    authority: Authority, hosts: Sequence[x509.GeneralName], now: datetime, days: int
) -> dict[str, bytes]:
    """The contents of `server.crt`, for all these names and addresses, and of `server.key`; EC P-256.

    Raises ConfigError if the certificate would expire after its CA.
    """
    ends = authority.certificate.not_valid_after_utc
    if now + timedelta(days=days) > ends:
        raise ConfigError(f"--days = {days} is not allowed: the CA expires on {ends:%Y-%m-%d}")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name("fedstride SuperLink"), authority.certificate.subject, key, now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(sign_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
    )
    return {"server.crt": _pem(builder.sign(authority.key, SHA256())), "server.key": _pem_key(key)}


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
