"""The settings of `fedstride node`: arguments, environment and files, read and checked once before it connects."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from client_app.state.state_folder import root
from fedstride.errors import ConfigError
from fedstride.files import private_files, user_folders
from fedstride.flower.for_nodes.certificates import context
from fedstride.flower.for_nodes.connection import SuperLinkAddress
from fedstride.messages.node_names import stated_name
from fedstride.processes.ports import NODES
from fedstride.tasks.cache import cache_dir
from fedstride.tasks.data_toml.site import SiteData

from . import own_files
from .apps.trusted_keys import trusted_keys
from .keys import private_key
from .node_config import Value, for_apps, node_config, path_of, site_of
from .policy.policy_file import Policy, check_owner, read_policy
from .policy.time_limit import message_limit

OFF = "off"

GONE = {
    "--port": "a node has no port of its own",
    "--host": "a node has no port of its own",
    "--ssl-certfile": "a node has no port of its own",
    "--ssl-keyfile": "a node has no port of its own",
    "--ssl-ca-certfile": "a node has no port of its own",
    "--isolation": "each message has a process of its own",
    "--superexec-auth-secret-file": "a node has no port of its own",
    "--allow-runtime-dependency-installation": "a node installs nothing; install what apps need beside fedstride",
    "--health-server-address": "fedstride node-status says whether a node is heard",
    "--max-retries": "without --wait a node gives up after ten seconds, with it never",
    "--max-wait-time": "without --wait a node gives up after ten seconds, with it never",
    "--grpc-rere": "the transport is that of the installed Flower",
    "--grpc-adapter": "the transport is that of the installed Flower",
}
"""Options of flower-supernode that a node of ours does not have, and why."""


@dataclass(frozen=True)
class NodeSettings:
    """The settings of a node."""

    place: SuperLinkAddress
    key: EllipticCurvePrivateKey | None  # None: the node makes one, and registers it itself
    config: Mapping[str, Value]  # its node-config, as apps see it
    policy: Policy
    site: SiteData | None  # its own data; None: it has none
    states: Path  # what clients keep
    cache: Path  # of prepared data
    scratch: Path  # of this process, for the folders of messages
    output: Path  # what unsigned apps write
    rows: Path  # the site's examples, as messages ask for them
    statistics: Path  # what was said of its columns
    secret: Mapping[str, Path]  # files that apps must not read, by what they are
    allow_root: bool
    name: str  # empty: none
    log: Path | None  # None: off
    status: Path
    lock: Path  # held by the process that uses these files
    home: Path  # the folder of the node's own files
    terms: bytes  # the texts of its policy and its data file: files that were changed since are not in force
    apps: Path  # where it unpacks apps
    trusted: Mapping[str, str] | None  # keys by id; None: apps need no signature
    wait: bool  # for a SuperLink that cannot be reached
    limit: float  # seconds of a message
    passed: tuple[str, ...]  # names of variables that apps see in addition


NODE = "node", "Take part in runs with this machine's data. Each message has a process of its own."
"""The name of the command that has these options, and what it does."""


def read(
    arguments: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    command: tuple[str, str] = NODE,
) -> NodeSettings:
    """The settings in these arguments. Raises ConfigError for what is not allowed.

    `command`: that of the arguments, and what it does, for its --help.
    """
    given = _parser(*command).parse_args(list(arguments))
    config = node_config(given.node_config)
    home = user_folders.flower(environment)
    site, log, policy = site_of(config), _log(config, home / own_files.LOG), read_policy(path_of(config, "policy"))
    if given.insecure and given.root_certificates:
        raise ConfigError("--insecure and --root-certificates exclude each other: with certificates there is TLS")
    if given.insecure and given.auth_supernode_private_key:
        raise ConfigError(
            "--insecure and --auth-supernode-private-key exclude each other: a key without TLS protects nothing; "
            "give --root-certificates"
        )
    return NodeSettings(
        place=SuperLinkAddress(
            address=_address(given.superlink),
            insecure=given.insecure,
            root_certificates=_certificates(given.root_certificates),
            proxy=_proxy(given.proxy),
        ),
        key=_private_key(given.auth_supernode_private_key),
        config=for_apps(config, site, policy),
        policy=policy,
        site=site,
        states=root(config).absolute(),
        cache=cache_dir().absolute(),
        scratch=home / own_files.SCRATCH / f"{os.getpid()}-{os.urandom(4).hex()}",
        output=home / own_files.OUTPUT,
        rows=home / own_files.ROWS,
        statistics=home / own_files.STATISTICS,
        secret=_secret(given.auth_supernode_private_key, config, site, home, log),
        allow_root=given.allow_root,
        name=stated_name(config),
        log=log,
        status=home / own_files.STATUS,
        lock=home / own_files.LOCK,
        home=home,
        terms=_terms(config),
        apps=home / own_files.APPS,
        trusted=_trusted(given.trusted_entities, policy),
        wait=given.wait,
        limit=message_limit(environment),
        passed=tuple(filter(None, given.pass_environment.split(","))),
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every invalid setting."""
        raise ConfigError(f"{self.prog}: {message}; see {self.prog} --help")


class _Gone(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """An option of Flower's node."""
        raise ConfigError(f"fedstride node has no option {option}: {GONE[str(option)]}; leave it out")


def _parser(command: str, does: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"fedstride {command}",
        description=does,
        epilog="FEDSTRIDE_MESSAGE_SECONDS limits the time of a message. FLWR_HOME is the folder of its files.",
    )
    add = parser.add_argument
    add("--superlink", required=True, metavar="HOST:PORT", help="the SuperLink's address for nodes")
    add("--root-certificates", type=Path, metavar="FILE", help="CA that signed the SuperLink's certificate (PEM)")
    add("--insecure", action="store_true", help="without TLS: for tests on one machine")
    add("--auth-supernode-private-key", type=Path, metavar="FILE", help="this node's registered private key")
    add(
        "--node-config",
        default="",
        metavar="'K=V ...'",
        help="values for apps; name=NAME, data=FILE.toml, policy=FILE.toml, log=FILE or off",
    )
    add("--trusted-entities", type=Path, metavar="FILE", help="run only apps that one of these keys has signed")
    add("--wait", action="store_true", help="wait for a SuperLink that cannot be reached, as services want it")
    add("--proxy", metavar="URL", help="reach the SuperLink through this proxy; the environment's are not used")
    add("--pass-environment", default="", metavar="A,B", help="environment variables that apps see in addition")
    add("--allow-root", action="store_true", help="run as root, who may do much even where apps are confined")
    for option in GONE:
        add(option, nargs="?", action=_Gone, help=argparse.SUPPRESS)
    return parser


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in text:
        raise ConfigError(
            f"--superlink {text!r} is not allowed: it must be HOST:PORT, as in fl.example.org:{NODES}"
        )
    return text


def _proxy(text: str | None) -> str | None:
    if text is not None:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"--proxy {text!r} is not allowed: it must be a URL, as in http://proxy.example.org:3128"
            )
    return text


def _terms(config: Mapping[str, Value]) -> bytes:
    paths = {name: path_of(config, name) for name in ("policy", "data")}
    return b"".join(_content(path, name) for name, path in paths.items() if path is not None)


def _certificates(path: Path | None) -> bytes | None:
    if path is None:
        return None
    content = _content(path, "--root-certificates")
    try:
        context(SuperLinkAddress("", root_certificates=content))
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise ConfigError(
            f"--root-certificates {path} is not a certificate in PEM; give the ca.crt of the SuperLink"
        ) from None
    return content


def _private_key(path: Path | None) -> EllipticCurvePrivateKey | None:
    if path is None:
        return None
    path = path.expanduser()
    try:
        content, fault = private_files.read(path)
    except OSError as error:
        raise ConfigError(
            f"--auth-supernode-private-key {path} cannot be read: {error.strerror or error}"
        ) from error
    key = private_key(content)
    if key is None:
        raise ConfigError(
            f"--auth-supernode-private-key {path} is not a private key that can be used: it must be of an "
            "elliptic curve, and have no password; fedstride certificates makes one"
        )
    if fault:
        raise ConfigError(f"--auth-supernode-private-key {path} {fault}")
    return key


def _content(path: Path, option: str) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error.strerror or error}") from error


def _secret(
    key: Path | None, config: Mapping[str, Value], site: SiteData | None, home: Path, log: Path | None
) -> dict[str, Path]:
    """The files that apps must not read, by what they are."""
    paths = {"the node's key": key, "the policy": path_of(config, "policy"), "the node's log": log}
    paths |= {"the node's folder (FLWR_HOME)": home, "the folder of the clients' states": root(config)}
    paths |= {"the cache": cache_dir().absolute()}
    paths |= {
        "the data file": path_of(config, "data"),
        "the secret of the hold-out": site.secret if site else None,
    }
    return {what: path.expanduser().absolute() for what, path in paths.items() if path is not None}


def _trusted(path: Path | None, policy: Policy) -> Mapping[str, str] | None:
    if path is None:
        if policy.signed:
            raise ConfigError("signed = true in the policy needs --trusted-entities, the keys that may sign apps")
        return None
    check_owner(path, "--trusted-entities")
    return trusted_keys(path)


def _log(config: Mapping[str, Value], default: Path) -> Path | None:
    log = config.get("log", str(default))
    if not isinstance(log, str) or not log:
        raise ConfigError(f'node-config log = {log!r} is not allowed: it must be the path of a file, or "{OFF}"')
    return None if log == OFF else Path(log).expanduser().absolute()
