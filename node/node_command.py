"""`fedstride node`: connects, and answers messages until a signal ends it."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from confinement import no_dump, support
from fedstride import __version__
from fedstride.errors import ConfigError, RunError
from fedstride.flower.for_nodes.connecting import connected, untested
from fedstride.flower.for_nodes.connection import Link, LinkError
from fedstride.processes import unix_signals
from fedstride.tasks.datasets.files import ROOT_VARIABLE
from fedstride.user_parts import PARTS_VARIABLE

from .apps.installed_apps import Apps
from .health import Health
from .keys import Signer
from .log.log_file import LogFile
from .log.log_lines import NodeLog, RefusedError
from .loop import Node
from .policy import file_access
from .policy.file_access import Access
from .policy.permission import PolicyTerms
from .policy.policy_file import DEMANDED
from .policy.resource_limits import sees_processes
from .processes.message_processes import DiedError, Processes
from .processes.output import ProcessOutputs
from .processes.site_rows import Counted, ReadError, RowsReader
from .settings import OFF, NodeSettings, read
from .signed_runs.message_checks import signed_runs
from .signed_runs.signers import members_of, signers_of

CHECK_SECONDS = 3600.0
"""For reading all data of the site at the node's start."""

PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


def run(arguments: Sequence[str]) -> None:
    """Run a node with these arguments until SIGINT or SIGTERM. Both end it at once, with exit code 0.

    Raises ConfigError for settings that are not allowed, a log that cannot be written and an empty list of trusted
    keys; RunError if the SuperLink cannot be reached or does not accept this node.
    """
    os.umask(0o077)
    settings = read(arguments)
    for name in PROXIES:  # gRPC reads them; a proxy must be named with --proxy
        for variable in (name, name.upper()):
            os.environ.pop(variable, None)
    if problem := untested():
        _warn(problem)
    folders = folders_of(settings)
    confined = checked(settings, folders)
    no_dump()  # this process has the node's key in its memory
    _say(confined)
    _lock(settings.lock)
    node_log = _node_log(settings)
    signed = signed_runs(settings, node_log)
    if signed is not None:
        _say(f"this node answers signed runs of {', '.join(settings.policy.signers)}, and no other")
    processes = Processes(settings.limit, _warn, _say, settings.passed, scratch=settings.scratch)
    signers, superlink = settings.trusted or {}, file_access.superlink_of(settings.place)
    places = Access(settings.policy, support(), folders, signers, superlink)
    reader = reader_of(settings, places, processes)
    health = Health(settings.status, settings.name, settings.place.address, version("flwr"), confined)
    reason = "a signal ended it"
    try:
        with unix_signals.handled(unix_signals.RaiseOnce()):
            processes.start()
            if few := too_few(check_data(reader), settings.policy.min_rows):
                _warn(few)
            link = _connected(settings)
            try:
                _say(f"SuperNode ID: {link.node_id}")
                Node(
                    link,
                    node_log,
                    Apps(settings.apps, settings.trusted),
                    places,
                    processes,
                    ProcessOutputs(settings.output, _say),
                    reader,
                    PolicyTerms(settings.policy, settings.site),
                    health,
                    dict(settings.config),
                    signed=signed,
                ).serve()
            finally:
                link.close()
    except unix_signals.STOPPED:
        return
    except LinkError as error:
        reason = str(error)
        raise RunError(f"the SuperLink does not accept this node any more: {error}") from error
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        processes.close()
        health.ended(reason)


def checked(settings: NodeSettings, folders: file_access.Folders) -> str:
    """How far apps are confined here, in words. Raises ConfigError if the node must not run like this."""
    kernel, policy = support(), settings.policy
    file_access.check(policy, kernel, os.geteuid() == 0, settings.allow_root)
    may_read = file_access.readable_by_all(policy, folders)
    data = [folders.data] if folders.data and policy.raw_data else []
    file_access.check_paths(settings.secret, (*may_read, *data))
    signers_of(policy), members_of(policy)  # their files can be read
    are_seen = sees_processes()
    if policy.confine == DEMANDED and not are_seen:
        raise ConfigError(
            f'confine = "{DEMANDED}", but /proc hides processes, so what they use cannot be limited; mount it '
            "without hidepid (systemd: ProtectProc=default)"
        )
    return file_access.in_words(policy, kernel, are_seen)


def folders_of(settings: NodeSettings) -> file_access.Folders:
    """What apps may read beside their packages is the site's data, and what the node's environment names."""
    named = [os.environ.get(name) for name in (ROOT_VARIABLE, PARTS_VARIABLE)]
    paths = tuple(Path(text).expanduser().absolute() for text in named if text)
    data = None if settings.site is None else settings.site.path
    return file_access.Folders(settings.states, settings.cache, settings.scratch, paths, data)


def reader_of(settings: NodeSettings, places: Access, processes: Processes) -> RowsReader | None:
    """What reads the site's data; None if it has none."""
    policy = settings.policy
    if settings.site is None:
        return None
    return RowsReader(
        settings.site,
        settings.rows,
        settings.statistics,
        policy.holdout,
        policy.folds,
        policy.min_rows,
        places,
        processes,
    )


def check_data(reader: RowsReader | None) -> Counted | None:
    """How many rows the site's data have; None if its own file does not say what they are.

    Raises ConfigError, which is for the site's own people, if they are not as the file says.
    """
    try:
        return None if reader is None else reader.check(CHECK_SECONDS)
    except (ReadError, DiedError) as error:
        raise ConfigError(f"the data of this node are not as its data file says: {error}") from error


def too_few(counted: Counted | None, least: int) -> str:
    """What is said of data with fewer rows, or ids, than the policy demands; else empty.

    Their number is not said, as nowhere else.
    """
    if counted is None or counted.ids >= least:
        return ""
    what = "rows" if counted.ids == counted.rows else "ids"
    return (
        f"the data: below {least} {what}, all as the data file says; this node will refuse to train, since its "
        f"policy demands at least min_rows = {least}: add {what}, or lower min_rows in the file of the policy"
    )


def _connected(settings: NodeSettings) -> Link:
    try:
        return connected(settings.place, settings.key, wait=settings.wait, say=_warn)
    except LinkError as error:
        raise RunError(f"the node cannot join the SuperLink at {settings.place.address}: {error}") from error


def _lock(path: Path) -> None:
    """Let no other node use this node's files while this process lives. Raises ConfigError if one does."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fcntl.flock(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600),
            fcntl.LOCK_EX | fcntl.LOCK_NB,
        )
    except BlockingIOError:
        raise ConfigError(
            f"another node uses the folder {path.parent}; give each node its own FLWR_HOME"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"this node cannot write to its folder {path.parent} ({error.strerror}); make it writable, or give "
            "another one with FLWR_HOME"
        ) from error


def _node_log(settings: NodeSettings) -> NodeLog:
    """The log of this node. Raises ConfigError if its log cannot be written."""
    if settings.log is None:
        _warn(f"log={OFF}: what is done with this node's data is not recorded")
        return NodeLog(None)
    try:
        signer = None if settings.key is None else Signer(settings.key)
        node_log = NodeLog(LogFile(settings.log, signer=signer))
        node_log.started(settings.name, __version__)
    except BlockingIOError:
        raise ConfigError(
            f"another process writes the log {settings.log}; give each node its own log=PATH in "
            "--node-config, or none"
        ) from None
    except (OSError, RefusedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"this node's log {settings.log} cannot be written ({reason}), so the node does not start; make it "
            f"writable, or give another file with log=PATH in --node-config"
        ) from error
    how = "not signed, because it has no registered key" if signer is None else f"signed, key {signer.public.id}"
    _say(f"this node's log: {settings.log} ({how})")
    return node_log


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _warn(text: str) -> None:
    _say(f"warning: {text}")
