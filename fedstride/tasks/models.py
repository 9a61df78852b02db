"""Builds a network by name, with initial weights drawn from the run's seed, and finds its layers by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import torch
from torch import nn

from .. import seeds
from ..errors import ConfigError, require
from ..parts import Choice
from .inputs import Inputs
from .parts import MODELS

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)
MAX_NAMES = 20
"""Names of modules in an error message."""


def build(config: Choice, inputs: Inputs, outputs: int, seed: int) -> nn.Module:
    """The network with initial weights drawn from (seed, "initial weights"). The global random state is unchanged.

    Raises ConfigError for an unknown name or examples that the network does not take.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeds.derive(seed, "initial weights"))
        network: nn.Module = MODELS.make(config, inputs, outputs)
        return network


def layers_matching(model: nn.Module, patterns: Sequence[str], key: str) -> set[nn.Module]:
    """The linear and convolution modules whose name matches one of the patterns (fnmatch, case-sensitive).

    A module with two names matches by either. Raises ConfigError, naming `key`, for a pattern that matches none.
    """
    require(not isinstance(patterns, str), key, patterns, "a list of patterns, such as ['attention.*']")
    named = [(n, m) for n, m in model.named_modules(remove_duplicate=False) if isinstance(m, LAYERS)]
    found: set[nn.Module] = set()
    for pattern in patterns:
        matching = {module for name, module in named if fnmatch.fnmatchcase(name, pattern)}
        if not matching:
            names = ", ".join(repr(name) for name, _ in named[:MAX_NAMES]) or "none"
            more = f" and {len(named) - MAX_NAMES} more" if len(named) > MAX_NAMES else ""
            raise ConfigError(
                f"{key} = {list(patterns)!r} is not allowed: the pattern {pattern!r} matches no linear or "
                f"convolution module of the model; the names of these modules are: {names}{more}"
            )
        found |= matching
    return found
