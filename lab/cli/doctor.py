"""`fedstride doctor`: checks this machine and gives advice on each problem."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import block, line
from .listing import FORMAT, Format


def doctor(
    form: Annotated[Format, FORMAT] = Format.TEXT,
    certificates: Annotated[
        list[Path] | None,
        typer.Option(
            help="A certificate or key to check, too, or a folder of some.",
            show_default=False,
        ),
    ] = None,
    only_certificates: Annotated[
        bool, typer.Option("--only-certificates", help="Check certificates and keys, and nothing else.")
    ] = False,
    superlink: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a SuperLink, besides those in Flower's config.toml.", show_default=False),
    ] = None,
    root_certificates: Annotated[
        Path | None,
        typer.Option(help="The CA's certificate of --superlink; without it, plain text.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print what is not ok.")] = False,
) -> None:
    """Check Python, torch, GPU, folders, data, ports, SuperLinks, certificates; exit code 1: something fails."""
    from ..doctor import examine

    all_findings = examine(
        certificates or (),
        only_certificates=only_certificates,
        superlink=superlink,
        root_certificates=root_certificates,
    )
    findings = [finding for finding in all_findings if not (quiet and finding.state == "ok")]
    if form is Format.JSON:
        block(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            line(f"{finding.state:<5} {finding.topic:<9} {finding.text}")
            if finding.advice:
                line(f"{'':<15} -> {finding.advice}")
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(1)
