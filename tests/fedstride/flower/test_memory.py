"""The memory of a node whose SuperLink sends more than is allowed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import superlinks as links
from superlinks import SuperLink

MIB = 2**20
BOUND, PART = 128 * MIB, 8 * MIB

NOTHING_KEPT = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
"""Freed parts go back to the system at once: how much of them malloc keeps depends on the threads."""

NODE = r"""
import re, sys
from pathlib import Path
from fedstride.flower.for_nodes import over_grpc, over_http
from fedstride.flower.for_nodes.fleet import FleetLink
from fedstride.flower.for_nodes.request_keys import Keys
from fedstride.flower.for_nodes.connection import SuperLinkAddress, TooLargeError
from node.messages.message_parts import Until, fetched

def most():
    # in bytes; that of getrusage includes the parent's
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

transport, address, bound = sys.argv[1], sys.argv[2], int(sys.argv[3])
made = (over_grpc.GrpcTransport if transport == "grpc" else over_http.HttpTransport)(
    SuperLinkAddress(address, insecure=True)
)
link = FleetLink(made, Keys())
arrived = link.receive()
before = most()
try:
    fetched(link, arrived.head.run, arrived.objects, Until.of(arrived.head), bound)
except TooLargeError as error:
    print(most() - before)
link.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_the_memory_is_at_most_twice_the_bound(transport: str) -> None:
    """Parts are counted one by one: of a message of a gigabyte, little more than the bound is fetched."""
    parts = [bytes([number]) * PART for number in range(128)]
    by_id = {links.object_id(part): part for part in parts}
    root, *others = by_id

    def content(request: bytes) -> bytes:
        return links.content(by_id[links.message_pb2.PullObjectRequest.FromString(request).object_id])

    with SuperLink(transport).serving() as superlink:
        tree = links.tree(root, *[links.tree(each) for each in others])
        superlink["PullMessages"] = links.pulled(links.message(root), tree)
        superlink["PullObject"] = content
        done = subprocess.run(
            [sys.executable, "-c", NODE, transport, superlink.address, str(BOUND)],
            capture_output=True, text=True, check=True, timeout=120,
            env=os.environ | {"PYTHONPATH": os.getcwd()} | NOTHING_KEPT,
        )  # fmt: skip
    assert superlink.calls.count("PullObject") <= BOUND // PART + 2
    assert 0 < int(done.stdout) <= 2 * BOUND + MIB  # and some pages of the interpreter
