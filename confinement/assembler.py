"""Programs of the kernel's packet filter (classic BPF) from conditions on a call's arguments. Pure.

An argument has 64 bits, and a condition looks at the low 32 of them: all arguments that are compared here are
`int` or `unsigned int` in the kernel, which drops the rest (`clone` takes its flags' low half, too). A comparison
of all 64 would be passed by setting a bit that the kernel does not see.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LOAD, EQUAL, AT_LEAST, ANY_BIT, JUMP, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x54, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
"""Offsets in bytes in `struct seccomp_data`; both machines store the low half of an argument first."""

ALLOW, KILL = 0x7FFF0000, 0x80000000
WHOLE = 0xFFFFFFFF
JUMP_MOST = 255
"""The farthest that a comparison can jump, in instructions."""


def answer(errno: int) -> int:
    """The verdict that does not do the call, and returns this error to the caller; 0: as if it were done."""
    return 0x00050000 | errno


class Instruction(NamedTuple):
    """One instruction: `code`, how far to jump if true and if false, and its constant."""

    code: int
    true: int
    false: int
    constant: int


@dataclass(frozen=True)
class Among:
    """The argument, under one of the masks, must have that mask's value. `like` has pairs (mask, value)."""

    argument: int
    like: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NotAmong:
    """The argument, under `mask`, must have none of the values."""

    argument: int
    values: tuple[int, ...]
    mask: int = WHOLE


@dataclass(frozen=True)
class Without:
    """The argument must have none of the bits."""

    argument: int
    bits: int


@dataclass(frozen=True)
class OneOf:
    """All conditions of one of the alternatives must hold. An alternative has none of its kind in it."""

    alternatives: tuple[tuple[Among | NotAmong | Without, ...], ...]


Condition = Among | NotAmong | Without | OneOf


def exactly(argument: int, *values: int, mask: int = WHOLE) -> Among:
    """The condition that the argument under the mask is one of the values."""
    return Among(argument, tuple((mask, value & WHOLE) for value in values))


def entry(architecture: int, newest: int, unknown: int) -> list[Instruction]:
    """The start: another architecture ends the process, a number above `newest` gets the verdict `unknown`.

    The numbers of x86-64's 32-bit pointers (x32) are above every known one. The number stays loaded.
    """
    return [
        Instruction(LOAD, 0, 0, ARCHITECTURE_AT),
        Instruction(EQUAL, 1, 0, architecture),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(LOAD, 0, 0, NUMBER_AT),
        Instruction(AT_LEAST, 0, 1, newest + 1),
        Instruction(RETURN, 0, 0, unknown),
    ]


def always(numbers: Sequence[int], verdict: int) -> list[Instruction]:
    """Each of the numbers gets the verdict. Other numbers go on, and stay loaded."""
    made = []
    for start in range(0, len(numbers), JUMP_MOST):
        part = numbers[start : start + JUMP_MOST]
        made += [Instruction(EQUAL, len(part) - at, 0, value) for at, value in enumerate(part)]
        made += [Instruction(JUMP, 0, 0, 1), Instruction(RETURN, 0, 0, verdict)]
    return made


def when(number: int, conditions: Iterable[Condition], otherwise: int) -> list[Instruction]:
    """The number is allowed if all conditions hold, and gets the verdict `otherwise` if not."""
    refuse = Instruction(RETURN, 0, 0, otherwise)
    body = [instruction for condition in conditions for instruction in _tested(condition, refuse)]
    body.append(Instruction(RETURN, 0, 0, ALLOW))
    return [Instruction(EQUAL, 0, len(body), number), *body]


def _tested(condition: Condition, refuse: Instruction) -> list[Instruction]:
    """Goes on behind its last instruction if the condition holds, and else comes to `refuse`."""
    if isinstance(condition, OneOf):
        return _one_of(condition, refuse)
    load = Instruction(LOAD, 0, 0, ARGUMENTS_AT + 8 * condition.argument)
    if isinstance(condition, Without):
        return [load, Instruction(ANY_BIT, 0, 1, condition.bits), refuse]
    if isinstance(condition, NotAmong):
        tests = [
            instruction for value in condition.values for instruction in (Instruction(EQUAL, 0, 1, value), refuse)
        ]
        return [load, *_masked(condition.mask), *tests]
    made = [refuse]
    for mask, value in reversed(condition.like):  # from the end, as a jump needs the length of what follows
        made = [load, *_masked(mask), Instruction(EQUAL, len(made), 0, value), *made]
    return made


_NEXT = Instruction(JUMP, 0, 0, WHOLE)
"""Stands for a jump to the next alternative until its length is known."""


def _one_of(condition: OneOf, refuse: Instruction) -> list[Instruction]:
    made = [refuse]
    for conditions in reversed(condition.alternatives):
        tests = [instruction for one in conditions for instruction in _tested(one, _NEXT)]
        tests.append(Instruction(JUMP, 0, 0, len(made)))
        last = len(tests) - 1
        made = [
            _NEXT._replace(constant=last - at) if instruction is _NEXT else instruction
            for at, instruction in enumerate(tests)
        ] + made
    return made


def _masked(mask: int) -> list[Instruction]:
    return [] if mask == WHOLE else [Instruction(AND, 0, 0, mask)]


def packed(program: Iterable[Instruction]) -> bytes:
    """The program as the kernel's array of `struct sock_filter`. Raises struct.error if a jump is too far."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
