"""Seeds and generators of all random draws of a run: from (run seed, purpose, round, partition).

No draw uses a global generator. Each draw is independent of the others: the draws of round 57 do not need those of
rounds 1 to 56.
"""

from __future__ import annotations

import hashlib

import numpy as np

MAX_SEED = 2**63 - 1


def derive(run_seed: int, purpose: str, server_round: int = 0, partition: int = 0) -> int:
    """A seed in [0, 2**63) for one draw. Equal arguments give the same seed on every machine.

    It is taken from the SHA-256 of the arguments, so seeds of neighbouring rounds or runs are unrelated.
    """
    text = f"fedstride|{run_seed}|{purpose}|{server_round}|{partition}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def generator(run_seed: int, purpose: str, server_round: int = 0, partition: int = 0) -> np.random.Generator:
    """A numpy generator for one draw, seeded by `derive`."""
    return np.random.Generator(np.random.PCG64(derive(run_seed, purpose, server_round, partition)))
