"""The noun ``hosts`` and the verb ``drain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wormhole.cli.options import AsJson, Yes, with_where

if TYPE_CHECKING:
    from wormhole.cli.discovery import Where

__all__ = ["app"]

app = typer.Typer()


@app.command(epilog="Examples:\n\n  wormholectl hosts -c zk1:2181/wormhole\n\n  wormholectl hosts -c shop.toml --json")
@with_where
def hosts(where: Where, as_json: AsJson = False) -> None:
    """List hosts: their monitor, its publishers, and whether they are drained. Exit code 1 when one that should run logs has no monitor."""
    from wormhole.cli.hosts import show

    raise typer.Exit(show(where, as_json))


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
    from wormhole.cli.hosts import drain

    drain(where, host, undo, yes, as_json)
