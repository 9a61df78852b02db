"""Versions and hardware, for the status file of a run."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fedstride", "flwr", "torch", "numpy", "hydra-core", "flwr-datasets", "mlxtend")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages on which results depend."""
    version_of = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            version_of[package] = version(package)
        except PackageNotFoundError:
            version_of[package] = "not installed"
    return version_of


def hardware() -> dict[str, Any]:
    """Operating system, processor, number of cores, number of torch's threads, and GPUs."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "gpus": gpus,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor()
