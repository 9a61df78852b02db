"""Freed memory stays with the process, so that it is not fetched again in each step."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from client_app import free_memory

SIZE = 64_000_000  # bytes of a block: more than glibc ever keeps by itself
TIMES = 10


def fetched(before: str) -> float:
    """Bytes of pages that a process fetches when it needs a block again, after `before`."""
    program = f"""
        import resource
        import torch

        {before}
        def need():
            torch.ones({SIZE} // 4)

        for _ in range({TIMES}):
            need()  # until the heap is large enough
        start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range({TIMES}):
            need()
        pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
        print(pages * resource.getpagesize() / {TIMES})
    """
    return float(subprocess.check_output([sys.executable, "-c", textwrap.dedent(program)], text=True))


@pytest.mark.slow
@pytest.mark.skipif(not free_memory.keep_freed_memory(), reason="the C library is not glibc")
def test_a_freed_block_is_not_fetched_again() -> None:
    assert fetched("from client_app import free_memory; free_memory.keep_freed_memory()") < SIZE / 10
    assert fetched("") > SIZE / 10  # otherwise the setting is not needed
