"""`fedstride sign`: makes keys that sign apps, and signs an app, so that nodes run no other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstride.plain_help import PlainProgram

from ..terminal import line

sign = PlainProgram(help="Make keys that sign apps, and sign an app.", no_args_is_help=True)


@sign.command("key")
def key(
    path: Annotated[Path, typer.Argument(help="The file of the private key to make, as in keys/study.")],
) -> None:
    """Make a key pair, and the list of trusted keys for fedstride node --trusted-entities."""
    from ..deployment.app_signing import new_key

    private, public, trusted = new_key(path.expanduser())
    line(f"{private}  private: signs apps; keep it with those who decide what may run")
    line(f"{public}  public")
    line(f"{trusted}  for nodes: fedstride node --trusted-entities {trusted}")


@sign.command("app")
def app(
    key: Annotated[Path, typer.Argument(help="The private key, made by fedstride sign key.")],
    signature: Annotated[Path, typer.Argument(help="The file of the signature to write, as in study.sig.")],
    parts: Annotated[str | None, typer.Option(help="Python file with your own parts, as in parts=FILE.")] = None,
) -> None:
    """Sign the app that fedstride submit sends, as it is here now."""
    from fedstride.flower.bundles import bundle

    from ..deployment.app_signing import sign as sign_bundle
    from ..deployment.app_signing import write_signature
    from ..flower.bundle import app_folder

    with app_folder(parts) as folder:
        signed = sign_bundle(bundle(folder), key.expanduser())
    write_signature(signature.expanduser(), signed)
    line(f"{signature}: app {signed.app}, key {signed.key}")
    line(f"submit it with fedstride submit ... --signature {signature}")
