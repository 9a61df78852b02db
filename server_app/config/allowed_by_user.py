"""What a run does only if its user permits it by name, in the list `allow`."""

from __future__ import annotations

from collections.abc import Sequence

from fedstride.errors import unknown

CLIENT_CODE = "other_client_code"
OPEN_CLUSTER = "ray_without_token"
CHANGED_DATA = "changed_data"
OTHER_TASK = "initial_of_another_task"

PERMITS = {
    CLIENT_CODE: "clients with other code than the server's",
    OPEN_CLUSTER: "a Ray cluster in which everybody who reaches it can run code",
    CHANGED_DATA: "to resume a run with other data than those with which it began",
    OTHER_TASK: "to start from a model of another task",
}

MEANING = "what to permit by name: " + "; ".join(f"{name} ({about})" for name, about in PERMITS.items())


def check_permits(names: Sequence[str]) -> None:
    """Raises ConfigError for a name that is none of these."""
    for name in names:
        if name not in PERMITS:
            raise unknown("name in allow", name, PERMITS)
