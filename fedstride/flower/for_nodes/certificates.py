"""Which certificates of a SuperLink a node accepts."""

from __future__ import annotations

import ssl
import time

from .connection import SuperLinkAddress


def context(place: SuperLinkAddress) -> ssl.SSLContext:
    """For TLS with this place; in plain text, one that accepts every certificate, to ask whether there is TLS.

    Raises OSError or ValueError if the root certificates cannot be read.
    """
    tls = verified(place.root_certificates)
    if place.insecure:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def has_expired(tls: ssl.SSLContext) -> bool:
    """Whether one of the CAs in it has expired, so that a new certificate of the server would not help."""
    ends = (str(certificate["notAfter"]) for certificate in tls.get_ca_certs() if "notAfter" in certificate)
    return any(ssl.cert_time_to_seconds(end) < time.time() for end in ends)


def verified(root_certificates: bytes | None) -> ssl.SSLContext:
    """For TLS with a server whose certificate one of these CAs has signed; with None, one of this machine's.

    Raises OSError or ValueError if the root certificates cannot be read.
    """
    if root_certificates is None:
        return ssl.create_default_context()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(cadata=root_certificates.decode("ascii", "ignore"))  # comments in any language
    return tls
