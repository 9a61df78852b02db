"""When certificates expire: those that this user trusts, and those in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

WARN_DAYS = 30


@dataclass(frozen=True)
class Expiry:
    """A certificate and the days until it expires, negative after that; `days` is None if it cannot be read."""

    path: Path
    days: int | None
    until: str = ""
    fault: str = ""

    @property
    def soon(self) -> bool:
        """Whether it is time for a new one."""
        return self.days is not None and self.days <= WARN_DAYS


def expiries(paths: Iterable[Path], now: datetime) -> list[Expiry]:
    """The expiry of each of these certificates, and of each `.crt` and `.pem` in folders among them."""
    files = [file for path in paths for file in (_inside(path) if path.is_dir() else [path])]
    return [_expiry(path, now) for path in dict.fromkeys(files)]


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".crt", ".pem") and path.is_file())


def _expiry(path: Path, now: datetime) -> Expiry:
    try:
        ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        return Expiry(path, None, fault=getattr(error, "strerror", None) or "it is not a certificate")
    return Expiry(path, (ends - now).days, f"{ends:%Y-%m-%d}")
