"""The command ``doctor``: its options and its help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.options import LOG_HELP, AsJson, PasswordFile, with_where

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app"]

app = typer.Typer()

_DOCTOR_EXAMPLES: Final = """Examples:

  wormholectl doctor "$LOG"

  wormholectl doctor "$LOG" --password-file db1.password --json

  wormholectl doctor -c shop.toml
"""


@app.command(epilog=_DOCTOR_EXAMPLES)
@with_where
def doctor(
    where: Where,
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help=f"{LOG_HELP} Without it: the installation.", show_default=False)
    ] = "",
    as_json: AsJson = False,
    password_file: PasswordFile = None,
) -> None:
    """Say what matters for tailing a database: settings, privileges, tables, files. Without a URL look at an
    installation: coordinator, monitors, publishers, flows, versions, clocks, disks. Exit code 1 when something should
    be changed.
    """
    from wormholectl.discovery import STATE_DIR
    from wormholectl.examine import examine, examine_installation

    if url:
        raise typer.Exit(examine(url, where.folder or STATE_DIR, as_json, password_file))
    raise typer.Exit(examine_installation(where, as_json))
