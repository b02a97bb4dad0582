"""``wormholectl snapshot`` and ``wormholectl history``: tables as Parquet, out of the archive."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from wormholectl.archive_commands import ArchiveAt, Dataset
from wormholectl.options import Archives, AsJson

__all__ = ["app"]

app = typer.Typer()

To = Annotated[
    str,
    typer.Option("--to", metavar="FOLDER", help="A new folder, or s3://bucket/folder, hdfs://host:port/folder."),
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", "-t", metavar="TABLE", help="Only this one; repeatable.", show_default=False),
]
Until = Annotated[
    str,
    typer.Option("--until", metavar="PLACE|TIME", help="As of a place, a time or a span ago; else the archive's end."),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TABLE:COLUMN=TYPE",
        help="What a column is to be: decimal(18,2), text, ...",
        show_default=False,
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field", metavar="TABLE:PATH=TYPE", help="A named field of a store's values as a column.", show_default=False
    ),
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Spark's; else spark-submit's, else local[*].")]

_SNAPSHOT: Final = """Examples:

  wormholectl snapshot orders --to /data/snapshots/today -c shop.toml

  wormholectl snapshot orders --to s3://lake/orders --until 2026-05-01T00:00:00Z -t shop.orders --type 'shop.orders:price=decimal(18,2)' -c shop.toml

  wormholectl snapshot cache --to /data/cache --field default:customer.city=text -c shop.toml
"""
_HISTORY: Final = """Examples:

  wormholectl history orders --to /data/history -c shop.toml

  wormholectl history orders --to /data/may -t shop.orders --from 2026-05-01 --until 2026-06-01 -c shop.toml
"""


@app.command(epilog=_SNAPSHOT)
def snapshot(
    to: To,
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    tables: Tables = None,
    until: Until = "",
    types: Types = None,
    fields: Fields = None,
    master: Master = "",
    as_json: AsJson = False,
) -> None:
    """Write a dataset's tables as they are, or were, into Parquet."""
    from wormholectl import tabling

    asking = tabling.Asking(
        to,
        dataset,
        tuple(archives or ()),
        tuple(tables or ()),
        "",
        until,
        tuple(types or ()),
        tuple(fields or ()),
        master,
    )
    tabling.snapshot(coordinator, asking, as_json)


@app.command(epilog=_HISTORY)
def history(
    to: To,
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    tables: Tables = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE|TIME", help="Else all that the archive holds.")
    ] = "earliest",
    until: Until = "",
    types: Types = None,
    fields: Fields = None,
    master: Master = "",
    as_json: AsJson = False,
) -> None:
    """Write every version of every row into Parquet: from where to where it was so, and what ended it."""
    from wormholectl import tabling

    asking = tabling.Asking(
        to,
        dataset,
        tuple(archives or ()),
        tuple(tables or ()),
        start,
        until,
        tuple(types or ()),
        tuple(fields or ()),
        master,
    )
    tabling.history(coordinator, asking, as_json)
