"""Keys that sign apps, and the files of signatures. Existing files are never replaced."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from fedstride.errors import ConfigError, RunError
from fedstride.files import atomic, private_files
from fedstride.messages.app_signatures import Signature, encode, key_id, load, signed_bytes


def new_key(path: Path) -> list[Path]:
    """Make a key pair, and the list of trusted keys for nodes with this one: `path`, `path.pub`, `path.yaml`.

    Raises ConfigError if one of them exists or cannot be the name of a file, RunError if they cannot be written.
    """
    if not path.name or not path.name.isprintable():
        raise ConfigError(f"{str(path)!r} is not the name of a file: give one for the new key, as in keys/study")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    entry = json.dumps(f"{public.decode()} {path.name}", ensure_ascii=False)  # a text in quotes, in YAML too
    files = {
        path: key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        path.with_name(f"{path.name}.pub"): public + b"\n",
        path.with_name(f"{path.name}.yaml"): f"{id_of(key)}: {entry}\n".encode(),
    }
    if existing := [file for file in files if file.exists()]:
        raise ConfigError(f"{existing[0]} exists, and is not replaced; give another name")
    for file, content in files.items():
        _create(file, content)
    return list(files)


def sign(bundle: bytes, key: Path) -> Signature:
    """Sign a bundle with the private key in a file. Raises ConfigError if the file is not an Ed25519 key."""
    signer = read_key(key)
    digest, now = hashlib.sha256(bundle), int(time.time())
    signature = encode(signer.sign(signed_bytes(digest.digest(), now)))
    return Signature(app=digest.hexdigest(), key=id_of(signer), signed_at=now, signature=signature)


def write_signature(path: Path, signature: Signature) -> None:
    """Write the file of a signature. Raises ConfigError if it exists."""
    _create(path, f"{signature.dump()}\n".encode())


def read_signature(path: Path, bundle: bytes) -> Signature:
    """The signature in a file, which must be of this bundle. Raises ConfigError."""
    path = path.expanduser()
    try:
        signature = load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"the signature {path} cannot be read: {reason}; make one with fedstride sign app"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if signature.app != (digest := hashlib.sha256(bundle).hexdigest()):
        raise ConfigError(
            f"{path} is the signature of another app (SHA-256 {signature.app[:12]}...) than this one "
            f"({digest[:12]}...): code, conf/ or parts=FILE differ; check the difference and sign it again"
        )
    return signature


def read_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a file. Raises ConfigError if it is not an Ed25519 key without a password."""
    try:
        content, fault = private_files.read(path)
        key = load_ssh_private_key(content, password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path} is not a key to sign with ({reason}); make one with fedstride sign key"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"{path} is a key of another kind, but must be Ed25519; make one with fedstride sign key"
        )
    if fault:
        raise ConfigError(f"the key {path} {fault}")
    return key


def id_of(key: Ed25519PrivateKey) -> str:
    """The id of the key's public half; see `app_signatures.key_id`."""
    return key_id(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _create(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.create(path, content, mode=0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists, and is not replaced; give another name") from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
