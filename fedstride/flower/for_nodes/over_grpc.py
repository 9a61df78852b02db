"""The Fleet API of Flower 1.39: gRPC."""

from __future__ import annotations

import threading
from typing import Any

import grpc

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

LARGE, LARGE_SECONDS = {"GetFab", "PullObject", "PushObject"}, 180.0
"""Methods with megabytes, and the time for one: 5 MiB over a line of 250 kbit/s."""

_Code = grpc.StatusCode
PASSING = frozenset(
    {
        _Code.INTERNAL,
        _Code.UNKNOWN,
        _Code.UNAVAILABLE,
        _Code.CANCELLED,
        _Code.ABORTED,
        _Code.DEADLINE_EXCEEDED,
        _Code.RESOURCE_EXHAUSTED,
    }
)
"""Errors of a SuperLink that may be over when it is asked again."""

FAILING = (_Code.INTERNAL, _Code.UNKNOWN)
"""Those that are errors of the SuperLink itself."""

KINDS: dict[Any, type[LinkError]] = {
    _Code.UNAUTHENTICATED: KeyRefusedError,
    _Code.PERMISSION_DENIED: RunGoneError,
    **dict.fromkeys(PASSING, UnreachableError),
    **dict.fromkeys(FAILING, FailingError),
}


def channel(place: SuperLinkAddress) -> grpc.Channel:
    """A channel to this place; it connects when it is first used."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", place.most_bytes),
        ("grpc.enable_http_proxy", int(place.proxy is not None)),
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 20_000),
        ("grpc.use_local_subchannel_pool", 1),
        *([("grpc.http_proxy", place.proxy)] if place.proxy else []),
    ]
    if place.insecure:
        return grpc.insecure_channel(place.address, options=options)
    credentials = grpc.ssl_channel_credentials(place.root_certificates)
    return grpc.secure_channel(place.address, credentials, options=options)


class GrpcTransport:
    """One channel, which is made again after an answer that did not come in time: the line may be cut silently."""

    def __init__(self, place: SuperLinkAddress) -> None:
        self._place = place
        self._making = threading.Lock()
        self._channel = channel(self._place)

    def call(
        self, method: str, request: bytes, signed: RequestSignature, most: int, seconds: float | None
    ) -> bytes:
        """See `Transport`. gRPC itself bounds an answer by the largest that is allowed."""
        metadata = [
            ("flwr-public-key-bin", signed.public_key),
            ("flwr-timestamp", signed.time),
            ("flwr-signature-bin", signed.signature),
            *signed.versions,
        ]
        used = self._channel
        send = used.unary_unary(f"/flwr.proto.Fleet/{method}")  # bytes, without a form
        try:
            longest = seconds or (LARGE_SECONDS if method in LARGE else SILENCE_SECONDS)
            answer: bytes = send(request, timeout=longest, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() == _Code.DEADLINE_EXCEEDED:
                self._renew(used)
            raise _sorted(method, error) from None
        except ValueError as error:  # the channel was renewed meanwhile
            raise UnreachableError(str(error)) from None
        if len(answer) > most:
            raise TooLargeError(f"the SuperLink's answer to {method} has more than {most} bytes")
        return answer

    def _renew(self, broken: grpc.Channel) -> None:
        with self._making:
            if self._channel is broken:
                self._channel = channel(self._place)
                broken.close()

    def close(self) -> None:
        """See `Transport`."""
        self._channel.close()


def _sorted(method: str, error: Any) -> LinkError:
    """The kind of an error of gRPC."""
    code, details = error.code(), str(error.details())
    if code == _Code.RESOURCE_EXHAUSTED and "larger than max" in details:  # said by gRPC on either side
        return TooLargeError(f"{method}: {details}")
    if code == _Code.UNAUTHENTICATED and OTHER_CLOCK in details:
        return UnreachableError(CLOCKS)
    if code == _Code.PERMISSION_DENIED and not of_flower(details):
        return AnswerError(f"{method}: {code.name}: {details}")
    return KINDS.get(code, AnswerError)(f"{method}: {code.name}: {details}")
