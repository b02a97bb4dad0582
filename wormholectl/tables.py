"""``wormholectl snapshot`` and ``wormholectl history``: tables as Parquet, out of the archive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.archive import ArchiveAt, Dataset
from wormholectl.guard import needs
from wormholectl.options import Archives, AsJson
from wormholectl.show.printer import SCHEMA, print_json, print_table, print_text, say_waiting

if TYPE_CHECKING:
    from spark_replay.tables.folder import Written
    from spark_replay.tables.selection import TableOptions
    from wormhole.config import DatasetConfig

__all__ = ["Request", "app"]

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
"""  # noqa: E501
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
    given = (tuple(one or ()) for one in (archives, tables, types, fields))
    _write(coordinator, Request(to, dataset, None, until, master, *given), as_json)


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
    given = (tuple(one or ()) for one in (archives, tables, types, fields))
    _write(coordinator, Request(to, dataset, start, until, master, *given), as_json)


@dataclass(frozen=True, slots=True)
class Request:
    """The options. ``start``: of a history; ``None``: a snapshot. ``archives``: that may be read though only ZooKeeper
    names them. ``types`` and ``fields``: ``TABLE:NAME=TYPE``.
    """

    to: str
    dataset: str
    start: str | None
    until: str
    master: str
    archives: tuple[str, ...]
    tables: tuple[str, ...]
    types: tuple[str, ...]
    fields: tuple[str, ...]


@needs("spark")
def _write(coordinator: str, request: Request, as_json: bool) -> None:
    """Write a snapshot or a history and show what was written. All that can be wrong with the request is reported
    before Spark starts.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    from spark_replay.spark.session import check_spark, spark_session

    check_spark()
    from spark_replay.archive.store import store_of
    from spark_replay.replay.plan import asked_from, asked_until
    from spark_replay.tables.history import write_history
    from spark_replay.tables.snapshot import write_snapshot
    from wormholectl.archive_choice import archived, check_formats

    now_us = time.time_ns() // 1000
    selection = archived(coordinator, request.dataset, request.archives)
    store = store_of(selection.config, selection.name)
    dataset = selection.config.datasets[selection.name]
    until = asked_until(request.until, now_us)
    readings = _readings(dataset, request)
    if selection.stored:
        check_formats(selection.name, (one.value_format for one in readings.values()))
    to = request.to if "://" in request.to else str(Path(request.to).absolute())
    now = datetime.fromtimestamp(now_us / 1e6, UTC)
    start = None if request.start is None else asked_from(request.start or "earliest", "", now_us)
    say_waiting("starting Spark")
    spark = spark_session(f"wormhole tables of {dataset.name}", request.master or None)
    if start is None:
        written = write_snapshot(spark, store, to, tables=request.tables, readings=readings, until=until, now=now)
    else:
        written = write_history(
            spark, store, to, tables=request.tables, readings=readings, start=start, until=until, now=now
        )
    _show(written, dataset.name, as_json)


def _readings(dataset: DatasetConfig, request: Request) -> dict[str, TableOptions]:
    from spark_replay.tables.selection import TableOptions

    types, fields = _named("--type", request.types), _named("--field", request.fields)
    return {
        table: TableOptions(
            types.get(table, {}), fields.get(table, {}), dataset.values.get(table, dataset.value_format)
        )
        for table in {*types, *fields}
    }


def _named(option: str, given: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for text in given:
        table, _, rest = text.partition(":")
        name, _, kind = rest.partition("=")
        if not (table and name and kind):
            raise UsageError(
                f"{option} {text} must be TABLE:NAME=TYPE", hint=f"for example {option} shop.orders:price=text"
            )
        found.setdefault(table, {})[name] = kind
    return found


def _show(written: Written, dataset: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "dataset": dataset,
                "to": written.to,
                "tables": [
                    {"table": table, "folder": one.folder, "rows": one.rows} for table, one in written.tables.items()
                ],
                "shards": [{"shard": shard, "place": place} for shard, place in written.places.items()],
                "left_out": [{"table": table, "because": why} for table, why in written.left_out.items()],
                "problems": list(written.problems),
            }
        )
        return
    rows = [(table, str(one.rows), f"{written.to}/{one.folder}") for table, one in written.tables.items()]
    print_table(("TABLE", "ROWS", "FOLDER"), rows, "no table was written")
    for shard, place in written.places.items():
        print_text(f"{shard} up to {place}")
    for table, why in written.left_out.items():
        print_text(f"left out: {table}: {why}")
    if written.problems:
        print_text(f"no start for a replay: {'; '.join(written.problems)}")
