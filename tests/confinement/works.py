"""What a confined app must still be able to do. `python works.py JSON` confines itself and tries everything.

The JSON has the fields of a domain (lists of paths), `landlock`, and `only`, names of what is tried. It prints the
name of each work with its error, or ''.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from confinement import Domain, basics, confine

WORKS: dict[str, Callable[[Path], object]] = {}


def work(act: Callable[[Path], object]) -> Callable[[Path], object]:
    WORKS[act.__name__] = act
    return act


@work
def modules_of_python(scratch: Path) -> None:
    import decimal
    import sqlite3
    import ssl
    import zoneinfo

    ssl.create_default_context()
    assert decimal and sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
    assert zoneinfo.ZoneInfo("UTC")


@work
def own_entries_of_proc(scratch: Path) -> None:
    for name in ("maps", "status", "stat", "statm"):
        assert Path(f"/proc/self/{name}").read_bytes()
    assert os.listdir("/proc/self/fd") and os.listdir("/proc/self/task") == [str(os.getpid())]


@work
def a_fork(scratch: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@work
def programs(scratch: Path) -> None:
    import subprocess

    subprocess.run(["/usr/bin/true"], check=True)
    assert subprocess.check_output(["/bin/sh", "-c", "cat < /dev/null; echo done"]) == b"done\n"
    (scratch / "original").write_text("x")
    subprocess.run(["cp", "-p", scratch / "original", scratch / "copy"], check=True)
    assert (scratch / "copy").read_text() == "x"
    assert subprocess.check_output([sys.executable, "-c", "print(1)"]) == b"1\n"


@work
def pipes_and_processes(scratch: Path) -> None:
    import multiprocessing

    here, there = multiprocessing.Pipe()
    fork = multiprocessing.get_context("fork").Process(target=there.send, args=("sent",))
    fork.start()
    assert here.recv() == "sent"
    fork.join()
    assert fork.exitcode == 0


@work
def an_event_loop(scratch: Path) -> None:
    import asyncio

    async def both() -> None:
        process = await asyncio.create_subprocess_exec("/usr/bin/true")
        assert await process.wait() == 0
        await asyncio.to_thread(lambda: None)

    asyncio.run(both())


@work
def threads(scratch: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(abs, range(100))) == 4950


@work
def files(scratch: Path) -> None:
    import shutil
    import tempfile

    one, two = scratch / "one", scratch / "two"
    one.write_text("x")
    shutil.copy2(one, two)
    two.chmod(0o644)
    os.utime(two)
    os.truncate(two, 0) if LANDLOCK >= 3 else two.write_text("")
    (scratch / "inner").mkdir()
    os.replace(one, scratch / "three")
    shutil.move(scratch / "three", scratch / "inner")
    with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
        file.write(b"x")
        assert Path(named.name).parent == scratch
    shutil.rmtree(scratch / "inner")
    with open("/dev/null", "w") as file:
        file.write("x")
    assert os.urandom(8)


@work
def locks_of_files(scratch: Path) -> None:
    import fcntl

    with (scratch / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)


@work
def names(scratch: Path) -> None:
    import pwd
    import socket

    assert socket.getaddrinfo("localhost", 80, socket.AF_INET, socket.SOCK_STREAM)[0][4] == ("127.0.0.1", 80)
    assert pwd.getpwuid(0).pw_name == "root"


@work
def own_signals(scratch: Path) -> None:
    import signal
    import threading

    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    assert len(seen) == 3


@work
def own_limits(scratch: Path) -> None:
    import resource

    assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200, 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, 200))
    os.sched_setaffinity(0, os.sched_getaffinity(0))


@work
def packages_of_a_clone(scratch: Path) -> None:
    import strategies
    from fedstride.settings import Setting

    assert strategies and Setting


@work
def torch_trains(scratch: Path) -> None:
    import torch

    network = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 26 * 26, 10))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    torch.set_num_threads(2)
    loss = torch.nn.functional.cross_entropy(
        network(torch.randn(64, 1, 28, 28)), torch.zeros(64, dtype=torch.long)
    )
    loss.backward()
    optimizer.step()
    torch.save(network.state_dict(), scratch / "model.pt")
    network.load_state_dict(torch.load(scratch / "model.pt", weights_only=True))


@work
def safetensors_are_kept(scratch: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    save_file({"x": torch.ones(1000)}, scratch / "model.safetensors")
    assert load_file(scratch / "model.safetensors")["x"].sum() == 1000


@work
def numba_compiles(scratch: Path) -> None:
    import numba
    import numpy as np

    @numba.njit(parallel=True, cache=True)  # type: ignore[untyped-decorator,unused-ignore]
    def total(values: object) -> float:
        result = 0.0
        for at in numba.prange(len(values)):  # type: ignore[arg-type]
            result += values[at]  # type: ignore[index]
        return result

    assert total(np.ones(1000)) == 1000


@work
def tables_are_read(scratch: Path) -> None:
    import pandas as pd
    import pyarrow.parquet as parquet

    frame = pd.DataFrame({"a": [1, 2]})
    frame.to_csv(scratch / "table.csv")
    frame.to_parquet(scratch / "table.parquet")
    assert len(pd.read_csv(scratch / "table.csv")) == len(parquet.read_table(scratch / "table.parquet")) == 2


@work
def a_client_app(scratch: Path) -> None:
    import client_app.app

    assert client_app.app.app


@work
def a_connection(scratch: Path) -> None:
    import asyncio
    import socket

    socket.create_connection(("127.0.0.1", PORTS[0]), 5).close()
    socket.create_connection(("localhost", PORTS[0]), 5).close()

    async def connect() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", PORTS[0])
        writer.close()

    asyncio.run(connect())


PORTS: list[int] = []
LANDLOCK = 0


def main() -> None:
    global LANDLOCK
    asked = json.loads(sys.argv[1])
    scratch = Path(asked["scratch"])
    PORTS.extend(asked["ports"])
    LANDLOCK = asked["landlock"]
    os.environ |= {name: str(scratch) for name in ("TMPDIR", "HOME", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
    os.chdir(scratch)
    root = Path(__file__).resolve().parents[2]
    app = Path(__file__).resolve()  # numba reads the file of a function that it keeps
    packages = tuple(root / name for name in ("fedstride", "strategies", "client_app"))
    domain = Domain(
        read=(*basics(network=bool(PORTS)), *packages, app),
        write=(scratch,),
        listed=(root,),
        ports=tuple(PORTS),
        open_files=200,
    )
    confine(domain, asked["landlock"])
    print(json.dumps({name: tried(name, scratch) for name in asked["only"]}), flush=True)
    os._exit(0)


def tried(name: str, scratch: Path) -> str:
    try:
        WORKS[name](scratch)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main()
