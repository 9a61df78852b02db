"""Every random draw of a run: from (run seed, purpose, round, partition), never from a global generator.

Knows how a draw is named; does not know what it is for. Round 57 can be drawn without rounds 1 to 56.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

MAX_SEED = 2**63 - 1


def derive(run_seed: int, purpose: str, server_round: int = 0, partition: int = 0) -> int:
    """A seed in [0, 2**63) for one draw; equal arguments give the equal seed on every machine.

    SHA-256 of the arguments, so that neighbouring seeds and rounds have nothing in common.
    """
    text = f"fedstride|{run_seed}|{purpose}|{server_round}|{partition}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def generator(run_seed: int, purpose: str, server_round: int = 0, partition: int = 0) -> np.random.Generator:
    """A numpy generator for one draw, seeded by `derive`."""
    return np.random.Generator(np.random.PCG64(derive(run_seed, purpose, server_round, partition)))


def new_secret(seed: int | None = None) -> str:
    """What `secret_generator` draws from: 128 bits of the operating system's, or a seed that anybody may know."""
    return secrets.token_hex(16) if seed is None else f"seed {seed}"


def secret_generator(secret: str, purpose: str, server_round: int = 0, partition: int = 0) -> np.random.Generator:
    """A numpy generator for a draw that nobody without the secret can repeat; equal arguments, equal draw.

    Seeded with all 256 bits of SHA-256. PCG64 is no cipher: see docs/privacy.md.
    """
    text = f"fedstride|secret|{secret}|{purpose}|{server_round}|{partition}".encode()
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(text).digest(), "big")))
