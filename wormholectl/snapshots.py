"""``wormholectl snapshot`` and ``wormholectl history``: tables as Parquet, out of the archive."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.archive import ArchiveAt
from wormholectl.errors import needs
from wormholectl.options import Archives, AsJson, Dataset, Master, now
from wormholectl.show.printer import print_json, print_table, print_text, say_waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_replay.archive.store import ArchiveStore
    from spark_replay.tables.folder import Written

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
@needs("spark")
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
    from spark_replay.tables.snapshot import write_snapshot

    store, given = _given(coordinator, dataset, archives, tables, types, fields, until)
    _show(write_snapshot(_spark(store, master), store, _absolute(to), **given), store.dataset, as_json)


@app.command(epilog=_HISTORY)
@needs("spark")
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
    """Write every version of every row into Parquet, with the beginning and the end of each."""
    from spark_replay.replay.plan import asked_from
    from spark_replay.tables.history import write_history

    store, given = _given(coordinator, dataset, archives, tables, types, fields, until)
    given["start"] = asked_from(start, "", round(now() * 1e6))
    _show(write_history(_spark(store, master), store, _absolute(to), **given), store.dataset, as_json)


def _given(
    coordinator: str,
    dataset: str,
    archives: list[str] | None,
    tables: list[str] | None,
    types: list[str] | None,
    fields: list[str] | None,
    until: str,
) -> "tuple[ArchiveStore, dict[str, Any]]":
    """The archive, and what a snapshot and a history have in common. Nothing is started for a wrong request.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    from spark_replay.spark.session import check_spark

    check_spark()
    from spark_replay.archive.store import store_of
    from spark_replay.replay.plan import asked_until
    from spark_replay.tables.selection import TableOptions
    from wormholectl.archive_choice import archived, check_formats

    now_us = round(now() * 1e6)
    chosen = archived(coordinator, dataset, archives or ())
    store, settings = store_of(chosen.config, chosen.name), chosen.config.datasets[chosen.name]
    typed, named = _by_table("--type", types or ()), _by_table("--field", fields or ())
    readings = {
        table: TableOptions(
            typed.get(table, {}), named.get(table, {}), settings.values.get(table, settings.value_format)
        )
        for table in {*typed, *named}
    }
    if chosen.stored:
        check_formats(chosen.name, (one.value_format for one in readings.values()))
    given = {"until": asked_until(until, now_us), "now": datetime.fromtimestamp(now_us / 1e6, UTC)}
    return store, {"tables": tuple(tables or ()), "readings": readings, **given}


def _by_table(option: str, given: Sequence[str]) -> dict[str, dict[str, str]]:
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


def _spark(store: "ArchiveStore", master: str) -> "SparkSession":
    from spark_replay.spark.session import spark_session

    say_waiting("starting Spark")
    return spark_session(f"wormhole tables of {store.dataset}", master or None)


def _absolute(to: str) -> str:
    return to if "://" in to else str(Path(to).absolute())


def _show(written: "Written", dataset: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
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
