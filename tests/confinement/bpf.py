"""A second reading of classic BPF, for tests: it runs the filter on one call, as the kernel would."""

from __future__ import annotations

import struct
from collections.abc import Sequence

LONGEST = 4096


def verdict(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """What the filter answers to the call. Raises AssertionError for a program that the kernel would refuse."""
    code = list(struct.iter_unpack("=HBBI", program))
    assert 0 < len(code) <= LONGEST
    given = [value & 2**64 - 1 for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number & 2**32 - 1, architecture, 0, *given)
    at = held = 0
    while True:
        assert at < len(code), "a jump past the end"
        operation, true, false, constant = code[at]
        at += 1
        if operation == 0x20:
            assert constant % 4 == 0 and constant < len(data)
            held = struct.unpack_from("=I", data, constant)[0]
        elif operation == 0x54:
            held &= constant
        elif operation == 0x05:
            at += constant
        elif operation == 0x15:
            at += true if held == constant else false
        elif operation == 0x35:
            at += true if held >= constant else false
        elif operation == 0x45:
            at += true if held & constant else false
        else:
            assert operation == 0x06, f"instruction {operation:#x}"
            return constant
