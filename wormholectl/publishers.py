"""The nouns that only list what publishers report: ``publishers``, ``shards``, ``caravans``, ``subscribers``."""

import typer

from wormholectl.options import AsJson, Where, with_where

__all__ = ["app"]

app = typer.Typer()


def _show(what: str, where: Where, as_json: bool) -> None:
    from wormhole.admin.admin_service import ask
    from wormholectl.show import lists, publishers

    raise typer.Exit(lists.show(getattr(publishers, what.upper()), ask(where), as_json))


@app.command(
    epilog="Examples:\n\n  wormholectl publishers -c shop.toml\n\n  wormholectl publishers -c zk1:2181/wormhole --json"
)
@with_where
def publishers(where: Where, as_json: AsJson = False) -> None:
    """List publishers: host, version, contact with the coordinator, end and growth of the log."""
    _show("publishers", where, as_json)


@app.command(epilog="Example:\n\n  wormholectl shards -c shop.toml")
@with_where
def shards(where: Where, as_json: AsJson = False) -> None:
    """List shards: the publisher that owns each, its applications, and how far the last of them is behind."""
    _show("shards", where, as_json)


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
