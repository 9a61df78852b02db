"""The Fleet API of Flower 1.40 and later: protobuf over HTTP."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator

import httpx

from .keys import Signed
from .link import (
    SILENCE_SECONDS,
    AnswerError,
    KeyRefusedError,
    LinkError,
    Place,
    RunGoneError,
    TooLargeError,
    UnreachableError,
)
from .trusting import context

ANSWER_SECONDS = 300.0
"""For a whole answer: one that comes a byte at a time is given up."""

MOST_ERROR = 64 * 1024
"""Bytes of the body of an error that are read."""

FORM = "application/protobuf"

_WORDS = re.compile(r"(?<!^)(?=[A-Z])")


class HttpTransport:
    """A client that follows no redirect and takes no proxy from the environment."""

    def __init__(self, place: Place) -> None:
        self._base = f"{'http' if place.insecure else 'https'}://{place.address}"
        self._client = httpx.Client(
            verify=False if place.insecure else context(place),
            timeout=SILENCE_SECONDS,
            follow_redirects=False,
            trust_env=False,
            proxy=place.proxy,
        )

    def call(self, method: str, request: bytes, signed: Signed, most: int, seconds: float | None) -> bytes:
        """See `Transport`."""
        headers = {
            "content-type": FORM,
            "accept": FORM,
            "accept-encoding": "identity",
            "flwr-public-key": base64.b64encode(signed.public_key).decode(),
            "flwr-timestamp": signed.time,
            "flwr-signature": base64.b64encode(signed.signature).decode(),
            **dict(signed.versions),
        }
        url = f"{self._base}/v1/fleet/{_WORDS.sub('-', method).lower()}"
        try:
            timeout = self._client.timeout if seconds is None else httpx.Timeout(seconds)
            with self._client.stream("POST", url, content=request, headers=headers, timeout=timeout) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise _sorted(
                        method, answer.status_code, _text(method, answer), answer.headers.get("location", "")
                    )
                return _body(method, answer, most)
        except httpx.TransportError as error:
            raise _broken(method, error) from None
        except (httpx.InvalidURL, httpx.StreamError, httpx.DecodingError) as error:
            raise AnswerError(f"{method}: {error}") from None

    def close(self) -> None:
        """See `Transport`."""
        self._client.close()


def _body(method: str, answer: httpx.Response, most: int) -> bytes:
    """The body, of at most `most` bytes."""
    found = bytearray()
    for piece in _pieces(method, answer):
        found += piece
        if len(found) > most:
            raise TooLargeError(f"the SuperLink's answer to {method} has more than {most} bytes")
    return bytes(found)


def _text(method: str, answer: httpx.Response) -> str:
    """The beginning of an error's body."""
    found = bytearray()
    for piece in _pieces(method, answer):
        found += piece
        if len(found) >= MOST_ERROR:
            break
    return found[:MOST_ERROR].decode(errors="replace")


def _pieces(method: str, answer: httpx.Response) -> Iterator[bytes]:
    """The body in the pieces in which it comes."""
    until = time.monotonic() + ANSWER_SECONDS
    for piece in answer.iter_raw():
        if time.monotonic() > until:
            raise UnreachableError(f"{method}: the answer takes more than {ANSWER_SECONDS:g} s")
        yield piece


def _sorted(method: str, status: int, text: str, target: str) -> LinkError:
    """The kind of an error of HTTP."""
    said = f"{method}: HTTP {status}: {text}"
    if 300 <= status < 400:
        return AnswerError(f"{method}: HTTP {status}: another address answers ({target}), it is not followed")
    if status == httpx.codes.UNAUTHORIZED:
        return KeyRefusedError(said)
    if status == httpx.codes.FORBIDDEN:
        return RunGoneError(said)
    if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return TooLargeError(said)
    if status >= 500 or status == httpx.codes.TOO_MANY_REQUESTS:
        return UnreachableError(said)
    return AnswerError(said)


def _broken(method: str, error: httpx.TransportError) -> LinkError:
    """The kind of a connection that broke, or did not come about.

    A certificate that is not accepted may be replaced while a node runs; at its start, `connecting` names it.
    """
    is_final = isinstance(error, (httpx.UnsupportedProtocol, httpx.ProxyError))
    return (AnswerError if is_final else UnreachableError)(f"{method}: {type(error).__name__}: {error}")
