"""``wormholectl audit``: whether everything that was archived was delivered and processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.options import Archives, AsJson, with_where

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Exit codes: 0 nothing is lost, 1 something is, 2 the request is wrong, 3 unreachable.

Examples:

  wormholectl audit --app cache -c shop.toml

  wormholectl audit --app cache --since 1d --json -c zk1:2181/wormhole --archive s3://lake/shop

  wormholectl audit --app cache --parquet audit.parquet -c shop.toml
"""


@app.command(epilog=_EXAMPLES)
@with_where
def audit(
    where: Where,
    application: Annotated[str, typer.Option("--app", metavar="APP", help="The application.", show_default=False)],
    archives: Archives = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only so far back, 2h or 3d, or from a time on.")
    ] = "7d",
    parquet: Annotated[str, typer.Option("--parquet", metavar="FILE", help="Write the windows to this file too.")] = "",
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's; else spark-submit's, else local[*].")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Compare what was archived with what was delivered and processed, by windows of ten minutes; say which updates are lost."""
    from wormholectl.auditing import audit

    raise typer.Exit(audit(where, application, archives or (), since, parquet, master, as_json))
