"""The noun ``zookeeper``: who may do what in the one that a fleet shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wormholectl.options import CoordinatorAt, Yes

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Close ZooKeeper to everybody but publishers, subscribers and operators.")


@app.command(
    epilog="Examples:\n\n  wormholectl zookeeper credentials --to /etc/wormhole/credentials -c zk1:2181/wormhole"
)
def credentials(
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FOLDER", help="Where the files are made, or are already.", show_default=False),
    ],
    coordinator: CoordinatorAt = "",
) -> None:
    """Make credentials for operators, publishers and the subscribers of each application. Nothing is closed by it.

    Again after an application was added; what is there stays as it is.
    """
    from wormholectl.zookeeper_access import credentials

    credentials(coordinator, to)


@app.command(
    epilog="Examples:\n\n  wormholectl zookeeper close --credentials /etc/wormhole/credentials/operator -c zk1:2181/wormhole"
)
def close(
    coordinator: CoordinatorAt = "",
    operator: Annotated[
        Path | None,
        typer.Option(
            "--credentials",
            metavar="FILE",
            envvar="WORMHOLE_COORDINATOR_AUTH_FILE",
            help="The operator's, if not what FILE.toml names.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Take every right from processes without credentials. Shows which run without them, and asks."""
    from wormholectl.zookeeper_access import close

    close(coordinator, operator, yes)
