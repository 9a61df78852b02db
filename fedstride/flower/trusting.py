"""Which certificates of a SuperLink a node accepts."""

from __future__ import annotations

import ssl

from .link import Place


def context(place: Place) -> ssl.SSLContext:
    """For TLS with this place; in plain text, one that accepts every certificate, to ask whether there is TLS.

    Raises OSError or ValueError if the root certificates cannot be read.
    """
    if place.root_certificates is None:
        found = ssl.create_default_context()
    else:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        found.load_verify_locations(
            cadata=place.root_certificates.decode("ascii", "ignore")
        )  # comments may be in any language
    if place.insecure:
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found
