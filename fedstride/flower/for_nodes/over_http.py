"""The Fleet API of Flower 1.40 and later: protobuf over HTTP."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy

import httpx

from .certificates import context
from .connection import (
    SILENCE_SECONDS,
    AnswerError,
    FailingError,
    KeyRefusedError,
    LinkError,
    RunGoneError,
    SuperLinkAddress,
    TooLargeError,
    UnreachableError,
)
from .request_keys import CLOCKS, OTHER_CLOCK, RequestSignature, of_flower

ANSWER_SECONDS = 300.0
"""For a whole answer: one that comes a byte at a time is given up."""

MOST_ERROR = 64 * 1024
"""Bytes of the body of an error that are read."""

PASSING = (429, 502, 503, 504)
"""The status of an answer that a SuperLink, or what is before it, gives when it cannot answer now."""

FORM = "application/protobuf"

_WORDS = re.compile(r"(?<!^)(?=[A-Z])")


class HttpTransport:
    """A client that follows no redirect and takes no proxy from the environment."""

    def __init__(self, place: SuperLinkAddress) -> None:
        self._base = f"{'http' if place.insecure else 'https'}://{place.address}"
        self._client = httpx.Client(
            verify=False if place.insecure else context(place),
            timeout=SILENCE_SECONDS,
            follow_redirects=False,
            trust_env=False,
            proxy=place.proxy,
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # none is kept

    def call(
        self, method: str, request: bytes, signed: RequestSignature, most: int, seconds: float | None
    ) -> bytes:
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
            longest = seconds or ANSWER_SECONDS
            with self._client.stream("POST", url, content=request, headers=headers, timeout=timeout) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise _sorted(
                        method,
                        answer.status_code,
                        _text(method, answer, longest),
                        answer.headers.get("location", ""),
                    )
                return _body(method, answer, most, longest)
        except httpx.TransportError as error:
            raise _broken(method, error) from None
        except (httpx.InvalidURL, httpx.StreamError, httpx.DecodingError) as error:
            raise AnswerError(f"{method}: {error}") from None

    def close(self) -> None:
        """See `Transport`."""
        self._client.close()


def _body(method: str, answer: httpx.Response, most: int, longest: float) -> bytes:
    """The body, of at most `most` bytes."""
    body = bytearray()
    for piece in _pieces(method, answer, longest):
        body += piece
        if len(body) > most:
            raise TooLargeError(f"the SuperLink's answer to {method} has more than {most} bytes")
    return bytes(body)


def _text(method: str, answer: httpx.Response, longest: float) -> str:
    """The beginning of an error's body."""
    body = bytearray()
    for piece in _pieces(method, answer, longest):
        body += piece
        if len(body) >= MOST_ERROR:
            break
    return body[:MOST_ERROR].decode(errors="replace")


def _pieces(method: str, answer: httpx.Response, longest: float) -> Iterator[bytes]:
    """The body in the pieces in which it comes."""
    until = time.monotonic() + longest
    for piece in answer.iter_raw():
        if time.monotonic() > until:
            raise UnreachableError(f"{method}: the answer takes more than {longest:g} s")
        yield piece


def _sorted(method: str, status: int, text: str, target: str) -> LinkError:
    """The kind of an error of HTTP."""
    said = f"{method}: HTTP {status}: {text}"
    if 300 <= status < 400:
        return AnswerError(f"{method}: HTTP {status}: another address answers ({target}), it is not followed")
    if status == httpx.codes.UNAUTHORIZED:
        return UnreachableError(CLOCKS) if OTHER_CLOCK in text else KeyRefusedError(said)
    if status == httpx.codes.FORBIDDEN:  # that of a proxy says nothing of a run
        return RunGoneError(said) if of_flower(text) else AnswerError(said)
    if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return TooLargeError(said)
    if status in PASSING:
        return UnreachableError(said)
    if status >= 500:
        return FailingError(said)
    return AnswerError(said)


def _broken(method: str, error: httpx.TransportError) -> LinkError:
    """The kind of a connection that broke, or did not come about.

    A certificate that is not accepted may be replaced while a node runs; at its start, `connecting` names it.
    """
    is_final = isinstance(error, (httpx.UnsupportedProtocol, httpx.ProxyError))
    return (AnswerError if is_final else UnreachableError)(f"{method}: {type(error).__name__}: {error}")
