"""Signs a run for nodes: what its messages will say, composed by the code that composes them at the server."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError
from fedstride.flower.identity import set_identity
from fedstride.messages import signed_runs, wire
from fedstride.messages.app_signatures import encode
from fedstride.messages.key_fingerprints import fingerprints
from server_app import preparation
from server_app.config.schema import Config
from server_app.signed_messages import forms_of, messages_of

from .app_signing import id_of, read_key

DAYS = 7


@dataclass(frozen=True)
class RunSigner:
    """Signs runs with the key in a file.

    `nodes`: a file with the public keys of the nodes that may answer; None: every node that trusts the key.
    `days`: how long the signature is valid.
    """

    key: Path
    nodes: Path | None = None
    days: int = DAYS

    def sign(self, config: Config, bundle: bytes, run_config: Mapping[str, str]) -> str:
        """The signed run, as a value of the run's configuration; the other values are `run_config`.

        Raises ConfigError for a wrong key or file, and as `preparation.prepare`.
        """
        if not 1 <= self.days <= signed_runs.MOST_DAYS:
            raise ConfigError(
                f"--expires {self.days} is not allowed: it must be from 1 to {signed_runs.MOST_DAYS} days"
            )
        private = read_key(self.key.expanduser())
        nodes = () if self.nodes is None else fingerprints(self.nodes.expanduser(), "--nodes")
        prepared = preparation.prepare(config, clients_elsewhere=True)
        before = prepared.checkpoint
        word = secrets.token_hex(8) if before is None else before.run
        set_identity()  # Flower's messages want one
        describes = bool(run_config.get(wire.CHECK))
        forms, now = forms_of(prepared, word, describes=describes), int(time.time())
        terms = signed_runs.Terms(
            app=hashlib.sha256(bundle).hexdigest(),
            run_config=dict(run_config),
            run=word,
            resumes=before is not None,
            rounds=config.rounds,
            messages=messages_of(prepared, forms),
            forms=forms,
            nodes=nodes,
            nonce=secrets.token_hex(16),
            signed_at=now,
            expires=now + self.days * signed_runs.DAY,
        )
        body = terms.body()
        signature = encode(private.sign(signed_runs.to_sign(body)))
        text = signed_runs.SignedTerms(terms, id_of(private), signature, body).dump()
        if len(text) > signed_runs.MOST_CHARACTERS:
            raise ConfigError(
                f"the signed run has {len(text)} characters, at most {signed_runs.MOST_CHARACTERS} are allowed; "
                "name fewer columns, classes or nodes"
            )
        return text
