"""Connects a node to its SuperLink with the transport of the installed Flower, and says what answers instead."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable
from importlib.metadata import version

from ...processes.ports import NODES
from .certificates import context, has_expired
from .connection import AnswerError, Link, LinkError, SuperLinkAddress, UnreachableError

# Read when gRPC is imported: it writes lines of its own about each failed connection, whose fault is named here.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

FIRST_SECONDS = 10.0
"""For the first connection, unless the node waits for its SuperLink."""

HTTP_SINCE = (1, 40)
"""The first version of Flower whose nodes use HTTP."""

TESTED = ((1, 39), (1, 42))
"""The first and the last version of Flower whose Fleet API this was tested with."""

TRY_SECONDS, PROBE_SECONDS = 3.0, 1.5
"""For each answer of a first connection, and for a look at what answers instead."""


def installed() -> tuple[int, int]:
    """The installed version of Flower."""
    major, minor = version("flwr").split(".")[:2]
    return int(major), int(minor)


def untested() -> str:
    """What to say if the installed Flower was not tested; else empty."""
    first, last = (".".join(map(str, tested)) for tested in TESTED)
    flwr = ".".join(map(str, installed()))
    is_tested = TESTED[0] <= installed() <= TESTED[1]
    return "" if is_tested else f"Flower {flwr} was not tested with this node, only {first} to {last}"


def uses_http() -> bool:
    """Whether nodes of the installed Flower use HTTP, and not gRPC."""
    return installed() >= HTTP_SINCE


def connected(place: SuperLinkAddress, key: object, *, wait: bool, say: Callable[[str], None]) -> Link:
    """A connection as the node with this private key; None: one that registers itself.

    Raises LinkError, within ten seconds if `wait` is false. Otherwise it waits for a SuperLink that cannot be
    reached, and says so once.
    """
    until = time.monotonic() + FIRST_SECONDS
    pause, said = 0.2, False
    while True:
        try:
            _reach(place, max(until - time.monotonic(), 1.0))
            return _connection(place, key, None if wait else TRY_SECONDS)
        except (UnreachableError, AnswerError) as error:
            problem = explained(place, error)
            if isinstance(problem, AnswerError) or (not wait and time.monotonic() + pause > until):
                raise problem from None
            if wait and not said:
                say(f"{problem}; waiting for it")
                said = True
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def _reach(place: SuperLinkAddress, seconds: float) -> None:
    """Raises UnreachableError, with the system's reason, if no process listens there. A proxy is not asked."""
    if place.proxy:
        return
    try:
        socket.create_connection(_host_and_port(place), seconds).close()
    except TimeoutError:
        raise UnreachableError(f"no answer within {seconds:.0f} s; a firewall may drop the connection") from None
    except OSError as error:
        raise UnreachableError(
            f"no connection: {error.strerror or error}; check the address, and that the SuperLink runs"
        ) from None


def _host_and_port(place: SuperLinkAddress) -> tuple[str, int]:
    host, _, port = place.address.rpartition(":")
    return host.strip("[]"), int(port)


def _connection(place: SuperLinkAddress, key: object, seconds: float | None) -> Link:
    from .fleet import FleetLink, Transport
    from .request_keys import Keys

    keys = Keys(key)  # type: ignore[arg-type]
    transport: Transport
    if uses_http():
        from .over_http import HttpTransport

        transport = HttpTransport(place)
    else:
        from .over_grpc import GrpcTransport

        transport = GrpcTransport(place)
    try:
        return FleetLink(transport, keys, place.most_bytes, seconds)
    except BaseException:
        transport.close()
        raise


# ---------------------------------------------------------------- what answers instead


def explained(place: SuperLinkAddress, error: LinkError) -> LinkError:
    """The error, or a better one if something else than the expected SuperLink answers at this address."""
    if (fault := tls_fault(place)) is not None:
        return AnswerError(fault)
    spoken = speaks(place)
    mine = "http" if uses_http() else "grpc"
    where, flwr = place.address, ".".join(map(str, installed()))
    if spoken == "control":
        return AnswerError(
            f"{where} is the port for submitting runs of a SuperLink of Flower 1.39; its nodes connect to its "
            f"Fleet port, by default {NODES}"
        )
    if mine == "grpc" and spoken == "http":
        return AnswerError(
            f"the SuperLink at {where} speaks HTTP (Flower 1.40 or later), and this node has Flower {flwr}, which "
            "speaks gRPC: pip install 'fedstride[node-http]', or give the address of a SuperLink of Flower 1.39"
        )
    if mine == "http" and spoken == "grpc":
        return AnswerError(
            f"the SuperLink at {where} speaks gRPC (Flower up to 1.39), and this node has Flower {flwr}, "
            "which speaks HTTP: pip install 'fedstride[node]', or give the address of a SuperLink of Flower "
            "1.40 or later"
        )
    return error


def tls_fault(place: SuperLinkAddress) -> str | None:
    """What is wrong with the TLS of a server that answers at this address, and what to do; None: nothing is."""
    if place.proxy:
        return None
    host, _ = address = _host_and_port(place)
    trusted = context(place)
    trusted.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with (
            socket.create_connection(address, PROBE_SECONDS) as line,
            trusted.wrap_socket(line, server_hostname=host),
        ):
            if place.insecure:
                return (
                    "it uses TLS, and this node was started with --insecure; give --root-certificates with the "
                    "SuperLink's ca.crt instead"
                )
    except ssl.SSLCertVerificationError as error:
        if place.root_certificates is not None and has_expired(trusted):
            return "the CA in --root-certificates has expired; all need a new CA, as docs/operations.md says"
        return _certificate_fault(error, host, place.root_certificates is None)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return None  # it may be about to end
    except ssl.SSLError as error:
        if place.insecure:
            return None
        return (
            f"it does not use TLS ({error.reason or error}), and this node expects it; check the port. A node of "
            "a SuperLink in plain text needs --insecure, without certificates and key"
        )
    except OSError:
        return None
    return None


def _certificate_fault(error: ssl.SSLCertVerificationError, host: str, is_system: bool) -> str:
    fault = f"its certificate is not accepted ({error.verify_message})"
    if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        return f"{fault}: use a name that it has, or make one with fedstride certificates --name {host}"
    if error.verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
        return f"{fault}: the SuperLink needs a new one from fedstride certificates, if the clocks are right"
    signer = "a CA of this machine; give --root-certificates" if is_system else "the CA in --root-certificates"
    return f"{fault}: it is not signed by {signer}; use the ca.crt that was made with the SuperLink's certificate"


def speaks(place: SuperLinkAddress) -> str:
    """What answers at this address: "http" (1.40 or later), "grpc", "control" (1.39's other port), or ""."""
    return _http_answer(place) or _grpc_answer(place)


def _http_answer(place: SuperLinkAddress) -> str:
    import httpx

    base = f"{'http' if place.insecure else 'https'}://{place.address}"
    options = {"verify": False, "trust_env": False, "timeout": PROBE_SECONDS, "proxy": place.proxy}
    try:
        with httpx.Client(**options) as client:  # type: ignore[arg-type]
            with client.stream("GET", f"{base}/health") as health:
                if health.status_code != httpx.codes.OK:
                    return ""
            with client.stream("POST", f"{base}/v1/fleet/pull-messages", content=b"") as fleet:
                return "control" if fleet.status_code == httpx.codes.NOT_FOUND else "http"
    except (httpx.HTTPError, httpx.InvalidURL):
        return ""


def _grpc_answer(place: SuperLinkAddress) -> str:
    """gRPC answers an unknown method with UNIMPLEMENTED, or refuses it for lack of a key."""
    import grpc

    from .over_grpc import channel

    asked = channel(place)
    try:
        asked.unary_unary("/flwr.proto.Fleet/PullMessages")(b"", timeout=PROBE_SECONDS)
    except grpc.RpcError as error:
        silent = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return "" if error.code() in silent else "grpc"
    finally:
        asked.close()
    return "grpc"
