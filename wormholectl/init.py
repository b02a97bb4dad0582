"""The command ``init``: its options and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from wormholectl.options import LOG_HELP, PasswordFile

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl init "$LOG"

  wormholectl init "$SERVER/shop" --password-file db1.password

  wormholectl init "$SERVER" --dir pubsub --application search
"""


@app.command(epilog=_EXAMPLES)
def init(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help=f"{LOG_HELP} Of a server with databases: SCHEME://user@host:port/database; "
            "without a database the application gets the tables of all.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where to write; made when it is not there.")
    ] = Path(),
    application: Annotated[str, typer.Option("--application", metavar="NAME", help="What yours is called.")] = "cache",
    password_file: PasswordFile = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write a configuration, a subscriber and its test for a datastore, ready to run. No password is written."""
    from wormholectl.init_project import initialise

    initialise(url, folder, application, password_file, force)
