"""The private names of Flower 1.39 on which warm executors depend, and the check that they are as expected.

A SuperNode's main loop (`start_client_internal`) uses two modules: `subprocess`, to start the program that starts
processes for messages, and `time`, to wait for the next message or for the reply. Both are replaced there, and so
is how long it waits for a part of a message that the server has announced and not sent yet. Nothing else is: all
messages, keys and connections are handled by Flower's own code.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedstride.replacing import replaced

KNOWN = "1.39."
"""The beginning of the versions of Flower whose private names are known."""

IDLE_SECONDS, REPLY_SECONDS = 3, 0.5
"""How long Flower's loop sleeps without a message, and between two looks for the reply."""

PART_SECONDS = (0.05, 1.0)
"""Shortest and longest pause between two requests for a part of a message that the SuperLink does not have yet.

Flower begins with one second, and asks so late that the parts are mostly there. A node that asks early mostly
comes before them.
"""

LOOP = "flwr.supernode.start_client_internal"
MAIN = "flwr.supernode.cli.flower_supernode"
CONNECTION = "flwr.client.grpc_rere_client.connection"
_EXIT = "flwr.supercore.exit"
_APP = "flwr.supernode.runtime.run_clientapp"
_STATE = "flwr.supernode.nodestate.in_memory_nodestate"

_PARAMETERS = {
    f"{MAIN}:flower_supernode": "",
    f"{MAIN}:NodeStateFactory.state": "self",
    f"{CONNECTION}:HeartbeatSender": "heartbeat_fn",
    f"{_EXIT}:flwr_exit": "code message event_type event_details emit_telemetry",
    f"{LOOP}:_push_messages": "state object_store send push_object",
    f"{LOOP}:_insert_message": "msg state store",
    f"{LOOP}:_pull_and_store_message": (
        "state object_store node_config receive get_run get_fab pull_object confirm_message_received "
        "trusted_entities"
    ),
    f"{LOOP}:pull_objects": (
        "object_ids pull_object_fn max_concurrent_pulls max_time max_tries_per_object initial_backoff backoff_cap"
    ),
    f"{_STATE}:InMemoryNodeState.get_messages": "self run_ids is_reply limit",
    f"{_STATE}:InMemoryNodeState.get_tasks": "self task_ids run_ids statuses order_by ascending limit",
    f"{_STATE}:InMemoryNodeState.finish_task": "self task_id sub_status details",
    f"{_STATE}:InMemoryNodeState.record_message_processing_start": "self message_id",
    f"{_STATE}:InMemoryNodeState._store_error_replies": "self run_ids error",
    "flwr.supernode.servicer.runtime.runtime_handlers:acquire_task": "request state",
    "flwr.supercore.cli.flower_superexec:_parse_args": "",
    "flwr.supercore.superexec.executor:SubprocessExecutor.launch": "self spec",
    "flwr.supercore.tls:validate_and_resolve_root_certificates": "root_cert_path insecure",
    f"{_APP}:run_clientapp": (
        "runtime_api_address token insecure certificates parent_pid runtime_dependency_install"
    ),
    f"{_APP}:install_from_fab": "fab_file install_dir skip_prompt",
    f"{_APP}:get_load_client_app_fn": "default_app_ref app_path multi_app",
    f"{_APP}:get_project_dir": "fab_id fab_version fab_hash",
}
"""The parameters of each function that is called or replaced."""


def problem() -> str | None:
    """Why warm executors cannot be used here; None if everything that they depend on is as expected."""
    if sys.platform != "linux":
        return f"they need Linux, and this is {sys.platform}"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:  # an old kernel, or a container that forbids it
        return f"the kernel gives no descriptors of processes ({error})"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        return "Flower is not installed"
    if not found.startswith(KNOWN):
        return f"they are tested with Flower {KNOWN}x, and this is {found}"
    try:
        return next((f"{what} of Flower {found} is not as expected" for what in _unexpected()), None)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return f"Flower {found} is not as expected: {error}"


def _unexpected() -> Sequence[str]:
    """The names of what differs from what is known."""
    loop = importlib.import_module(LOOP)
    wrong = [name for name, expected in _PARAMETERS.items() if _parameters(_named(name)) != expected.split()]
    for name, function, seconds in (
        ("start_client_internal", loop.start_client_internal, IDLE_SECONDS),
        ("_push_messages", loop._push_messages, REPLY_SECONDS),
    ):
        if seconds not in function.__code__.co_consts:
            wrong.append(f"{LOOP}:{name}")
    wrong += [f"{LOOP}:{name}" for name in ("time", "subprocess") if getattr(loop, name) is not sys.modules[name]]
    return wrong


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


# ---------------------------------------------------------------- the SuperNode


class _Replaced:
    """A module with some of its names replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def run_supernode(
    arguments: Sequence[str], state: State, start: Callable[[list[str]], Any], wait: Callable[[float], None]
) -> None:
    """Run Flower's SuperNode with these arguments until it ends with SystemExit.

    After an error of the SuperLink, Flower's function returns, but its threads would keep the process alive. The
    process then ends with exit code 1.

    `start` is called with the command of the program that starts processes for messages, instead of starting it;
    `wait` instead of sleeping for so many seconds. Both are called in the main thread. `state` then knows the
    tasks and messages.
    """
    loop, main = importlib.import_module(LOOP), importlib.import_module(MAIN)
    pull = functools.partial(
        loop.pull_objects, initial_backoff=PART_SECONDS[0], backoff_cap=PART_SECONDS[1], max_tries_per_object=None
    )
    with (
        replaced(loop, pull_objects=pull),
        replaced(loop, subprocess=_Replaced(loop.subprocess, Popen=start)),
        replaced(loop, time=_Replaced(loop.time, sleep=wait)),
        replaced(main, NodeStateFactory=state.follow(main.NodeStateFactory)),
        replaced(sys, argv=["fedstride node", *arguments]),
    ):
        main.flower_supernode()
        flower_exit = importlib.import_module(_EXIT)
        flower_exit.flwr_exit(
            flower_exit.ExitCode.SUPERNODE_CONNECTION_ERROR, "The SuperLink's last answer was an error; see above."
        )


def run_stock(arguments: Sequence[str]) -> None:
    """Replace this process by Flower's own SuperNode. Raises OSError if it is not installed."""
    programs = Path(sys.executable).parent
    path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])  # it starts other programs by name
    os.execve(programs / "flower-supernode", ["flower-supernode", *arguments], os.environ | {"PATH": path})


class Task(NamedTuple):
    """A message's task at the SuperNode, claimed by this process."""

    id: int
    type: str
    run_id: int
    token: str  # with which its process identifies itself


class State:
    """The state of the SuperNode in this process: its tasks and messages."""

    def __init__(self) -> None:
        self._factory: Any = None

    def follow(self, factory: Callable[..., Any]) -> Callable[..., Any]:
        """A `NodeStateFactory` like this one, whose state this object then gives access to."""

        def made(**options: Any) -> Any:
            self._factory = factory(**options)
            return self._factory

        return made

    @property
    def _state(self) -> Any:
        return self._factory.state()

    def acquire(self) -> Task | None:
        """Claim the oldest task that has no process yet."""
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType
        from flwr.supernode.servicer.runtime.runtime_handlers import acquire_task

        answer = acquire_task(AcquireTaskRequest(supported_task_types=list(TaskType)), self._state)
        if not answer.token:
            return None
        return Task(answer.task.task_id, answer.task.type, answer.task.run_id, answer.token)

    def has_ended(self, task: Task) -> bool:
        """Whether the task has its result, or has failed because its process sent no heartbeat for a minute."""
        from flwr.common.constant import Status

        return not self._state.get_tasks(task_ids=[task.id], statuses=[Status.STARTING, Status.RUNNING])

    def fail(self, task: Task, reason: str) -> bool:
        """If the task has no result, reply to its message with an error, "ClientApp stopped responding".

        Flower itself does so a minute after the last heartbeat, and not at all if the process ended before it had
        taken the message. If it ended before it had handed over its whole reply, there is no reply: Flower would
        wait for the rest for ever. Returns whether there was no result.
        """
        from flwr.common.constant import SubStatus
        from flwr.supernode.nodestate.in_memory_nodestate import CLIENT_APP_CRASHED_ERROR

        if not self._state.finish_task(task.id, SubStatus.FAILED, reason):
            return False
        for message in self._state.get_messages(run_ids=[task.run_id], is_reply=False):  # marks it as taken
            self._state.record_message_processing_start(message.metadata.message_id)
        self._state._store_error_replies({task.run_id}, CLIENT_APP_CRASHED_ERROR)
        self._forget_incomplete(task.run_id)
        return True

    def _forget_incomplete(self, run_id: int) -> None:
        """Delete the objects of replies of which one is missing; Flower's loop then gives them up."""
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        store = self._state.object_store
        for entry in list(self._state.msg_store.values()):
            metadata = entry.message.metadata
            if metadata.run_id == run_id and metadata.reply_to_message_id:
                tree = store.get_object_tree(metadata.message_id)
                if any(store.get(each.object_id) == b"" for each in iterate_object_tree(tree)):
                    store.delete(metadata.message_id)

    def longest(self, task: Task) -> float:
        """The seconds after which the SuperLink accepts no reply to the messages of the task's run."""
        messages = [entry.message.metadata for entry in list(self._state.msg_store.values())]
        return max((m.ttl for m in messages if m.run_id == task.run_id), default=float("inf"))


class Place(NamedTuple):
    """Where processes for messages reach their SuperNode, and how."""

    address: str  # HOST:PORT of the SuperNode's Runtime API
    insecure: bool  # in plain text
    root_certificates: str | None  # a file
    installs: bool  # whether the app's dependencies are installed for each message


def place(command: Sequence[str]) -> Place:
    """What the command `flower-superexec ...` of a SuperNode says."""
    from flwr.supercore.cli.flower_superexec import _parse_args

    given = _parse_args().parse_args(list(command[1:]))
    return Place(
        given.runtime_api_address, given.insecure, given.root_certificates, given.runtime_dependency_install
    )


def start_cold(task: Task, at: Place) -> None:
    """Start Flower's own program for a task of any type, as `flower-superexec` does."""
    from flwr.supercore.constant import TaskType
    from flwr.supercore.superexec.executor import ExecutionSpec, SubprocessExecutor

    spec = ExecutionSpec(
        task_type=TaskType(task.type),
        runtime_api_address=at.address,
        token=task.token,
        insecure=at.insecure,
        root_certificates_path=at.root_certificates,
        runtime_dependency_install=at.installs,
        parent_pid=os.getpid(),
        suppress_output=False,
        task_id=task.id,
    )
    SubprocessExecutor().launch(spec)


CLIENT_APP = "flwr-clientapp"
"""The type of the tasks that a process for a ClientApp does, and the name of Flower's program for it."""


# ---------------------------------------------------------------- the process of a message


def import_client() -> None:
    """Import what Flower's program for a ClientApp imports."""
    importlib.import_module(_APP)
    importlib.import_module("httpcore")  # by its first connection


def run_clientapp(token: str, at: Place, before_load: Callable[[Path], None]) -> None:
    """Do a task as Flower's program for a ClientApp does; ends with SystemExit.

    `before_load` is called with the folder of the app before the app is imported. An app that is installed is not
    unpacked again: Flower would unpack it, check it, and then keep the installed one in any case.
    """
    from flwr.common.constant import APP_DIR, FAB_HASH_TRUNCATION
    from flwr.supercore.tls import validate_and_resolve_root_certificates
    from flwr.supercore.utils import get_flwr_home

    module = importlib.import_module(_APP)
    install, get, folder = module.install_from_fab, module.get_load_client_app_fn, module.get_project_dir

    def install_new(fab: bytes, **options: Any) -> None:
        digest = hashlib.sha256(fab).hexdigest()[:FAB_HASH_TRUNCATION]
        if not any((get_flwr_home() / APP_DIR).glob(f"*.{digest}")):
            install(fab, **options)

    def get_load(**options: Any) -> Callable[[str, str, str], Any]:
        load = get(**options)

        def load_after(fab_id: str, fab_version: str, fab_hash: str) -> Any:
            before_load(folder(fab_id, fab_version, fab_hash))
            return load(fab_id, fab_version, fab_hash)

        return load_after

    module.install_from_fab = install_new  # type: ignore[attr-defined]
    module.get_load_client_app_fn = get_load  # type: ignore[attr-defined]
    sys.argv = [CLIENT_APP]
    module.run_clientapp(
        runtime_api_address=at.address,
        token=token,
        insecure=at.insecure,
        certificates=validate_and_resolve_root_certificates(at.root_certificates, at.insecure),
    )
