"""``wormholectl export``: a dataset's tables as Delta or Iceberg tables, carried on from the archive."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spark_replay.commands.archive import ArchiveAt
from spark_replay.commands.show_export import show_exported
from spark_replay.commands.tables import Tables, Types, Until, by_table
from wormhole.model.errors import Retryable, UsageError
from wormholectl.shared.errors import exit_code, message, needs
from wormholectl.shared.options import Archives, AsJson, Dataset, DryRun, Master, absolute, duration, grouped, now
from wormholectl.show.printer import print_text, say_waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_replay.archive.ranges import Asked
    from spark_replay.archive.store import ArchiveStore
    from spark_replay.export.exporter import ExportStart, Result
    from spark_replay.export.job import ChangedRows, Work
    from spark_replay.export.port import OpenTable

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Carry a dataset's tables on as Delta or Iceberg tables.")

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="SNAPSHOT",
        help="The folder of a snapshot, or a baseline, from which tables begin that are not there yet.",
        show_default=False,
    ),
]
Every = Annotated[
    str,
    typer.Option("--every", metavar="SPAN", help="Again and again, with this pause; else once.", show_default=False),
]
_DELTA: Final = """Examples:

  wormholectl export delta orders --to /data/lake -c shop.toml

  wormholectl export delta orders --to s3://lake/orders -t shop.orders --type 'shop.orders:price=decimal(18,2)' -c shop.toml

  wormholectl export delta orders --to /data/lake --every 60s -c shop.toml
"""  # noqa: E501
_ICEBERG: Final = """Examples:

  wormholectl export iceberg orders --catalog lake -c shop.toml

  wormholectl export iceberg orders --catalog lake --property type=rest --property uri=https://catalog:8181 -c shop.toml

  wormholectl export iceberg orders --catalog lake --every 5m -c shop.toml
"""


@dataclass
class Export:
    """The common part of both commands."""

    store: "ArchiveStore"
    tables: tuple[str, ...]
    types: Mapping[str, Mapping[str, str]]
    until: "Asked"
    start: "ExportStart | None"
    every_s: float
    master: str
    _spark: "list[SparkSession]" = field(default_factory=list)

    def run(self, opened: "Callable[[str], OpenTable]", dry: bool, as_json: bool) -> None:
        """Export once, or repeatedly. In the latter case errors that pass are printed, and other errors end it."""
        from spark_replay.export.exporter import Exporter
        from wormhole.host.clock import SYSTEM_CLOCK

        exporter = Exporter(self.store, opened, self._job, self.tables, self.types, self.until, self.start, dry)
        while True:
            try:
                found = exporter.run()
            except Retryable as error:
                if not self.every_s:
                    raise
                print_text(message(error), error=True)
            else:
                show_exported(found, self.store.dataset, dry, as_json)
                self._stop_at(found)
            if not self.every_s:
                return
            SYSTEM_CLOCK.pause(self.every_s)

    def _stop_at(self, found: "Sequence[Result]") -> None:
        problems = [one.problem for one in found if one.problem is not None and one.did != "left_out"]
        for text in dict.fromkeys(map(message, problems)):  # all tables may have the same cause
            print_text(text, error=True)
        lasting = [one for one in problems if not (self.every_s and isinstance(one, Retryable))]
        if lasting:
            raise typer.Exit(min(map(exit_code, lasting)))

    def _job(self, work: "Work") -> "ChangedRows":
        from spark_replay.export.job import run

        if not self._spark:
            from spark_replay.spark.session import spark_session

            say_waiting("starting Spark")
            self._spark.append(spark_session(f"wormhole export of {self.store.dataset}", self.master or None))
        say_waiting(f"writing {work.table}")
        return run(self._spark[0], work)


def _export(
    dataset: str | None,
    coordinator: str | None,
    archives: list[str] | None,
    tables: list[str] | None,
    until: str | None,
    types: list[str] | None,
    start: str | None,
    every: str | None,
    master: str | None,
) -> Export:
    """The checked request. Starts nothing. Raises :class:`~wormhole.model.errors.WormholeError`."""
    with needs("spark"):
        from spark_replay.spark.session import check_spark

        check_spark()
        from spark_replay.archive.choice import archived
        from spark_replay.archive.ranges import asked_until
        from spark_replay.archive.store import store_of
        from spark_replay.export.exporter import start_from

    until_asked = asked_until(until or "", round(now() * 1e6))
    every_s = duration("--every", every) if every else 0.0
    if every and not every_s:
        raise UsageError(f"--every {every}: without a pause it never rests", hint="for example --every 60s")
    if every and until:
        raise UsageError("--until ends at one place: --every does not go with it", hint="leave one of them out")
    typed = by_table("--type", types or ())
    chosen = archived(coordinator or "", dataset or "", archives or ())
    store = store_of(chosen.config, chosen.name)
    begin = start_from(absolute(start), store) if start else None
    return Export(store, tuple(tables or ()), typed, until_asked, begin, every_s, master or "")


with_export = grouped(
    "export",
    {
        "dataset": Dataset,
        "coordinator": ArchiveAt,
        "archives": Archives,
        "tables": Tables,
        "until": Until,
        "types": Types,
        "start": From,
        "every": Every,
        "master": Master,
    },
    _export,
)


@app.command(epilog=_DELTA)
@with_export
def delta(
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER", help="Has a folder for each table; or s3://bucket/folder.")
    ],
    export: Export,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Carry tables on as Delta tables: each run is one commit of each table that changed."""
    with needs("delta"):
        from spark_replay.export.delta import OpenDeltaTable

    place, store = absolute(to), export.store
    export.run(lambda table: OpenDeltaTable(place, store.dataset, store.copy, table), dry_run, as_json)


@app.command(epilog=_ICEBERG)
@with_export
def iceberg(
    catalog: Annotated[
        str, typer.Option("--catalog", metavar="NAME", help="A catalogue of pyiceberg's configuration, or a new name.")
    ],
    export: Export,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="Of the catalogue: type, uri, warehouse, ...", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Carry tables on as Iceberg tables of a catalogue: each run is one snapshot of each table that changed."""
    given = {}
    for text in properties or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--property {text} must be NAME=VALUE", hint="for example --property type=rest")
        given[name] = value
    with needs("iceberg"):
        from spark_replay.export.iceberg import OpenIcebergTable, open_catalogue

    opened, store = open_catalogue(catalog, given), export.store
    export.run(lambda table: OpenIcebergTable(opened, store.dataset, store.copy, table), dry_run, as_json)
