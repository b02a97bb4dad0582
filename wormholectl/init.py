"""The command ``init``: its options and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from wormholectl.options import PasswordFile

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl init mysql://wormhole@db1:3306/shop --password-file db1.password

  wormholectl init mariadb://wormhole@db1:3306 --dir pubsub --application search

  wormholectl init rocksdb:///var/lib/app/store
"""


@app.command(epilog=_EXAMPLES)
def init(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The datastore: rocksdb:///path/of/the/database, mysql://user@host:3306/database or mariadb://...; "
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
