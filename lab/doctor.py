"""Checks this machine: what fedstride needs, what is present, and how to solve each problem.

Each check is a function that returns findings and never raises.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from fedstride.files import user_folders
from fedstride.processes import ports
from fedstride.processes.cores import cores

if TYPE_CHECKING:
    from fedstride.flower.for_nodes.connection import SuperLinkAddress

    from .deployment.expiry import Expiry
    from .flower.superlink_choice import ChosenSuperLink


@dataclass(frozen=True)
class Finding:
    """The result of a check: `ok`, `warn` (works, but with a restriction) or `fail`, and advice."""

    topic: str
    state: str
    text: str
    advice: str = ""


def examine(
    certificates: Sequence[Path] = (),
    *,
    only_certificates: bool = False,
    superlink: str | None = None,
    root_certificates: Path | None = None,
) -> list[Finding]:
    """All findings, in the order of `CHECKS`; then those about SuperLinks and certificates.

    `certificates`: more files and folders of some. `superlink`: HOST:PORT of one more SuperLink.
    """
    others = () if only_certificates else CHECKS
    links = [] if only_certificates else _superlinks(superlink, root_certificates)
    secrets = _secrets(certificates, with_tokens=not only_certificates)
    return [*(finding for check in others for finding in check()), *links, *_certificates(certificates), *secrets]


# ---------------------------------------------------------------- Flower, and SuperLinks


def _flower() -> list[Finding]:
    """Which Flower nodes of this installation have, and how they reach their SuperLink."""
    from fedstride.flower.for_nodes.connecting import untested, uses_http

    try:
        how = "HTTP, on the port for submitting" if uses_http() else "gRPC, on a port of their own"
    except PackageNotFoundError:
        return []  # `_packages` says so
    text = f"Flower {version('flwr')}: its nodes use {how}"
    return [Finding("nodes", "warn" if untested() else "ok", text, untested())]


def _superlinks(address: str | None, root_certificates: Path | None) -> list[Finding]:
    """What answers at each connection in Flower's config.toml, and at this address."""
    from fedstride.errors import ConfigError

    from .flower.superlink_choice import ChosenSuperLink, deployed, named

    given = [] if address is None else [ChosenSuperLink("", address, root_certificates is None, root_certificates)]
    try:
        targets = [*map(named, deployed()), *given]
    except ConfigError as error:
        return [Finding("superlink", "warn", str(error))]
    return [_superlink(target) for target in targets]


ANSWERS = {
    "http": "a SuperLink of Flower 1.40 or later, whose nodes use HTTP",
    "control": "the port for submitting of a SuperLink of Flower 1.39, whose nodes use gRPC",
    "grpc": "the port for nodes of a SuperLink of Flower 1.39, which use gRPC",
}
"""What each answer of `fedstride.flower.for_nodes.connecting.speaks` means."""


def _superlink(target: ChosenSuperLink) -> Finding:
    """Whether the SuperLink at this address has the transport of this machine's nodes."""
    from fedstride.flower.for_nodes.connecting import speaks, uses_http

    from .flower.why_unreachable import why

    name = f"{target.name} ({target.address})" if target.name else target.address
    has_port = target.address.rpartition(":")[2].isdecimal()
    spoken = speaks(_place(target)) if has_port else ""
    if spoken != "grpc" and (reason := why(target)) is not None:  # `why` asks in HTTP
        return Finding("superlink", "warn", f"{name}: {reason}")
    if not spoken:
        return Finding("superlink", "warn", f"{name}: no SuperLink answers", "start it, or check the address")
    if (spoken == "http") == uses_http():
        return Finding("superlink", "ok", f"{name} is {ANSWERS[spoken]}, as here")
    extra = "deployment-http" if spoken == "http" else "deployment"
    advice = f"pip install 'fedstride[{extra}]', or 'fedstride[{extra.replace('deployment', 'node')}]' for a node"
    return Finding("superlink", "warn", f"{name} is {ANSWERS[spoken]}, unlike those of this machine", advice)


def _place(target: ChosenSuperLink) -> SuperLinkAddress:
    from fedstride.flower.for_nodes.connection import SuperLinkAddress

    trusted = None
    if target.root_certificates is not None:
        with contextlib.suppress(OSError):
            trusted = target.root_certificates.expanduser().read_bytes()
    return SuperLinkAddress(target.address, target.insecure, trusted)


# ---------------------------------------------------------------- certificates


def _certificates(given: Sequence[Path]) -> list[Finding]:
    """When the certificates expire that this user's connections name, and those that are given."""
    from fedstride.errors import ConfigError

    from .deployment.expiry import expiries
    from .flower.superlink_choice import deployed, named

    try:
        paths = [user_folders.expanded(path) for path in given]
        paths += [trusted for name in deployed() if (trusted := named(name).root_certificates) is not None]
    except ConfigError as error:
        return [Finding("certificates", "warn", str(error))]
    return [_expiry(expiry) for expiry in expiries(paths, datetime.now(UTC))]


def _expiry(expiry: Expiry) -> Finding:
    advice = "make a new one: docs/operations.md"
    if expiry.days is None:
        return Finding(
            "certificates", "warn", f"{expiry.path}: {expiry.fault}", "name a certificate, or a folder of some"
        )
    if expiry.days < 0:
        return Finding("certificates", "fail", f"{expiry.path} expired on {expiry.until}", advice)
    text = f"{expiry.path} expires on {expiry.until}, in {expiry.days} days"
    return Finding("certificates", "warn" if expiry.soon else "ok", text, advice if expiry.soon else "")


def _secrets(given: Sequence[Path], with_tokens: bool) -> list[Finding]:
    """Private keys in what is given, and this user's submit tokens, that others can use; and how many are fine."""
    from fedstride.errors import ConfigError

    from .deployment.key_files import secrets, tokens

    try:
        files = [*secrets(map(user_folders.expanded, given)), *(tokens() if with_tokens else [])]
    except ConfigError as error:
        return [Finding("keys", "warn", str(error))]
    wrong = [Finding("keys", "fail", f"the {file.what} {file.path} {file.fault}") for file in files if file.fault]
    fine = [f"{file.what} {file.path}" for file in files if not file.fault]
    return [*wrong, *([Finding("keys", "ok", f"only their user can use: {', '.join(fine)}")] if fine else [])]


def _python() -> list[Finding]:
    good = (3, 11) <= sys.version_info[:2] < (3, 13)
    text = f"{platform.python_version()} at {sys.executable}"
    return [Finding("python", "ok" if good else "warn", text, "" if good else "tested with Python 3.11 and 3.12")]


SIMULATION = "ray"


def _packages() -> list[Finding]:
    findings = []
    for name in ("flwr", "torch", "hydra-core", "mlxtend", "flwr-datasets", SIMULATION):
        try:
            findings.append(Finding("packages", "ok", f"{name} {version(name)}"))
        except PackageNotFoundError:
            optional = name == SIMULATION
            text = f"{name} is missing" + (": needed only for Flower's simulation" if optional else "")
            advice = f"pip install 'fedstride[{'simulation' if optional else 'desk'}]'"
            findings.append(Finding("packages", "warn" if optional else "fail", text, advice))
    return findings


def _torch() -> list[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return [Finding("torch", "fail", f"cannot be imported: {error}", "install torch again")]
    build = f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"
    if not torch.cuda.is_available():
        return [
            Finding("gpu", "ok", f"no GPU that torch can use (torch {build}); client.device=auto uses the CPU")
        ]
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [Finding("gpu", "ok", f"cuda:{i} {name} (torch {build})") for i, name in enumerate(names)]


def _machine() -> list[Finding]:
    return [Finding("machine", "ok", f"{platform.system()} {platform.machine()}, {cores()} cores")]


def _confinement() -> list[Finding]:
    """How far a node of this machine could confine apps."""
    from confinement import support

    kernel = support()
    if kernel.complete:
        return [Finding("nodes", "ok", f"the kernel can confine apps (Landlock {kernel.landlock})")]
    what = "cannot confine apps at a node" if not kernel.possible else "confines apps at a node in part"
    return [Finding("nodes", "warn", f"the kernel {what}: {'; '.join(kernel.missing())}", "see docs/security.md")]


def _folders() -> list[Finding]:
    from fedstride.tasks.cache import cache_dir
    from server_app.config.schema import Config
    from server_app.records.run_folder import runs_dir

    return [
        _folder("runs", lambda: runs_dir(Config()), "set out=FOLDER or FEDSTRIDE_RUNS"),
        _folder("cache", cache_dir, "set FEDSTRIDE_CACHE"),
        _folder("flower", user_folders.flower, "set FLWR_HOME"),
    ]


def _folder(topic: str, where: Callable[[], Path], advice: str) -> Finding:
    from fedstride.errors import ConfigError

    try:
        folder = where()
    except ConfigError as error:
        return Finding(topic, "fail", str(error), advice)
    existing = next(parent for parent in [folder, *folder.parents] if parent.exists())
    free = shutil.disk_usage(existing).free / 1e9
    if not os.access(existing, os.W_OK):
        return Finding(topic, "fail", f"{folder} is not writable", advice)
    if free < 1.0:
        return Finding(topic, "warn", f"{folder}: only {free:.1f} GB free", advice)
    return Finding(topic, "ok", f"{folder}, {free:.0f} GB free")


def _ports() -> list[Finding]:
    from fedstride.flower.for_nodes.connecting import uses_http

    uses = {ports.SUBMITTING: "SuperLink, submitting", ports.NODES: "SuperLink, nodes"}
    with contextlib.suppress(PackageNotFoundError):  # `_packages` says so
        uses = {ports.SUBMITTING: "SuperLink, submitting and nodes"} if uses_http() else uses
    uses |= {ports.SUPERNODE: "flower-supernode", ports.FLWR_RUN: "SuperLink of flwr run"}
    findings = []
    for port, use in uses.items():
        with socket.socket() as probe:
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        if not taken:
            findings.append(Finding("ports", "ok", f"{port} ({use}) is free"))
        elif port == ports.FLWR_RUN:
            advice = "flwr run would use it with the environment in which it was started: stop it before a run"
            findings.append(
                Finding("ports", "warn", f"{port}: a SuperLink of an earlier flwr run is listening", advice)
            )
        else:
            findings.append(Finding("ports", "warn", f"{port} ({use}) is in use", "choose another with --port"))
    return findings


def _dependency_installation() -> list[Finding]:
    name = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
    if os.environ.get(name) == "1":
        return [Finding("flwr run", "ok", f"{name}=1: dependencies are not installed again for each run")]
    advice = f"export {name}=1 before the first flwr run; fedstride simulate sets it"
    return [
        Finding(
            "flwr run",
            "warn",
            "the SuperLink of flwr run installs all dependencies, including torch, for every run",
            advice,
        )
    ]


def _data_folder() -> Finding:
    """Where the tasks that read files look for them."""
    from fedstride.errors import FedstrideError
    from fedstride.tasks.datasets.files import ROOT_VARIABLE, root_folder

    if not os.environ.get(ROOT_VARIABLE):
        return Finding("data", "ok", f"{ROOT_VARIABLE} is not set; tasks that read files need it, or task.root")
    try:
        folder = root_folder(None, "doctor")
    except FedstrideError as error:
        return Finding("data", "fail", str(error))
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return Finding("data", "ok", f"{ROOT_VARIABLE} = {folder}, with the folders {', '.join(names) or '(none)'}")


def _data() -> list[Finding]:
    from fedstride.errors import FedstrideError
    from fedstride.settings import REQUIRED
    from fedstride.tasks import data
    from fedstride.tasks.registry import TASKS

    findings = []
    findings.append(_data_folder())
    for name in TASKS:
        if "root" in TASKS.fields(name) or any(f.default is REQUIRED for f in TASKS.fields(name).values()):
            continue  # it reads files, or its examples are the nodes' own
        try:
            source = data.load(TASKS.unflatten({"task.name": name}))
            text = f"{name}: {len(source.train_y)} training examples, {len(source.test_y)} test examples"
            findings.append(Finding("data", "ok", text))
        except (FedstrideError, OSError) as error:
            findings.append(Finding("data", "fail", f"{name}: {error}"))
    return findings


CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    _machine,
    _python,
    _packages,
    _flower,
    _torch,
    _confinement,
    _folders,
    _data,
    _ports,
    _dependency_installation,
)
