"""Another user of this machine, who tries what processes listen on: the program, and how a test starts it.

The program becomes another user after its imports, and then asks every socket for everything that Flower and Ray
answer: each route of HTTP, each method of gRPC, in plain text and with TLS.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib
import json
import os
import pkgutil
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

NOBODY = 65534
SECONDS = 3.0
LISTENS = "0A"  # the state of a TCP socket in /proc/net
LOOPBACK = {"0100007F", f"{'0' * 24}01000000", f"0000000000000000FFFF0000{'0100007F'}"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1 in /proc/net."""


class Door(NamedTuple):
    """A socket on which a process listens."""

    kind: str  # tcp, unix or udp
    where: str  # the address as /proc has it, or the path, or the name after an @
    port: int
    pid: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return self.kind == "unix" or self.where in LOOPBACK


def doors(processes: Iterable[int]) -> list[Door]:
    """The sockets on which these processes listen."""
    owners: dict[str, int] = {}
    for pid in processes:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(file)):
                    owners[found[1]] = pid
    return [*_of_network(owners), *_of_unix(owners)]


def _of_network(owners: dict[str, int]) -> Iterator[Door]:
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            values = line.split()
            kind = table[:3]
            if values[9] in owners and (kind == "udp" or values[3] == LISTENS):
                where, _, port = values[1].rpartition(":")
                yield Door(kind, where, int(port, 16), owners[values[9]])


def _of_unix(owners: dict[str, int]) -> Iterator[Door]:
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        values = line.split(maxsplit=7)
        if len(values) == 8 and values[6] in owners:
            yield Door("unix", values[7], 0, owners[values[6]])


def intrude(found: Iterable[Door], ca: Path | None = None) -> list[str]:
    """What another user gets at these sockets: a line for each answer. Needs root. `ca`: of those with TLS."""
    order = {
        "ports": sorted({door.port for door in found if door.kind == "tcp"}),
        "paths": sorted({door.where for door in found if door.kind == "unix"}),
        "ca": None if ca is None else ca.read_text(),
    }
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *answers, tried = done.stdout.splitlines()
    assert int(tried) >= 50 * len(order["ports"]), "it has tried hardly anything"
    return answers


# ---------------------------------------------------------------- the program


def main() -> None:
    """Print a line for each answer, and at last how much was tried."""
    order = json.loads(sys.stdin.read())
    import grpc
    import httpx

    routes, methods = list(_routes()), list(_methods())
    _rehearse(httpx, grpc, routes, methods, order["ca"])
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    tried = 0
    for port in order["ports"]:
        for scheme in ("http", "https"):
            tried += _ask_http(httpx, f"{scheme}://127.0.0.1:{port}", routes)
        tried += _ask_grpc(grpc, port, methods, order["ca"])
    for path in order["paths"]:
        tried += 1
        _connect(path)
    print(tried)


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Refuses everything, without a word."""

    def log_message(self, *arguments: Any) -> None:
        pass


def _rehearse(httpx: Any, grpc: Any, routes: Sequence[str], methods: Sequence[str], ca: str | None) -> None:
    """Have everything imported that requests need: the other user may not be able to read this Python."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for scheme in ("http", "https"):
            _ask_http(httpx, f"{scheme}://127.0.0.1:{server.server_port}", routes[:2])
        _ask_grpc(grpc, server.server_port, methods[:1], ca)
        server.shutdown()


def _routes() -> Iterator[str]:
    """The paths of Flower's three APIs over HTTP."""
    for api in ("fleet", "runtime", "control"):
        module = importlib.import_module(f"flwr.proto.{api}_pb2")
        for name in module.DESCRIPTOR.message_types_by_name:
            if name.endswith("Request"):
                yield f"/v1/{api}/{re.sub('(?<!^)(?=[A-Z])', '-', name.removesuffix('Request')).lower()}"
    yield from ("/", "/docs", "/openapi.json", "/v1/fedstride/files?folder=/", "/api/jobs/", "/metrics")


def _methods() -> Iterator[str]:
    """The methods of gRPC of all services of Flower and Ray, and those that Flower had before 1.37."""
    import flwr.proto

    packages: list[Any] = [flwr.proto]
    with contextlib.suppress(ImportError):
        import ray.core.generated

        packages.append(ray.core.generated)
    for package in packages:
        for each in pkgutil.iter_modules(package.__path__):
            if each.name.endswith("_pb2"):
                module = importlib.import_module(f"{package.__name__}.{each.name}")
                for service in module.DESCRIPTOR.services_by_name.values():
                    yield from (f"/{service.full_name}/{method.name}" for method in service.methods)
    for service in ("ServerAppIo", "ClientAppIo", "SimulationIo", "Control", "Fleet", "Runtime"):
        for method in ("ListAppsToLaunch", "RequestToken", "PullAppInputs", "PullMessages", "PullTaskInput"):
            yield f"/flwr.proto.{service}/{method}"
    yield "/ray.rpc.ObjectManagerService/FreeObjects"


def _ask_http(httpx: Any, base: str, routes: Iterable[str]) -> int:
    tried = 0
    headers = {"content-type": "application/protobuf", "accept": "application/protobuf"}
    with httpx.Client(verify=False, trust_env=False, timeout=SECONDS) as client:
        for path in routes:
            try:
                answer = client.post(base + path, headers=headers)
            except httpx.TransportError:  # it speaks something else
                break
            tried += 1
            if answer.is_success:
                print(f"HTTP {answer.status_code} {base}{path}: {answer.content[:60]!r}")
            with contextlib.suppress(httpx.TransportError):
                if client.get(base + path).is_success:
                    print(f"HTTP GET {base}{path}")
    return tried


def _ask_grpc(grpc: Any, port: int, methods: Iterable[str], ca: str | None) -> int:
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}")]
    if ca is not None:
        trust = grpc.ssl_channel_credentials(ca.encode())
        options = [("grpc.ssl_target_name_override", "localhost")]
        channels.append(grpc.secure_channel(f"127.0.0.1:{port}", trust, options))
    tried = 0
    for channel in channels:
        with contextlib.suppress(grpc.FutureTimeoutError), channel:
            grpc.channel_ready_future(channel).result(SECONDS)
            for method in methods:
                tried += 1
                try:
                    answer = channel.unary_unary(method)(b"", timeout=SECONDS)
                    print(f"gRPC {port} {method}: {answer[:60]!r}")
                except grpc.RpcError as error:
                    if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INVALID_ARGUMENT):
                        print(f"gRPC {port} {method}: {error.code().name}, so it was let in")
    return tried


def _connect(path: str) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as line, contextlib.suppress(OSError):
            line.connect("\0" + path[1:] if path.startswith("@") else path)
            print(f"connected to {path}")


if __name__ == "__main__":
    main()
