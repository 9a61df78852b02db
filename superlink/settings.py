"""The options of `fedstride superlink`: its own, and those that it hands on to Flower's SuperLink."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fedstride.errors import ConfigError
from fedstride.processes.ports import NODES, SUBMITTING

GONE = {
    "--isolation": "each ServerApp has a process of its own, started here",
    "--superexec-auth-secret-file": "each ServerApp has a process of its own, started here",
    "--allow-runtime-dependency-installation": "nothing is installed for a run; install what it needs",
    "--disable-runtime-dependency-installation": "nothing is installed for a run",
    "--simulation": "use fedstride simulate",
    "--control-api-address": "use --host and --port",
    "--fleet-api-type": "the transport is that of the installed Flower",
    "--health-server-address": "GET /health answers on the port for submitting",
    "--artifact-provider-config": "fedstride fetch copies the folder of a run",
}
"""Options of flower-superlink that this one does not have, and why."""


@dataclass(frozen=True)
class SuperLinkSettings:
    """The settings of a SuperLink. `passed`: the options for Flower's parser."""

    passed: tuple[str, ...]
    host: str
    port: int
    database: Path | None  # None: in memory
    key: Path | None
    serverapps: Path | None  # the operator's file
    flwr: bool  # whether this machine may submit without the token
    behind_proxy: bool


def read(arguments: Sequence[str]) -> SuperLinkSettings:
    """The settings in these arguments. Raises ConfigError for what is not allowed."""
    given = _parser().parse_args(list(arguments))
    if given.behind_proxy and given.allow_flwr_without_token:
        raise ConfigError(
            "--behind-proxy and --allow-flwr-without-token exclude each other: behind a proxy everybody seems to "
            "be on this machine"
        )
    if not given.insecure and not all((given.ssl_certfile, given.ssl_keyfile, given.ssl_ca_certfile)):
        raise ConfigError(
            "give --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile (fedstride certificates makes them), or "
            "--insecure for tests on one machine"
        )
    own_options = {"serverapp_config", "allow_flwr_without_token", "behind_proxy"}
    passed: list[str] = []
    for name, value in vars(given).items():
        if name not in own_options and value not in (None, False):
            passed += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return SuperLinkSettings(
        passed=tuple(passed),
        host=given.host,
        port=given.port,
        database=_path(given.database),
        key=_path(given.ssl_keyfile),
        serverapps=_path(given.serverapp_config),
        flwr=given.allow_flwr_without_token,
        behind_proxy=given.behind_proxy,
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser().absolute()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every invalid setting."""
        raise ConfigError(f"fedstride superlink: {message}; see fedstride superlink --help")


class _Gone(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """An option of Flower's SuperLink."""
        raise ConfigError(f"fedstride superlink has no option {option}: {GONE[str(option)]}; leave it out")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fedstride superlink",
        description="Start Flower's SuperLink behind a guard: nodes show their keys, and who submits a token.",
        epilog="The token is in superlink-tokens of FLWR_HOME, made anew at each start.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    add("--port", type=_port, default=SUBMITTING, help=f"port to listen on ({SUBMITTING})")
    add(
        "--fleet-api-address",
        metavar="HOST:PORT",
        help=f"with Flower 1.39: where nodes reach it (0.0.0.0:{NODES})",
    )
    add("--ssl-certfile", metavar="FILE", help="this server's certificate (PEM)")
    add("--ssl-keyfile", metavar="FILE", help="its private key, mode 0600")
    add("--ssl-ca-certfile", metavar="FILE", help="the CA that signed the certificate")
    add("--insecure", action="store_true", help="without TLS: for tests on one machine")
    add("--database", metavar="FILE", help="keep nodes, runs and logs over a restart; without it, in memory")
    add("--enable-supernode-auth", action="store_true", help="accept registered nodes only")
    add("--log-file", metavar="FILE", help="write the log to this file, too")
    add("--log-rotation-interval-hours", metavar="N", help="begin a new log file every N hours (24)")
    add("--log-rotation-backup-count", metavar="N", help="keep so many old log files (7)")
    add("--serverapp-config", metavar="FILE", help="what ServerApps may use on this machine (TOML)")
    add("--behind-proxy", action="store_true", help="accept requests that a proxy has forwarded")
    add(
        "--allow-flwr-without-token",
        action="store_true",
        help="every user of this machine may submit and stop runs without the token, so that flwr works",
    )
    for option in GONE:
        add(option, nargs="?", action=_Gone, help=argparse.SUPPRESS)
    return parser


def clean(environment: Any = os.environ) -> None:
    """Forget variables that would change how the server listens."""
    for name in ("FORWARDED_ALLOW_IPS", "WEB_CONCURRENCY", "UVICORN_RELOAD", "FLWR_INTERNAL_GRPC_CONTROL_API"):
        environment.pop(name, None)
