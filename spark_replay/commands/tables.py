"""``wormholectl snapshot`` and ``wormholectl history``: tables as Parquet, out of the archive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spark_replay.commands.archive import ArchiveAt
from wormhole.model.errors import UsageError
from wormholectl.shared.errors import needs
from wormholectl.shared.options import Archives, AsJson, Dataset, Master, absolute, grouped, now
from wormholectl.show.printer import say_waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_replay.archive.choice import ArchivedLog
    from spark_replay.archive.store import ArchiveStore
    from spark_replay.tables.folder import Written

__all__ = ["Tables", "Types", "Until", "app", "by_table"]

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

  wormholectl snapshot orders --to /data/snapshots/may -c shop.toml

  wormholectl snapshot orders --to /data/snapshots/june --from /data/snapshots/may -c shop.toml

  wormholectl snapshot orders --baseline --to /data/snapshots/first -c shop.toml

  wormholectl snapshot orders --to s3://lake/orders --until 2026-05-01T00:00:00Z -t shop.orders --type 'shop.orders:price=decimal(18,2)' -c shop.toml

  wormholectl snapshot cache --to /data/cache --field default:customer.city=text -c shop.toml
"""  # noqa: E501
_HISTORY: Final = """Examples:

  wormholectl history orders --to /data/history -c shop.toml

  wormholectl history orders --to /data/may -t shop.orders --from 2026-05-01 --until 2026-06-01 -c shop.toml
"""


@dataclass(frozen=True, slots=True)
class AskedTables:
    """The common part of ``snapshot`` and ``history``. ``given``: the arguments of the functions that write tables. A
    baseline does not take ``until``.
    """

    chosen: "ArchivedLog"
    store: "ArchiveStore"
    master: str
    given: dict[str, Any]

    def write(self, write: "Callable[..., Written]", to: str, as_json: bool, **more: Any) -> None:
        """Start Spark, write the tables into the folder ``to`` and print what was written."""
        from spark_replay.commands.show_tables import show_written

        spark = self._spark()
        show_written(write(spark, self.store, absolute(to), **self.given, **more), self.store.dataset, as_json)

    def write_baseline(self, to: str, as_json: bool) -> None:
        """Start Spark, write a baseline into the folder ``to`` and print what was written."""
        from spark_replay.baseline.baseline import write_baseline
        from spark_replay.baseline.log_archives import PATIENCE_S, ScanPace
        from spark_replay.commands.baselines import table_logs
        from spark_replay.commands.show_tables import show_written

        settings = self.chosen.config.datasets[self.chosen.name].archive
        assert settings is not None  # else there would be no store
        logs = table_logs(self.chosen, self.store.copy, local=True)  # errors are reported before Spark starts
        spark = self._spark()
        if not (spark.sparkContext.master or "").startswith("local"):
            logs = table_logs(self.chosen, self.store.copy, local=False)
        pace = ScanPace(patience_s=max(PATIENCE_S, 3 * settings.flush_every), say=say_waiting)
        given = {name: value for name, value in self.given.items() if name != "until"}
        written = write_baseline(spark, self.store, absolute(to), logs, **given, pace=pace)
        show_written(written, self.store.dataset, as_json)

    def _spark(self) -> "SparkSession":
        from spark_replay.spark.session import spark_session

        say_waiting("starting Spark")
        return spark_session(f"wormhole tables of {self.store.dataset}", self.master or None)


def _selected(
    dataset: str | None,
    coordinator: str | None,
    archives: list[str] | None,
    tables: list[str] | None,
    until: str | None,
    types: list[str] | None,
    fields: list[str] | None,
    master: str | None,
) -> AskedTables:
    """The checked request. Starts nothing. Raises :class:`~wormhole.model.errors.WormholeError`."""
    from spark_replay.spark.session import check_spark

    check_spark()
    from spark_replay.archive.choice import archived, check_formats
    from spark_replay.archive.ranges import asked_until
    from spark_replay.archive.store import store_of
    from spark_replay.tables.selection import TableOptions

    now_us = round(now() * 1e6)
    chosen = archived(coordinator or "", dataset or "", archives or ())
    store, settings = store_of(chosen.config, chosen.name), chosen.config.datasets[chosen.name]
    typed, named = by_table("--type", types or ()), by_table("--field", fields or ())
    readings = {
        table: TableOptions(
            typed.get(table, {}), named.get(table, {}), settings.values.get(table, settings.value_format)
        )
        for table in {*typed, *named}
    }
    if chosen.stored:
        check_formats(chosen.name, (one.value_format for one in readings.values()))
    given = {"until": asked_until(until or "", now_us), "now": datetime.fromtimestamp(now_us / 1e6, UTC)}
    return AskedTables(chosen, store, master or "", {"tables": tuple(tables or ()), "readings": readings, **given})


def by_table(option: str, given: Sequence[str]) -> dict[str, dict[str, str]]:
    """``TABLE:NAME=TYPE`` as types by table and name. Raises :class:`~wormhole.model.errors.UsageError`."""
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


with_selection = grouped(
    "selection",
    {
        "dataset": Dataset,
        "coordinator": ArchiveAt,
        "archives": Archives,
        "tables": Tables,
        "until": Until,
        "types": Types,
        "fields": Fields,
        "master": Master,
    },
    _selected,
)


@app.command(epilog=_SNAPSHOT)
@needs("spark")
@with_selection
def snapshot(
    to: To,
    selection: AskedTables,
    previous: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PREVIOUS",
            help="The folder of an earlier snapshot: of the archive only what comes after it is read.",
            show_default=False,
        ),
    ] = "",
    baseline: Annotated[
        bool,
        typer.Option("--baseline", help="Read the tables' existing rows too: for an archive that began after them."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a dataset's tables as they are, or were, into Parquet."""
    from spark_replay.archive.ranges import Asked
    from spark_replay.tables.snapshot import write_snapshot

    if baseline:
        if previous or selection.given["until"] != Asked():
            raise UsageError(
                "--baseline reads the tables as they are now: neither --from nor --until goes with it",
                hint="leave it out where an earlier snapshot is whole, or leave the others out",
            )
        selection.write_baseline(to, as_json)
        return
    selection.write(write_snapshot, to, as_json, previous=absolute(previous))


@app.command(epilog=_HISTORY)
@needs("spark")
@with_selection
def history(
    to: To,
    selection: AskedTables,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE|TIME", help="Else all that the archive holds.")
    ] = "earliest",
    as_json: AsJson = False,
) -> None:
    """Write every version of every row into Parquet, with the beginning and the end of each."""
    from spark_replay.archive.ranges import asked_from
    from spark_replay.tables.history import write_history

    selection.write(write_history, to, as_json, start=asked_from(start, "", round(now() * 1e6)))
