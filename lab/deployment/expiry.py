"""When certificates expire: those that this user trusts, and those in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

WARN_DAYS = 30
MARK = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True)
class Expiry:
    """A file of certificates and the days until the first of them expires, negative after that.

    `days` is None if the file cannot be read; `fault` says why.
    """

    path: Path
    days: int | None
    until: str = ""
    fault: str = ""

    @property
    def soon(self) -> bool:
        """Whether it is time for a new one."""
        return self.days is not None and self.days <= WARN_DAYS


def expiries(paths: Iterable[Path], now: datetime) -> list[Expiry]:
    """The expiry of each of these certificates, and of each file in folders among them that has one.

    `now`: with a time zone. Days are whole days, rounded down.
    """
    files = [file for path in paths for file in _inside(path)]
    return [_expiry(path, now) for path in dict.fromkeys(files)]


def _inside(path: Path) -> list[Path]:
    """The files with certificates in a folder; a file, or a folder that cannot be read or has none, itself."""
    try:
        files = sorted(file for file in path.iterdir() if file.is_file() and _has_certificate(file))
    except OSError:
        return [path]
    return files or [path]


def _has_certificate(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK in file.read(1 << 20)
    except OSError:  # a private key of another user, for example
        return False


def _expiry(path: Path, now: datetime) -> Expiry:
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe, which would be waited for
        return Expiry(path, None, fault="it is not a file")
    try:
        ends = min(
            certificate.not_valid_after_utc for certificate in x509.load_pem_x509_certificates(path.read_bytes())
        )
    except IsADirectoryError:
        return Expiry(path, None, fault="no file in it has a certificate")
    except (OSError, ValueError) as error:
        return Expiry(path, None, fault=getattr(error, "strerror", None) or "it is not a certificate")
    return Expiry(path, (ends - now).days, f"{ends:%Y-%m-%d}")
