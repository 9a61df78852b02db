"""`fedstride submit`: submits a run to a running SuperLink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride.errors import ConfigError
from fedstride.processes.unix_signals import STOPPED

from ..terminal import line, say
from .run import OVERRIDES
from .target import ADDRESS, CONNECTION, INSECURE, ROOT_CERTIFICATES, after_connection, select

if TYPE_CHECKING:
    from server_app.config.overrides import Override
    from server_app.config.schema import Config

    from ..flower.submission import Submitted
    from ..flower.superlink_choice import ChosenSuperLink


SIGNATURE = typer.Option(help="The app's signature, made by fedstride sign app.", show_default=False)
SIGNING_KEY = typer.Option(help="Sign the app with this key, made by fedstride sign key.", show_default=False)
KEY = typer.Option(help="Sign the run with this key, made by fedstride sign key.", show_default=False)
NODES = typer.Option(help="With --key: the public keys of the nodes that may answer.", show_default=False)
EXPIRES = typer.Option(help="With --key: days until nodes answer no more.", show_default="7")


def submit(
    connection: Annotated[str | None, CONNECTION] = None,
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
    signature: Annotated[Path | None, SIGNATURE] = None,
    signing_key: Annotated[Path | None, SIGNING_KEY] = None,
    key: Annotated[Path | None, KEY] = None,
    nodes: Annotated[Path | None, NODES] = None,
    expires: Annotated[int | None, EXPIRES] = None,
) -> None:
    """Submit a run to a SuperLink and follow its log; exit code 0 if the run completes, otherwise 1.

    CONNECTION is a connection in Flower's config.toml; use --address instead for a SuperLink that is not in
    it. OVERRIDES are Hydra overrides, as for fedstride run.
    """
    from server_app.config.overrides import parse

    rest = after_connection(connection, overrides, address)
    signed = signature_of(signature, signing_key)
    target = select("submit", connection, address, root_certificates, insecure)
    console = Console()
    given = parse(rest)
    config = checked(given, console)
    run_signature = signed_run(config, key, nodes, expires)
    done = followed(target, given, console, signed, run_signature)
    must_be_completed(done)
    if done.final:
        say(console, f"final {done.final}")
    say(console, f"folder, on the SuperLink's machine: {done.folder or 'not logged'}")


def must_be_completed(done: Submitted) -> None:
    """End the command with an error if the run was not completed."""
    if done.completed:
        return
    where = f" (its folder on the SuperLink's machine: {done.folder})" if done.folder else ""
    what = {"failed": "failed", "lost": "is lost"}.get(done.state, f"was {done.state}")
    line(f"error: run {done.run_id} {what}: {done.reason}{where}", err=True)
    raise typer.Exit(1)


def checked(overrides: list[Override], console: Console) -> Config | None:
    """Refuse here what the ServerApp would refuse, and print what is submitted; None if it is unknown here."""
    from server_app.build import build_strategy
    from server_app.config.attacks import refuse_attack
    from server_app.config.compose import compose
    from server_app.config.methods import expand_method

    resumed = [given.name for given in overrides if given.key == "resume"]
    if resumed and not Path(resumed[-1]).is_dir():
        expand_method(overrides)
        say(console, f"resumes {resumed[-1]}, which only the SuperLink's machine can read")
        return None
    config = compose(overrides)
    refuse_attack(config)
    build_strategy(config)
    from .run import title

    say(console, title(config))
    return config


def signed_run(
    config: Config | None, key: Path | None, nodes: Path | None, expires: int | None
) -> Callable[[bytes, Mapping[str, str]], str] | None:
    """What signs the run; None for none. Raises ConfigError if that is not possible here."""
    if key is None:
        if nodes is not None or expires is not None:
            raise ConfigError("--nodes and --expires are only allowed with --key, which signs the run")
        return None
    if config is None:
        raise ConfigError(
            "--key signs what the run's messages will say, and the folder to resume is not here; give the run's "
            "folder the same path here (fedstride fetch RUN --all -o FOLDER), or submit at the SuperLink's machine"
        )
    from ..deployment.run_signing import DAYS, RunSigner

    signer = RunSigner(key, nodes, DAYS if expires is None else expires)
    return lambda bundle, run_config: signer.sign(config, bundle, run_config)


def signature_of(signature: Path | None, key: Path | None) -> Callable[[bytes], str] | None:
    """What makes the signature of a bundle that is submitted; None for none.

    Raises ConfigError if both are given, and when it is called, for a wrong file.
    """
    if signature is not None and key is not None:
        raise ConfigError("--signature and --signing-key are given: choose one of them")
    if signature is None and key is None:
        return None

    def signed(bundle: bytes) -> str:
        from ..deployment.app_signing import read_signature, sign

        app_signature = sign(bundle, key.expanduser()) if key else read_signature(Path(signature or ""), bundle)
        return app_signature.dump()

    return signed


def followed(
    target: ChosenSuperLink,
    overrides: list[Override],
    console: Console,
    signed: Callable[[bytes], str] | None,
    signed_run: Callable[[bytes, Mapping[str, str]], str] | None,
    described: Callable[[str], None] | None = None,
) -> Submitted:
    """Submit, and show the log until the run ends.

    `described`: the run only asks what the sites' data are like, and this gets what each says, as JSON.
    """
    from ..flower import submission

    run_id = ""
    try:
        run_id = submission.submit(target, overrides, signed, signed_run, describes=described is not None)
        say(console, f"run {run_id} submitted to {target.address}")
        return submission.follow(target, run_id, lambda line: say(console, line), described or (lambda text: None))
    except STOPPED:
        if run_id:
            say(console, "no longer followed; the run continues")
            for line in target.commands(run_id):
                say(console, f"  {line}")
        else:
            say(
                console,
                "interrupted while submitting; fedstride runs shows whether the run was accepted",
            )
        raise
