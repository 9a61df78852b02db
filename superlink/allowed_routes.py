"""The table of routes, and the decision about a request from its head alone. Pure functions."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from enum import Enum

from .token import HEADER

KIB, MIB = 2**10, 2**20

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, and values."""


class RouteKind(Enum):
    """Whose route it is, and so what a request must have."""

    HEALTH = "health"  # nothing
    JOIN = "join"  # of a node that may not be known yet: a signed time
    NODE = "node"  # of a known node: a time that its key has signed
    TASK = "task"  # of a ServerApp: the token of its task
    CONTROL = "control"  # of who submits: the submit token
    FILES = "files"  # a run's folder: the submit token


@dataclass(frozen=True)
class Route:
    """A route that exists, and the most bytes of a request's body."""

    kind: RouteKind
    most: int


@dataclass(frozen=True)
class Refusal:
    """A request that is not handed on: the status of HTTP, and why, in one line."""

    status: int
    text: str


@dataclass(frozen=True)
class RequestHead:
    """The head of a request."""

    method: str
    path: str  # as sent, without the query
    headers: Headers
    local: bool  # whether it comes from the loopback

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True)
class Rules:
    """What the operator has decided. `token`: the submit token."""

    token: str
    fleet: bool = True  # whether nodes speak HTTP
    flwr: bool = False  # whether this machine may submit without the token
    behind_proxy: bool = False


CHUNK = 6 * MIB
"""For an object: Flower cuts arrays into chunks of 5 MiB."""

JOINING = Route(RouteKind.JOIN, 16 * KIB)
SMALL = Route(RouteKind.NODE, 64 * KIB)

FLEET = {
    "register-node": JOINING,
    "activate-node": JOINING,
    "deactivate-node": SMALL,
    "unregister-node": SMALL,
    "send-node-heartbeat": SMALL,
    "pull-messages": SMALL,
    "push-messages": Route(RouteKind.NODE, MIB),
    "get-run": SMALL,
    "get-fab": SMALL,
    "push-object": Route(RouteKind.NODE, CHUNK),
    "pull-object": SMALL,
    "confirm-message-received": SMALL,
}
"""The twelve routes of nodes."""

UNSERVED = {"acquire-task", "claim-task", "pull-pending-tasks"}
"""Routes of whoever starts ServerApps. The executor asks Flower inside this process; no one else may."""

TASK = Route(RouteKind.TASK, 16 * MIB)
CONTROL = Route(RouteKind.CONTROL, 64 * KIB)
START_RUN = Route(RouteKind.CONTROL, 16 * MIB)
"""With the app: Flower allows it 10 MB."""

_NAME = re.compile(r"/v1/(fleet|runtime|control)/([a-z]+(?:-[a-z]+)*)")
FILES = "/v1/fedstride/files"

_FORWARDED = re.compile(rb"forwarded|x-forwarded-.*|x-real-ip|via")

NO_TOKEN = (
    "this SuperLink needs the submit token: run the command as the SuperLink's user on its machine, or name a "
    "copy of its file with FEDSTRIDE_TOKEN_FILE"
)


def decide(head: RequestHead, rules: Rules) -> Route | Refusal:
    """The route of a request, or why it is refused. The credentials of nodes and tasks are checked after this."""
    if not rules.behind_proxy and any(_FORWARDED.fullmatch(name) for name, _ in head.headers):
        return Refusal(403, "a proxy has forwarded this request: start the SuperLink with --behind-proxy")
    route = _route(head, rules.fleet)
    if route is None:
        return Refusal(404, "no such route")
    if route.kind in (RouteKind.CONTROL, RouteKind.FILES) and not _may_submit(head, route, rules):
        return Refusal(403, NO_TOKEN)
    return too_large(route) if declared(head) > route.most else route


def too_large(route: Route) -> Refusal:
    """The refusal of a body that is larger than its route allows."""
    return Refusal(413, f"a request of more than {route.most} bytes")


def declared(head: RequestHead) -> int:
    """The length that the request says its body has; 0 if it says none."""
    lengths = head.values(b"content-length")
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


def _route(head: RequestHead, fleet: bool) -> Route | None:
    if head.path == "/health":
        return Route(RouteKind.HEALTH, 0) if head.method in ("GET", "HEAD") else None
    if head.path == FILES:
        return Route(RouteKind.FILES, 0) if head.method == "GET" else None
    match = _NAME.fullmatch(head.path)
    if match is None or head.method != "POST":
        return None
    if match[1] == "fleet":
        return FLEET.get(match[2]) if fleet else None
    if match[1] == "runtime":
        return None if match[2] in UNSERVED else TASK
    return START_RUN if match[2] == "start-run" else CONTROL


def _may_submit(head: RequestHead, route: Route, rules: Rules) -> bool:
    given = head.values(HEADER)
    if not given:
        return rules.flwr and head.local and route.kind is RouteKind.CONTROL
    return len(given) == 1 and hmac.compare_digest(given[0], rules.token.encode())
