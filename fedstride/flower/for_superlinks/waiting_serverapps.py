"""The ServerApps that wait to be started, asked of a SuperLink in this process, without a network in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import httpx
from flwr.common.serde import user_config_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    AcquireTaskResponse,
    PushTaskOutputRequest,
    PushTaskOutputResponse,
)
from google.protobuf.message import DecodeError, Message

FORM = "application/protobuf"

T = TypeVar("T", bound=Message)


class TasksError(Exception):
    """Flower answered with an error."""


class WaitingTask(NamedTuple):
    """A ServerApp to start. `token` is all that it needs to take part in its run."""

    token: str
    run_id: int
    config: Mapping[str, Any]  # as submitted


class Tasks:
    """Asks this ASGI application. Raises TasksError."""

    def __init__(self, app: Any) -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://superlink")

    async def next(self) -> WaitingTask | None:
        """The oldest ServerApp that waits, which is then ours to start; None if none waits."""
        request = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        given = await self._ask("runtime/acquire-task", request, AcquireTaskResponse)
        if not given.token:
            return None
        run_id = given.task.run_id
        try:
            runs = await self._ask("control/list-runs", ListRunsRequest(run_id=run_id), ListRunsResponse)
        except TasksError:
            await self.fail(given.token, "the run could not be looked up")
            raise
        return WaitingTask(given.token, run_id, user_config_from_proto(runs.run_dict[run_id].override_config))

    async def fail(self, token: str, details: str) -> None:
        """Say that the ServerApp with this token ended without a word."""
        request = PushTaskOutputRequest(sub_status="failed", details=details)
        await self._ask("runtime/push-task-output", request, PushTaskOutputResponse, {"flwr-task-token": token})

    async def _ask(
        self, route: str, request: Message, kind: type[T], headers: Mapping[str, str] | None = None
    ) -> T:
        sent = {"content-type": FORM, "accept": FORM, **(headers or {})}
        try:
            answer = await self._client.post(f"/v1/{route}", content=request.SerializeToString(), headers=sent)
            if answer.status_code != httpx.codes.OK:
                raise TasksError(f"{route}: HTTP {answer.status_code}: {answer.text}")
            message: T = kind.FromString(answer.content)
        except (httpx.HTTPError, DecodeError) as error:
            raise TasksError(f"{route}: {error}") from error
        return message
