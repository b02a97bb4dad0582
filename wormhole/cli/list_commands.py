"""The commands that list what publishers tell: ``flows``, ``caravans``, ``subscribers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from wormhole.cli.options import AsJson, with_where

if TYPE_CHECKING:
    from wormhole.cli.discovery import Where

__all__ = ["app"]

app = typer.Typer()


def _show(what: str, where: Where, as_json: bool) -> None:
    from wormhole.cli import status
    from wormhole.cli.admin_client import ask

    listing = {"flows": status.FLOWS, "caravans": status.CARAVANS, "subscribers": status.SUBSCRIBERS}[what]
    raise typer.Exit(status.show(listing, ask(where), as_json))


@app.command(
    epilog="Examples:\n\n  wormholectl flows -c shop.toml\n\n  wormholectl flows -c zk1:2181/wormhole --json\n\n  wormholectl flows --publisher 127.0.0.1:7401"
)
@with_where
def flows(where: Where, as_json: AsJson = False) -> None:
    """List flows: state, place, datamarker, lag and credit of each."""
    _show("flows", where, as_json)


@app.command(epilog="Example:\n\n  wormholectl caravans -c shop.toml")
@with_where
def caravans(where: Where, as_json: AsJson = False) -> None:
    """List caravans: where each log reader is, how fast it reads, and which flows travel with it."""
    _show("caravans", where, as_json)


@app.command(epilog="Example:\n\n  wormholectl subscribers -c shop.toml")
@with_where
def subscribers(where: Where, as_json: AsJson = False) -> None:
    """List subscribers: address, connection and number of flows of each."""
    _show("subscribers", where, as_json)
