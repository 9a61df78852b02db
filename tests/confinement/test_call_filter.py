"""The filter of system calls, run in an interpreter for both machines: what is allowed, and what never is."""

from __future__ import annotations

import errno
import functools

import pytest
from bpf import verdict
from hypothesis import given
from hypothesis import strategies as st

from confinement import ConfinementError
from confinement.assembler import ALLOW, JUMP, JUMP_MOST, KILL, RETURN, Instruction, always, packed
from confinement.call_filter import (
    AS_IF_DONE,
    CONSTANT,
    NOT_SUPPORTED,
    NOT_THERE,
    OF_CARD,
    conditions,
    program,
    refused,
)
from confinement.call_numbers import ARCHITECTURES, MACHINES, NEWEST, NUMBERS, number

PID, OTHER = 4711, 815
REFUSED, ABSENT, NO_SUPPORT, DONE = (0x50000 | code for code in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, 0))
I386, ARM = 0x40000003, 0x40000028
HIGH = 1 << 32
"""A bit that the kernel does not see in an argument of 32 bits."""

CREAT, TRUNC, WRITE, BOTH = 0o100, 0o1000, 1, 2
STREAM, DATAGRAM, SEQPACKET, CLOEXEC = 1, 2, 5, 0o2000000
NEW_USER, NEW_TIME, PARENT, THREAD = 0x10000000, 0x80, 0x8000, 0x3D0F00
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
FASTOPEN = 0x20000000


@functools.cache
def code(machine: str, landlock: int = 7, network: bool = False, devices: bool = False) -> bytes:
    return packed(program(machine, landlock, PID, network, devices))


def asked(machine: str, name: str, *arguments: int, **options: int) -> int | None:
    """The verdict on the call, or None if the machine does not have it."""
    value = number(name, machine)
    made = code(machine, **options)  # type: ignore[arg-type]
    return None if value is None else verdict(made, ARCHITECTURES[machine], value, arguments)


both = pytest.mark.parametrize("machine", MACHINES)

ALLOWED = [
    ("openat", (0, 0, BOTH | CREAT | TRUNC), {}),
    ("openat", (0, 0, WRITE | TRUNC), {"landlock": 1}),
    ("openat", (0, 0, TRUNC), {"landlock": 3}),
    ("open", (0, 0), {"landlock": 1}),
    ("openat", (0, 0, CREAT | WRITE, 0o1777), {}),
    ("truncate", (0, 0), {"landlock": 3}),
    ("clone", (THREAD,), {}),
    ("clone", (17,), {}),
    ("socketpair", (UNIX, STREAM | CLOEXEC), {}),
    ("fcntl", (0, 1030), {}),
    ("fcntl", (0, 4), {}),
    ("ioctl", (0, 0x5401), {}),
    ("ioctl", (0, 0x541B), {}),
    ("prctl", (15,), {}),
    ("prlimit64", (0, 7), {}),
    ("prlimit64", (PID, 7), {}),
    ("sched_setaffinity", (0,), {}),
    ("kill", (OTHER, 9), {"landlock": 6}),
    ("kill", (PID, 9), {"landlock": 1}),
    ("tgkill", (PID, PID, 9), {"landlock": 1}),
    ("socket", (INET, STREAM | CLOEXEC, 0), {"network": True}),
    ("socket", (INET6, STREAM, 6), {"network": True}),
    ("connect", (3,), {"network": True}),
    ("sendto", (3, 0, 0, 0x4000), {"network": True}),
    ("sendto", (3, 0, 0, FASTOPEN), {}),
    ("ioctl", (0, 0xC00846CE), {"devices": True}),
    ("ioctl", (0, 0x30000001), {"devices": True}),
    ("ioctl", (0, 0x21), {"devices": True}),
    ("socket", (UNIX, SEQPACKET | CLOEXEC, 0), {"devices": True}),
    ("socket", (UNIX, SEQPACKET | CLOEXEC, 0), {"devices": True, "network": True}),
    ("socket", (INET6, STREAM, 6), {"devices": True, "network": True}),
    ("bind", (3,), {"devices": True}),
    ("listen", (3,), {"devices": True}),
    ("landlock_restrict_self", (3,), {}),
]

DENIED = [
    ("chown", (), {}),
    ("ioctl", (0, 0x5412), {}),
    ("ioctl", (0, 0x541C), {}),
    ("ioctl", (0, 0x5412 | HIGH), {}),
    ("ioctl", (0, 0x5412), {"devices": True}),
    ("ioctl", (0, 0x541C), {"devices": True}),
    ("ioctl", (0, 0x8901), {"devices": True}),
    ("ioctl", (0, 0x8902), {}),
    ("ioctl", (0, 0x40086602), {"devices": True}),
    ("ioctl", (0, 0x50009401), {"devices": True}),
    ("ioctl", (0, 0x40806685), {}),
    ("mknodat", (), {}),
    ("mount", (), {}),
    ("truncate", (), {"landlock": 2}),
    ("openat", (0, 0, TRUNC), {"landlock": 2}),
    ("open", (0, TRUNC), {"landlock": 2}),
    ("open", (0, TRUNC | HIGH), {"landlock": 1}),
    ("open", (0, 3), {}),
    ("openat", (0, 0, 3 | TRUNC), {"landlock": 1}),
    ("open", (0, CREAT | WRITE, 0o4755), {}),
    ("openat", (0, 0, CREAT | WRITE, 0o2755), {}),
    ("creat", (0, 0o4755), {}),
    ("kill", (OTHER,), {"landlock": 5}),
    ("kill", (0,), {"landlock": 5}),
    ("kill", (-1,), {"landlock": 5}),
    ("kill", (-PID,), {"landlock": 5}),
    ("kill", (PID - 2**32 + 1,), {"landlock": 5}),
    ("tgkill", (OTHER, PID), {"landlock": 5}),
    ("tkill", (PID,), {"landlock": 5}),
    ("rt_sigqueueinfo", (OTHER,), {"landlock": 5}),
    ("rt_tgsigqueueinfo", (OTHER,), {"landlock": 5}),
    ("pidfd_send_signal", (3,), {"landlock": 5}),
    ("fcntl", (0, 8), {}),
    ("fcntl", (0, 15), {}),
    ("fcntl", (0, 8 | HIGH), {"landlock": 1}),
    ("fcntl", (0, 1024), {}),
    ("fcntl", (0, 1026), {}),
    ("prlimit64", (OTHER, 7), {}),
    ("prlimit64", (OTHER | HIGH, 7), {}),
    ("sched_setaffinity", (OTHER,), {}),
    ("setpriority", (0, OTHER), {}),
    ("ioprio_set", (), {}),
    ("socketpair", (UNIX, DATAGRAM), {}),
    ("socketpair", (UNIX, DATAGRAM | CLOEXEC), {}),
    ("socketpair", (UNIX, 5), {}),
    ("socketpair", (INET, STREAM), {}),
    ("socket", (INET, STREAM), {}),
    ("connect", (3,), {}),
    ("bind", (3,), {"network": True}),
    ("listen", (3,), {"network": True}),
    ("accept4", (3,), {"network": True}),
    ("socket", (UNIX, STREAM), {"network": True}),
    ("socket", (UNIX, SEQPACKET), {}),
    ("socket", (UNIX, SEQPACKET), {"network": True}),
    ("socket", (UNIX, STREAM), {"devices": True, "network": True}),
    ("socket", (UNIX, DATAGRAM), {"devices": True}),
    ("socket", (UNIX, SEQPACKET, 1), {"devices": True}),
    ("socket", (INET, SEQPACKET), {"devices": True, "network": True}),
    ("socket", (INET, STREAM), {"devices": True}),
    ("connect", (3,), {"devices": True}),
    ("accept4", (3,), {"devices": True}),
    ("accept", (3,), {"devices": True, "network": True}),
    ("socket", (NETLINK, STREAM), {"network": True}),
    ("socket", (INET, DATAGRAM), {"network": True}),
    ("socket", (INET, 3), {"network": True}),
    ("socket", (INET, STREAM, 262), {"network": True}),
    ("socket", (INET, STREAM, 132), {"network": True}),
    ("sendto", (3, 0, 0, FASTOPEN), {"network": True}),
    ("sendmsg", (3, 0, FASTOPEN | HIGH), {"network": True}),
    ("sendmmsg", (3, 0, 0, FASTOPEN | 1), {"network": True}),
    ("clone", (PARENT | 17,), {}),
    ("clone", (NEW_USER | 17,), {}),
    ("clone", (0x02000000,), {}),
    ("unshare", (NEW_USER,), {}),
    ("shmget", (), {}),
    ("mq_open", (), {}),
    ("io_uring_setup", (), {}),
    ("memfd_secret", (), {}),
    ("memfd_create", (), {}),
    ("process_vm_writev", (), {}),
    ("inotify_init1", (), {}),
    ("name_to_handle_at", (), {}),
    ("fanotify_init", (), {}),
    ("prctl", (4, 1), {}),
    ("prctl", (4 | HIGH, 1), {}),
    ("ptrace", (), {}),
]


@both
@pytest.mark.parametrize(("name", "arguments", "options"), ALLOWED)
def test_a_call_is_allowed(name: str, arguments: tuple[int, ...], options: dict[str, int], machine: str) -> None:
    assert asked(machine, name, *arguments, **options) in (ALLOW, None)


@both
@pytest.mark.parametrize(("name", "arguments", "options"), DENIED)
def test_a_call_is_refused(name: str, arguments: tuple[int, ...], options: dict[str, int], machine: str) -> None:
    assert asked(machine, name, *arguments, **options) in (REFUSED, None)


@both
def test_which_calls_of_these_lists_a_machine_lacks(machine: str) -> None:
    missing = {name for name, *_ in ALLOWED + DENIED if number(name, machine) is None}
    assert missing == (set() if machine == "x86_64" else {"open", "creat", "chown"})


@both
def test_modes_and_times_are_answered_as_if_done(machine: str) -> None:
    assert {asked(machine, name) for name in AS_IF_DONE} <= {DONE, None}
    assert {asked(machine, name) for name in NOT_THERE} == {ABSENT}


@both
@given(arguments=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6), name=st.sampled_from(NOT_SUPPORTED))
def test_extended_attributes_are_answered_as_if_there_were_none(
    machine: str, name: str, arguments: list[int]
) -> None:
    assert asked(machine, name, *arguments, landlock=1, network=True) == NO_SUPPORT


@both
@pytest.mark.parametrize("call", [NEWEST + 1, 500, 512, 547, 2**31, 2**32 - 1, 0x40000000, 0x40000000 | 62])
def test_a_number_above_the_newest_or_of_x32_does_not_exist(call: int, machine: str) -> None:
    assert verdict(code(machine), ARCHITECTURES[machine], call) == ABSENT


@both
def test_a_caller_of_another_architecture_is_ended(machine: str) -> None:
    others = {I386, ARM, *ARCHITECTURES.values(), 0} - {ARCHITECTURES[machine]}
    assert {verdict(code(machine), other, call) for other in others for call in (0, 4, 41, 2**32 - 1)} == {KILL}


def test_a_machine_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ConfinementError, match="riscv64") as caught:
        program("riscv64", 7, PID, False)
    assert "\n" not in str(caught.value)


@both
@pytest.mark.parametrize("landlock", range(1, 8))
@pytest.mark.parametrize("network", [False, True])
def test_the_program_is_short_and_its_jumps_fit(network: bool, landlock: int, machine: str) -> None:
    made = program(machine, landlock, PID, network, devices=True)
    assert len(made) < 500
    for at, each in enumerate(made):
        farthest = each.constant if each.code == JUMP else max(each.true, each.false)
        assert max(each.true, each.false) <= JUMP_MOST
        assert each.code == RETURN or at + 1 + farthest < len(made)
    assert made[-1].code == RETURN


def test_more_numbers_than_a_jump_is_long_are_divided() -> None:
    body = [*always(range(1000), KILL), Instruction(RETURN, 0, 0, ALLOW)]
    made = packed([Instruction(0x20, 0, 0, 0), *body])
    assert {verdict(made, 0, each) for each in range(1000)} == {KILL}
    assert verdict(made, 0, 1000) == ALLOW


words = st.integers(0, 2**64 - 1)
calls = st.lists(words, min_size=6, max_size=6)


@both
@given(
    arguments=calls,
    name=st.sampled_from(sorted(CONSTANT)),
    landlock=st.integers(1, 7),
    network=st.booleans(),
    devices=st.booleans(),
)
def test_no_arguments_make_a_refused_call_allowed(
    machine: str, name: str, landlock: int, network: bool, devices: bool, arguments: list[int]
) -> None:
    found = asked(machine, name, *arguments, landlock=landlock, network=network, devices=devices)
    assert found in (REFUSED, None) or (devices and name in OF_CARD)


@both
@given(arguments=calls, call=st.integers(NEWEST + 1, 2**32 - 1))
def test_no_arguments_make_an_unknown_call_exist(machine: str, call: int, arguments: list[int]) -> None:
    assert verdict(code(machine), ARCHITECTURES[machine], call, arguments) == ABSENT


@both
@given(arguments=calls, upper=calls, name=st.sampled_from(sorted(conditions(1, PID, True))))
def test_the_upper_half_of_an_argument_changes_nothing(
    machine: str, name: str, arguments: list[int], upper: list[int]
) -> None:
    other = [low & 2**32 - 1 | high << 32 & 2**64 - 1 for low, high in zip(arguments, upper, strict=True)]
    options = {"landlock": 1, "network": True}
    assert asked(machine, name, *arguments, **options) == asked(machine, name, *other, **options)


@both
@given(call=st.integers(0, NEWEST), arguments=calls)
def test_a_call_outside_of_the_table_is_allowed(machine: str, call: int, arguments: list[int]) -> None:
    named = {pair[MACHINES.index(machine)] for pair in NUMBERS.values()}
    if call not in named:
        assert verdict(code(machine), ARCHITECTURES[machine], call, arguments) == ALLOW


def test_each_name_of_the_lists_is_in_the_table() -> None:
    names = {*refused(1, False), *AS_IF_DONE, *NOT_THERE, *NOT_SUPPORTED, *conditions(1, PID, True)}
    assert names <= set(NUMBERS)
