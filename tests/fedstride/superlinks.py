"""A SuperLink's Fleet API that answers as a test says, over gRPC or HTTP, and a relay that cuts lines."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

NODE = 5
RUN = 7

Handler = Callable[[bytes], Any]
"""bytes of a request -> bytes of an answer, a Refusal, or an iterator of bytes (HTTP: a body without a length)."""


class Refusal(NamedTuple):
    """An answer that is an error."""

    status: int  # of HTTP
    code: grpc.StatusCode
    text: str = "no"
    location: str = ""


INTERNAL = Refusal(500, grpc.StatusCode.INTERNAL)
UNAVAILABLE = Refusal(503, grpc.StatusCode.UNAVAILABLE)
UNAUTHENTICATED = Refusal(401, grpc.StatusCode.UNAUTHENTICATED)
DENIED = Refusal(403, grpc.StatusCode.PERMISSION_DENIED, '{"code": 2007}')
OF_A_PROXY = Refusal(403, grpc.StatusCode.PERMISSION_DENIED, "<html>")
OTHER_CLOCK = Refusal(401, grpc.StatusCode.UNAUTHENTICATED, '{"public_details": "Invalid timestamp"}')
UNKNOWN_ROUTE = Refusal(404, grpc.StatusCode.UNIMPLEMENTED)


def object_id(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class SuperLink:
    """Answers each method of the Fleet API with its handler; `calls` has the names of all requests."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.handlers: dict[str, Handler] = {
            "RegisterNode": lambda _: fleet_pb2.RegisterNodeFleetResponse(node_id=NODE).SerializeToString(),
            "ActivateNode": lambda _: fleet_pb2.ActivateNodeResponse(node_id=NODE).SerializeToString(),
            "DeactivateNode": lambda _: b"",
            "UnregisterNode": lambda _: b"",
            "SendNodeHeartbeat": lambda _: heartbeat_pb2.SendNodeHeartbeatResponse(
                success=True
            ).SerializeToString(),
            "PullMessages": lambda _: b"",
            "PushMessages": lambda _: fleet_pb2.PushMessagesResponse(session_id="s").SerializeToString(),
            "ConfirmMessageReceived": lambda _: b"",
            "PushObject": lambda _: message_pb2.PushObjectResponse(stored=True).SerializeToString(),
        }
        self.address = ""
        self.cookie = ""

    def __setitem__(self, method: str, answer: Any) -> None:
        """Answer with these bytes, this refusal, or the result of this function."""
        self.handlers[method] = answer if callable(answer) else lambda _: answer

    def handle(self, method: str, request: bytes) -> Any:
        self.calls.append(method)
        return self.handlers[method](request) if method in self.handlers else UNKNOWN_ROUTE

    @contextlib.contextmanager
    def serving(self) -> Iterator[SuperLink]:
        with self._grpc() if self.transport == "grpc" else self._http():
            yield self

    # ---------------------------------------------------------------- transports

    @contextlib.contextmanager
    def _grpc(self) -> Iterator[None]:
        outer = self

        class EveryMethod(grpc.GenericRpcHandler):
            def service(self, details: Any) -> Any:
                method = details.method.rpartition("/")[2]

                def call(request: bytes, context: Any) -> bytes:
                    outer.headers.append({key: str(value) for key, value in context.invocation_metadata()})
                    answer = outer.handle(method, request)
                    if isinstance(answer, Refusal):
                        context.abort(answer.code, answer.text)
                    return answer if isinstance(answer, bytes) else b"".join(answer)

                return grpc.unary_unary_rpc_method_handler(call)

        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        server = grpc.server(ThreadPoolExecutor(8), handlers=[EveryMethod()], options=options)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield
        finally:
            server.stop(0).wait()

    @contextlib.contextmanager
    def _http(self) -> Iterator[None]:
        outer = self

        class Requests(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(b"{}" if self.path == "/health" else UNKNOWN_ROUTE)

            def do_POST(self) -> None:
                request = self.rfile.read(int(self.headers.get("content-length", 0)))
                name = "".join(word.capitalize() for word in self.path.rpartition("/")[2].split("-"))
                outer.headers.append(dict(self.headers.items()))
                self._answer(outer.handle(name, request))

            def _answer(self, answer: Any) -> None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    if isinstance(answer, Refusal):
                        self.send_response(answer.status)
                        if answer.location:
                            self.send_header("location", answer.location)
                        answer = answer.text.encode()
                    else:
                        self.send_response(200)
                    if outer.cookie:
                        self.send_header("set-cookie", outer.cookie)
                    if not isinstance(answer, bytes):  # without a length, until the connection ends
                        self.close_connection = True
                        self.send_header("connection", "close")
                        self.end_headers()
                        for piece in answer:
                            self.wfile.write(piece)
                        return
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        server.daemon_threads = True
        server.handle_error = lambda *given: None  # type: ignore[method-assign]  # lines that tests cut
        self.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()


# ---------------------------------------------------------------- answers


def message(message_id: str, **changes: Any) -> Any:
    """The metadata of a message for this node."""
    values = {
        "run_id": RUN, "message_id": message_id, "src_node_id": 1, "dst_node_id": NODE, "group_id": "1",
        "ttl": 600.0, "message_type": "train", "created_at": time.time(),
    }  # fmt: skip
    return message_pb2.Message(metadata=message_pb2.Metadata(**(values | changes)))


def pulled(found: Any, tree: Any) -> bytes:
    return fleet_pb2.PullMessagesResponse(messages_list=[found], message_object_trees=[tree]).SerializeToString()


def tree(root: str, *children: Any) -> Any:
    return message_pb2.ObjectTree(object_id=root, children=children)


def content(found: bytes | None) -> bytes:
    """The answer to a request for an object; None: it is not there yet."""
    return message_pb2.PullObjectResponse(
        object_found=True, object_available=found is not None, object_content=found or b""
    ).SerializeToString()


def run(app_hash: str, run_id: int = RUN, **overrides: str) -> bytes:
    described = run_pb2.Run(run_id=run_id, fab_hash=app_hash, fab_id="evil/../../name", series_id=3)
    described.fab_version = f"0.1.0.{app_hash[:8]}/../../evil"
    for key, value in overrides.items():
        described.override_config[key].string = value
    return run_pb2.GetRunResponse(run=described).SerializeToString()


def bundle(found: bytes, **signatures: str) -> bytes:
    fab = fab_pb2.Fab(hash_str=object_id(found), content=found, verifications=signatures)
    return fab_pb2.GetFabResponse(fab=fab).SerializeToString()


# ---------------------------------------------------------------- lines


class Relay:
    """Hands bytes to and from an address. `cut` ends all lines, `left` after some bytes; `muted` drops bytes."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lines: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.left: int | None = None  # bytes until the lines are cut; None: they are not
        self.muted = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                host, _, port = self._target.rpartition(":")
                other = socket.create_connection((host, int(port)))
                self._lines += [line, other]
                for source, sink in ((line, other), (other, line)):
                    threading.Thread(target=self._hand_on, args=(source, sink), daemon=True).start()

    def _hand_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.muted:
                    continue
                if self.left is not None:
                    self.left -= len(data)
                    if self.left <= 0:
                        self.left = None
                        self.cut()
                        return
                sink.sendall(data)

    def cut(self) -> None:
        """End all lines, without a word of the protocol."""
        lines, self._lines = self._lines, []
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()
