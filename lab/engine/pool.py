"""A pool of worker processes, which live as long as the pool and share what was in memory when it was opened.

Each worker calls one function with the jobs it gets. The processes:

    main ── template ── worker, worker, ...

The template is a copy of the main process, made when the pool is opened, that only makes workers: also later, in
place of one that died, when the main process has threads and must not be copied any more. All of them end with the
main process, however it ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import processes, transfer
from .jobs import Queue, Work, WorkerJob
from .transfer import Packer, Parcel

CLOSED = "the pool was closed"


@dataclass
class _Worker:
    number: int  # of its place in the pool
    process: int
    connection: socket.socket
    job: WorkerJob | None = None


class Pool:
    """`workers` processes that call `work(job)`; use it as a context manager.

    Open it in the main thread, before the process has other threads and before it uses CUDA. Each worker calls
    `start(number)` first; `number`, from 0, is its place. Raises OSError if no worker can be started; `started`
    says how many could. Jobs and results are pickled, see `transfer.py`.
    """

    def __init__(self, work: Work, workers: int, start: Callable[[int], None] = lambda number: None) -> None:
        self._template = processes.WorkerTemplate(
            lambda number, connection: _serve(work, start, number, connection)
        )
        self._queue = Queue()
        self._lock = threading.Lock()  # of `_workers`
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._closing = False
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._idle: list[_Worker] = []
        self._workers: dict[int, _Worker] = {}
        try:
            for number in range(workers):
                self._add(number)
        except OSError:
            if not self._workers:
                self._template.close()
                raise
        self.started = len(self._workers)
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)
        self._thread.start()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of the workers' processes."""
        with self._lock:
            return [worker.process for worker in self._workers.values()]

    @property
    def template_process(self) -> int:
        """The id of the process that makes the workers."""
        return self._template.process

    def packer(self) -> Packer:
        """Packs jobs for `submit`; those that one packer packs share their large arrays."""
        return Packer()

    def submit(self, parcel: Parcel, *, priority: int = 0, seconds: float = 0.0) -> Future[Any]:
        """Queue a job; its result. See `Jobs`."""
        result = self._queue.add(parcel, priority, seconds)
        self._notify()
        return result

    def signal(self, number: int) -> None:
        """Send a signal to all workers."""
        for process in self.process_ids:
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def close(self) -> None:
        """End all processes at once. Jobs that are not done get WorkerDiedError."""
        self._queue.refuse(CLOSED)
        self._closing = True
        self._notify()
        self._thread.join()

    # -------------------------------------------------------- in the pool's thread

    def _run(self) -> None:
        try:
            while not self._closing:
                for key, _ in self._selector.select():
                    if key.data is None:
                        self._woken.recv(4096)
                    else:
                        self._receive(key.data)
                self._hand_out()
        finally:  # also after an error of this thread itself, of which nobody else would know
            self._queue.refuse(CLOSED)
            self._end()

    def _receive(self, worker: _Worker) -> None:
        try:
            failed, value = transfer.receive(worker.connection)
        except (EOFError, OSError):
            self._replace(worker)
            return
        except Exception as error:  # it has arrived, but cannot be made again here
            reason = f"what a worker process returned cannot be read: {type(error).__name__}: {error}"
            failed, value = True, RuntimeError(reason)
        job, worker.job = worker.job, None
        self._idle.append(worker)
        if job is not None:
            (job.result.set_exception if failed else job.result.set_result)(value)

    def _hand_out(self) -> None:
        while self._idle and (job := self._queue.take()) is not None:
            worker = self._idle.pop()
            worker.job = job
            try:
                transfer.send(worker.connection, job.parcel)
            except OSError:
                self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in the place of one that died, and report its job."""
        self._selector.unregister(worker.connection)
        worker.connection.close()
        if worker in self._idle:
            self._idle.remove(worker)
        with self._lock:
            del self._workers[worker.number]
        how = self._template.ended(worker.process)
        with suppress(OSError):
            self._add(worker.number)
        if worker.job is not None:
            worker.job.died(f"its worker process {how}")
        if not self._workers:  # nobody is left to do the others
            self._queue.refuse("no worker process is left")
            self._queue.fail(f"no worker process is left; the last one {how}")

    def _add(self, number: int) -> None:
        process, connection = self._template.make(number)
        worker = _Worker(number, process, connection)
        with self._lock:
            self._workers[number] = worker
        self._selector.register(connection, selectors.EVENT_READ, worker)
        self._idle.append(worker)

    def _end(self) -> None:
        for worker in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(worker.process, signal.SIGKILL)
            worker.connection.close()
            if worker.job is not None:
                worker.job.died(CLOSED)
        self._workers.clear()
        self._queue.fail(CLOSED)
        self._template.close()
        self._selector.close()
        self._woken.close()
        self._wake.close()

    def _notify(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._wake.send(b".")


# ---------------------------------------------------------------- in a worker


def _serve(work: Work, start: Callable[[int], None], number: int, connection: socket.socket) -> None:
    """Do jobs until the connection is closed."""
    start(number)
    processes.ready()
    while True:
        try:
            job = transfer.receive(connection)
        except EOFError:
            return
        try:
            reply = (False, work(job))
        except Exception as error:
            reply = (True, error)
        transfer.send(connection, _packed(reply))


def _packed(reply: tuple[bool, Any]) -> Parcel:
    try:
        if reply[0]:
            transfer.check_made_again(reply[1])
        return Packer().pack(reply)
    except Exception as error:  # not every value, and not every error, can be pickled
        what = f"{type(reply[1]).__name__}: {reply[1]}" if reply[0] else f"a result that cannot be sent: {error}"
        return Packer().pack((True, RuntimeError(what)))
