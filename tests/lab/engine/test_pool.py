"""A pool of processes: results, order, and what happens to a job whose worker ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pids import gone

from lab.engine import processes
from lab.engine.jobs import WorkerDiedError
from lab.engine.pool import Pool
from lab.engine.transfer import Packer

pytestmark = pytest.mark.slow

SECONDS = 60.0  # the longest wait for something that takes milliseconds
LARGE = np.arange(200_000)  # in memory before a pool is opened


class TwoArgumentsError(Exception):
    """It can be pickled, but not be made again of what was pickled."""

    def __init__(self, what: str, value: object) -> None:
        super().__init__(f"{what}: {value}")


class Unread:
    """Can be pickled; reading it fails."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def work(job: tuple[str, Any]) -> Any:
    kind, value = job
    if kind == "double":
        return 2 * value
    if kind == "large":
        return int(LARGE[value])
    if kind == "process":
        return os.getpid()
    if kind == "kill":
        os.kill(os.getpid(), value)
    if kind == "exit":
        sys.exit(value)
    if kind == "raise":
        raise ValueError(value)
    if kind == "two":
        raise TwoArgumentsError("no such thing", value)
    if kind == "unread":
        return Unread()
    if kind == "wait":  # for a file
        while not Path(value).exists():
            time.sleep(0.005)
        return None
    if kind == "write":
        file, text = value
        with Path(file).open("a") as stream:
            stream.write(text)
        return None
    return lambda: None  # cannot be pickled


def submit(pool: Pool, kind: str, value: Any = None, **options: Any) -> Future[Any]:
    return pool.submit(Packer().pack((kind, value)), **options)


def result(pool: Pool, kind: str, value: Any = None) -> Any:
    return submit(pool, kind, value).result(SECONDS)


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(work, 2) as opened:
        yield opened


def test_jobs_are_done_and_see_what_was_in_memory(pool: Pool) -> None:
    futures = [submit(pool, "double", number) for number in range(200)]
    assert [future.result(SECONDS) for future in futures] == [2 * number for number in range(200)]
    assert result(pool, "large", 5) == 5
    assert {result(pool, "process") for _ in range(20)} <= set(pool.process_ids)


def test_both_workers_work_at_the_same_time(pool: Pool, tmp_path: Path) -> None:
    go_on = str(tmp_path / "go on")
    waiting = submit(pool, "wait", go_on)
    assert result(pool, "double", 4) == 8  # by the other one
    assert not waiting.done()
    Path(go_on).touch()
    waiting.result(SECONDS)


def test_the_most_urgent_and_then_the_longest_job_comes_first(tmp_path: Path) -> None:
    go_on, file = str(tmp_path / "go on"), str(tmp_path / "order")
    with Pool(work, 1) as pool:
        first = submit(pool, "wait", go_on)
        jobs = [(1, 9.0, "e"), (0, 1.0, "c"), (0, 5.0, "a"), (1, 9.0, "f"), (0, 5.0, "b"), (0, 0.0, "d")]
        rest = [submit(pool, "write", (file, name), priority=p, seconds=s) for p, s, name in jobs]
        Path(go_on).touch()
        for future in (first, *rest):
            future.result(SECONDS)
    assert Path(file).read_text() == "abcdef"


def test_an_exception_is_the_result_of_its_job_only(pool: Pool) -> None:
    with pytest.raises(ValueError, match="no such thing"):
        result(pool, "raise", "no such thing")
    with pytest.raises(RuntimeError, match="a result that cannot be sent"):
        result(pool, "unknown")
    assert result(pool, "double", 3) == 6


def test_what_cannot_be_read_is_the_result_of_its_job_only(pool: Pool) -> None:
    processes = set(pool.process_ids)
    with pytest.raises(RuntimeError, match="TwoArgumentsError: no such thing: 7"):
        result(pool, "two", 7)
    with pytest.raises(RuntimeError, match="what a worker process returned cannot be read: ValueError: invalid"):
        result(pool, "unread")
    assert result(pool, "double", 3) == 6 and set(pool.process_ids) == processes


def test_an_error_of_the_pool_itself_is_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(work, 1) as pool:
        monkeypatch.setattr(pool, "_receive", lambda worker: 1 / 0)
        monkeypatch.setattr(threading, "excepthook", lambda args: None)
        with pytest.raises(WorkerDiedError, match="the pool was closed"):
            result(pool, "double", 3)
        with pytest.raises(WorkerDiedError, match="the pool was closed"):
            result(pool, "double", 3)


@pytest.mark.parametrize(
    ("kind", "value", "how"),
    [
        ("kill", signal.SIGKILL, "was ended by SIGKILL"),
        ("kill", signal.SIGUSR1, "was ended by SIGUSR1"),
        ("kill", signal.SIGRTMIN + 5, f"was ended by signal {signal.SIGRTMIN + 5}"),
        ("exit", 3, "ended with code 1"),
    ],
)
def test_a_worker_that_ends_is_replaced(
    pool: Pool, kind: str, value: int, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = set(pool.process_ids)
    for _ in range(3):
        with pytest.raises(WorkerDiedError, match=f"its worker process {how}"):
            result(pool, kind, value)
    assert [result(pool, "double", number) for number in range(20)] == [2 * number for number in range(20)]
    assert len(pool.process_ids) == 2
    assert set(pool.process_ids) != before


def test_a_worker_that_is_killed_while_it_waits_is_replaced(pool: Pool) -> None:
    for process in pool.process_ids:
        os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    answers = []
    while len(answers) < 5 and time.monotonic() < deadline:
        try:
            answers.append(result(pool, "double", 1))
        except WorkerDiedError:  # it got the job before the pool knew
            continue
    assert answers == [2] * 5
    assert len(pool.process_ids) == 2


def test_without_any_worker_the_jobs_fail(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: processes.WorkerTemplate, number: int) -> Any:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(processes.WorkerTemplate, "make", full)
    failed = [submit(pool, "kill", signal.SIGKILL) for _ in range(2)]
    rest = [submit(pool, "double", number) for number in range(3)]
    for future in failed:
        with pytest.raises(WorkerDiedError):
            future.result(SECONDS)
    for future in rest:
        assert "no worker process is left" in str(future.exception(SECONDS))
    with pytest.raises(WorkerDiedError, match="no worker process is left"):
        result(pool, "double", 1)


def test_fewer_workers_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    make = processes.WorkerTemplate.make

    def some(self: processes.WorkerTemplate, number: int) -> Any:
        if number >= 1:
            raise OSError("Resource temporarily unavailable")
        return make(self, number)

    monkeypatch.setattr(processes.WorkerTemplate, "make", some)
    with Pool(work, 3) as pool:
        assert pool.started == 1
        assert result(pool, "double", 3) == 6


def test_no_worker_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: processes.WorkerTemplate, number: int) -> Any:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(processes.WorkerTemplate, "make", full)
    with pytest.raises(OSError, match="temporarily unavailable"):
        Pool(work, 2)


def test_closing_ends_all_processes_and_jobs(tmp_path: Path) -> None:
    with Pool(work, 2) as pool:
        ids = [*pool.process_ids, pool.template_process]
        never = [submit(pool, "wait", str(tmp_path / "never")) for _ in range(4)]
        time.sleep(0.05)
    assert gone(*ids, seconds=SECONDS)
    for future in never:
        with pytest.raises(WorkerDiedError, match="the pool was closed"):
            future.result(SECONDS)
    with pytest.raises(WorkerDiedError, match="the pool was closed"):
        submit(pool, "double", 1).result(SECONDS)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system has no list of open files")
def test_pools_and_dying_workers_leave_no_files_open() -> None:
    def use() -> None:
        with Pool(work, 2) as pool:
            with pytest.raises(WorkerDiedError):
                result(pool, "kill", signal.SIGKILL)
            result(pool, "double", 2)

    use()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        use()
    assert len(os.listdir("/proc/self/fd")) == before


MAIN = """
import sys, time
from lab.engine.pool import Pool
from lab.engine.transfer import Packer

with Pool(lambda seconds: time.sleep(seconds), 2) as pool:
    pool.submit(Packer().pack(600))
    print(*pool.process_ids, pool.template_process, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers end after their job")
def test_all_processes_end_with_a_main_process_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", MAIN], stdout=subprocess.PIPE, text=True) as main:
        assert main.stdout is not None
        ids = [int(word) for word in main.stdout.readline().split()]
        assert len(ids) == 3
        main.kill()
    assert gone(*ids, seconds=SECONDS)
