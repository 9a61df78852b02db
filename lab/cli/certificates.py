"""`fedstride certificates`: creates the TLS certificates and the node keys of a deployment."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedstride.processes.ports import NODES, SUBMITTING

from ..terminal import line

if TYPE_CHECKING:
    from ..deployment.certificates import CreatedFile


def certificates(
    folder: Annotated[
        Path, typer.Argument(help="Folder for the files; created if it does not exist.", show_default=False)
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name of the SuperLink; can be given several times.", show_default=False),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(help="An IP address of the SuperLink; can be given several times.", show_default=False),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of key pairs to create: node1, node2, ...", show_default=False)
    ] = None,
    node_names: Annotated[
        str | None, typer.Option(help="Names of the key pairs to create, as in a,b.", show_default=False)
    ] = None,
    days: Annotated[int, typer.Option(help="Days for which the server's certificate is valid.")] = 365,
    keep: Annotated[
        bool, typer.Option("--keep", help="Create only missing files; otherwise an existing file is an error.")
    ] = False,
) -> None:
    """Create a CA, the server's certificate and the nodes' key pairs; existing files are never replaced.

    Give all names and addresses under which nodes and users reach the SuperLink. Without any, only key
    pairs are created: for nodes that join later, or on a node's own machine, where its private key stays.
    """
    from ..deployment.certificates import free_node_names, make

    folder = folder.expanduser().absolute()
    wanted = [text.strip() for text in (node_names or "").split(",") if text.strip()]
    if nodes is not None:
        wanted += free_node_names(folder, nodes)
    made = make(folder, names=name or [], addresses=address or [], nodes=wanted, days=days, keep=keep)
    if not made:
        line(f"no file is missing in {folder}")
        return
    line(f"created in {folder}, readable only by you:")
    width = max(len(file.path.name) for file in made)
    for file in made:
        line(f"  {file.path.name:<{width}}  {file.purpose}")
    line("next steps (details: docs/deployment.md):")
    for command in _next_commands(folder, made, [*(address or []), *(name or [])]):
        line(f"  {command}")


def _next_commands(folder: Path, made: list[CreatedFile], hosts: list[str]) -> list[str]:
    """The commands that use these files, with their paths."""
    host = hosts[0] if hosts else "HOST"
    at = f"[{host}]" if ":" in host else host
    pairs = [file.path.stem for file in made if file.path.suffix == ".pub"]
    ca = _file(folder, "ca.crt") if (folder / "ca.crt").exists() else "ca.crt"
    start = (
        f"fedstride superlink --ssl-ca-certfile {ca} --ssl-certfile {_file(folder, 'server.crt')} "
        f"--ssl-keyfile {_file(folder, 'server.key')} --database state.db --enable-supernode-auth"
    )
    keys = " ".join(_file(folder, node + ".pub") for node in pairs)
    to = f"--address localhost:{SUBMITTING} --root-certificates {ca}"
    register = f"fedstride register {to} {keys}"
    join = [
        f"fedstride node --root-certificates {ca} --superlink {at}:{NODES} "
        f"--auth-supernode-private-key {_file(folder, node)} "
        f'--node-config \'name="{node}" data="/srv/fl/data.toml"\''
        for node in pairs
    ]
    submit = f"fedstride submit {to} partition=own clients={len(pairs)}"
    return [
        *([start] if hosts else []),
        *([register] if pairs else []),
        *join,
        *([submit] if hosts and pairs else []),
    ]


def _file(folder: Path, name: str) -> str:
    return shlex.quote(str(folder / name))
