"""The guard of a SuperLink's gRPC port, by which nodes reach it up to Flower 1.39."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import WARNING
from typing import Any

import grpc

from ..for_nodes.connection import ANSWER_BYTES
from ..logs import log
from .pushes import fault_of

MOST_AT_ONCE = 64
"""Requests of all nodes that are read or answered at the same time; more are asked to come again."""

JOINING = ("RegisterNode", "ActivateNode")
"""Methods of nodes that may not be known yet."""

KEY = "flwr-public-key-bin"

PUSH = "/flwr.proto.Fleet/PushMessages"


def guarded(create: Callable[..., Any], node_of: Callable[[bytes], int | None]) -> Callable[..., Any]:
    """The function by which Flower makes a gRPC server, with bounds of its own.

    A message has at most as many bytes as one of our nodes accepts. An unknown key is refused before Flower looks
    at the message, and so is a node that does not answer in its own name.
    """

    def create_guarded(*given: Any, interceptors: Sequence[Any] | None = None, **named: Any) -> Any:
        bounds = {"max_message_length": ANSWER_BYTES, "max_concurrent_workers": MOST_AT_ONCE}
        return create(*given, interceptors=[*(interceptors or ()), GrpcGuard(node_of)], **(named | bounds))

    return create_guarded


class GrpcGuard(grpc.ServerInterceptor):  # type: ignore[misc]
    """Comes after Flower's own interceptor, which has verified that the key signed the time."""

    def __init__(self, node_of: Callable[[bytes], int | None]) -> None:
        self._node_of = node_of

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """See gRPC."""
        keys = [value for name, value in details.invocation_metadata if name == KEY]
        handler = continuation(details)
        if handler is None:
            return None
        joins = details.method.rpartition("/")[2] in JOINING
        if not joins and (len(keys) != 1 or self._node_of(keys[0]) is None):
            return _refusal(handler, grpc.StatusCode.UNAUTHENTICATED, "Invalid node ID")
        return _checked(handler) if details.method == PUSH else handler


def _checked(handler: Any) -> Any:
    def check(request: Any, context: Any) -> Any:
        if fault := fault_of(request):
            log(WARNING, "refused: %s", fault)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault)
        return handler.unary_unary(request, context)

    return _like(handler, check)


def _refusal(handler: Any, code: Any, text: str) -> Any:
    def refuse(request: Any, context: Any) -> Any:
        context.abort(code, text)

    return _like(handler, refuse)


def _like(handler: Any, behaviour: Callable[[Any, Any], Any]) -> Any:
    """A handler with the forms of another one."""
    return grpc.unary_unary_rpc_method_handler(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
