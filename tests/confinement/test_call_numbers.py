"""The table of system calls' numbers against the headers of the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from confinement.call_numbers import MACHINES, NEWEST, NUMBERS

HEADERS = {
    "x86_64": (
        Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        Path("/usr/include/asm/unistd_64.h"),
    ),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"),),  # the table of all newer machines
}


def known(machine: str) -> dict[str, int]:
    """The numbers of the first header that is there. A 32-bit name (__NR3264_) stands for the 64-bit call, too."""
    for place in HEADERS[machine]:
        if place.exists():
            found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\b", place.read_text(), re.M)
            return {name: int(value) for name, value in found if name != "syscalls"}
    pytest.skip(f"no header of the kernel here: {HEADERS[machine][0]}")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_that_of_the_kernels_header(name: str, machine: str) -> None:
    header, value = known(machine), NUMBERS[name][MACHINES.index(machine)]
    newest = max(header.values())
    if value is not None and value > newest:
        pytest.skip(f"the header is older than {name}: its last number is {newest}")
    assert value == header.get(name)


def test_new_numbers_are_the_same_on_both_machines() -> None:
    """From 424 on the kernel gives a call one number everywhere; the newest headers do not always lie here."""
    new = {name: pair for name, pair in NUMBERS.items() if max(each or 0 for each in pair) >= 424}
    assert new["clone3"] == (435, 435) and new["file_setattr"] == (469, 469)
    assert all(first == second for first, second in new.values())


def test_no_number_is_above_the_newest_or_there_twice() -> None:
    for column in zip(*NUMBERS.values(), strict=True):
        numbers = [value for value in column if value is not None]
        assert len(set(numbers)) == len(numbers) and max(numbers) == NEWEST
