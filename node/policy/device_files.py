"""The device files of a machine's graphics cards, which the process of a message needs to train on one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_CARD = re.compile(r"nvidia(\d+)")
_SHARED = ("nvidiactl", "nvidia-uvm")
_FILES = ("/proc/driver/nvidia", "/sys/module/nvidia", "/proc/sys/vm/mmap_min_addr")


def found(folder: Path = Path("/dev"), environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The files of the cards that CUDA_VISIBLE_DEVICES names by number, and those that they share.

    With other names in it, or without it, those of all cards. None without a card.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    cards = {name: matched[1] for name in names if (matched := _CARD.fullmatch(name))}
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and all(part.strip().isdecimal() or not part.strip() for part in chosen.split(",")):
        wanted = {part.strip() for part in chosen.split(",")}
        cards = {name: number for name, number in cards.items() if number in wanted}
    if not cards:
        return ()
    return tuple(folder / name for name in (*cards, *_SHARED) if name in names)


def files() -> tuple[Path, ...]:
    """What the driver's library reads beside the devices."""
    return tuple(path for name in _FILES if (path := Path(name)).exists())
