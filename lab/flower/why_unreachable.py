"""Finds out why a SuperLink cannot be reached: name, route, port, TLS, certificate, or another kind of server.

Flower 1.39 to 1.42 has one line for all of these. The checks here are made after Flower has failed.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path

from fedstride.flower.for_nodes.certificates import has_expired
from fedstride.processes.ports import NODES, SUBMITTING

from .superlink_choice import ChosenSuperLink

SECONDS = 5.0  # for each step

UNREACHABLE = ("Connection to the SuperLink is unavailable", "developer.mozilla.org")
"""Parts of Flower's line for a server that does not answer, or not as a SuperLink does."""


def explained(error: Exception, target: ChosenSuperLink) -> str:
    """Flower's reason or, if it says only that the SuperLink is unavailable, what is wrong and what to do."""
    text = str(error)
    return why(target) or text if any(part in text for part in UNREACHABLE) else text


def why(target: ChosenSuperLink) -> str | None:
    """One line about what prevents a connection to the target, and what to do; None if a SuperLink answers."""
    host, _, port = target.address.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal():  # in a connection of the user's own file
        return f"its address {target.address!r} has no port; write HOST:PORT, as in localhost:{SUBMITTING}"
    try:
        with socket.create_connection((host, int(port)), SECONDS) as connection:
            if target.insecure:
                return _in_plain_text(connection, host, int(port))
            return _with_tls(connection, host, int(port), target.root_certificates)
    except OSError as error:
        return _no_connection(error, host, int(port))


def _no_connection(error: OSError, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {host!r} is not known on this machine; check its spelling, or use the IP address"
    if isinstance(error, TimeoutError):
        return (
            f"{host} does not answer on port {port} within {SECONDS:g} s; check that the machine is on and that "
            "no firewall drops the connection, or forward the port through SSH"
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"no process listens on port {port} of {host}; start the SuperLink there, and check the port "
            f"({SUBMITTING} is for submitting, and is open on the SuperLink's own machine only)"
        )
    return f"there is no connection to {host}, port {port} ({error.strerror or error}); check the address"


def _in_plain_text(connection: socket.socket, host: str, port: int) -> str | None:
    reason = _health(connection, host, port)
    if reason is None:
        return None
    if _uses_tls(host, port):
        return (
            f"the server on port {port} of {host} uses TLS; give the CA's certificate instead of --insecure: "
            "--root-certificates ca.crt, or root-certificates in the connection"
        )
    return reason


def _uses_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent: it is only a question
    try:
        with socket.create_connection((host, port), SECONDS) as connection, context.wrap_socket(connection):
            return True
    except OSError:
        return False


def _with_tls(connection: socket.socket, host: str, port: int, trusted: Path | None) -> str | None:
    try:
        context = ssl.create_default_context(cafile=trusted)
    except OSError as error:  # SSLError is an OSError
        return f"{trusted} is not a CA's certificate ({error.strerror or error}); name the SuperLink's ca.crt"
    try:
        with context.wrap_socket(connection, server_hostname=host) as secure:
            return _health(secure, host, port)
    except ssl.SSLCertVerificationError as error:
        if trusted is not None and has_expired(context):
            return f"the CA in {trusted} has expired; all need a new CA, as docs/operations.md says"
        return _wrong_certificate(error, host, port, trusted)
    except OSError as error:
        return (
            f"the server on port {port} of {host} does not use TLS ({getattr(error, 'reason', None) or error}); "
            "check the port; a SuperLink without TLS needs --insecure, or insecure = true in the connection"
        )


def _wrong_certificate(error: ssl.SSLCertVerificationError, host: str, port: int, trusted: Path | None) -> str:
    fault = f"the certificate of the server on port {port} of {host} is not accepted"
    if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        return f"{fault}: it is not valid for {host!r}; use a name that it has, or make one with --name {host}"
    if error.verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
        return f"{fault}: {error.verify_message}; make a new one with fedstride certificates, and check the clocks"
    signer = "one of this machine's CAs" if trusted is None else f"the CA in {trusted}"
    return f"{fault}: it is not signed by {signer}; use the ca.crt that was made with the server's certificate"


def _health(connection: socket.socket, host: str, port: int) -> str | None:
    """None if the server answers as a SuperLink does, to the question whether it works."""
    advice = f"; check address and port ({NODES} is for nodes, {SUBMITTING} for submitting)"
    client = http.client.HTTPConnection(host, port, timeout=SECONDS)
    client.sock = connection
    try:
        client.request("GET", "/health", headers={"Connection": "close"})
        status = client.getresponse().status
    except (OSError, http.client.HTTPException):
        return f"the server on port {port} of {host} is not a SuperLink: it does not answer in HTTP{advice}"
    if status == http.client.OK:
        return None
    return f"the server on port {port} of {host} is not a SuperLink: it has no /health (status {status}){advice}"
