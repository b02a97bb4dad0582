"""The noun ``hosts``: bare it lists, ``adopt`` writes what a host allows; and the verb ``drain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.options import AsJson, Yes, with_where

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app", "hosts_app"]

_EXAMPLES: Final = "Examples:\n\n  wormholectl hosts -c zk1:2181/wormhole\n\n  wormholectl hosts -c shop.toml --json"

app = typer.Typer()
hosts_app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)


@hosts_app.callback()
@with_where
def hosts(ctx: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List hosts: their monitor, its publishers, and whether they are drained. Exit code 1 when one that should run logs has no
    monitor. With `adopt`: write what this host lets datasets read."""
    if ctx.invoked_subcommand is not None:
        return
    from wormholectl.hosts import show

    raise typer.Exit(show(where, as_json))


@hosts_app.command("adopt", epilog="Example:\n\n  wormholectl hosts adopt -c /etc/wormhole/host.toml")
def hosts_adopt(
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", metavar="FILE.toml", help="The file of this host's monitor.", show_default=False
        ),
    ],
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the tables only, for a file that something else writes.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Add to this host's file the sources that an earlier release stored in ZooKeeper for it; from then on only that list counts."""
    from wormholectl.adopting import adopt

    adopt(config, yes, only_print)


@app.command(
    epilog="Examples:\n\n  wormholectl drain db-7 -c shop.toml\n\n  wormholectl drain db-7 --undo -c shop.toml --yes"
)
@with_where
def drain(
    host: Annotated[str, typer.Argument(metavar="HOST", help="As `wormholectl hosts` lists it.", show_default=False)],
    where: Where,
    undo: Annotated[bool, typer.Option("--undo", help="Let it run its publishers again.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Stop all publishers of a host, cleanly, and keep them stopped: before maintenance."""
    from wormholectl.hosts import drain

    drain(where, host, undo, yes, as_json)
