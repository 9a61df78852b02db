"""`fedstride doctor`: checks this machine and gives advice on each problem."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from .listing import FORMAT, Format


def doctor(form: Annotated[Format, FORMAT] = Format.TEXT) -> None:
    """Check Python, torch, GPU, folders, data and ports; exit code 1 if something required is missing."""
    from ..doctor import examine

    findings = examine()
    if form is Format.JSON:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            typer.echo(f"{finding.state:<5} {finding.topic:<9} {finding.text}")
            if finding.advice:
                typer.echo(f"{'':<15} -> {finding.advice}")
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(1)
