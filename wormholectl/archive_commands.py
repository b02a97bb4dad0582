"""The noun ``archive``: every update of a dataset, kept as Parquet."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from wormholectl.options import Archives, AsJson
from wormholectl.run_commands import LogLevel

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Keep every update as Parquet, and look after what is kept.")

ArchiveAt = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar="WORMHOLE_COORDINATOR",
        metavar="ZK:PORT/ROOT|FILE.toml",
        help="Where the configuration is that names the archive.",
    ),
]
Dataset = Annotated[
    str, typer.Argument(metavar="[DATASET]", help="Whose archive; may be left out where only one has one.")
]
Shards = Annotated[
    list[str] | None, typer.Option("--shard", metavar="SHARD", help="Only this one; repeatable.", show_default=False)
]

_SHOW: Final = "Examples:\n\n  wormholectl archive show -c shop.toml\n\n  wormholectl archive show orders --shard db1 --files -c zk1:2181/wormhole --archive s3://lake/orders"


@app.command(epilog=_SHOW)
def show(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    files: Annotated[bool, typer.Option("--files", help="Every data file too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an archive holds: per shard from where to where, in places and in time."""
    from wormholectl.archive_listing import show

    show(coordinator, dataset, archives or [], shard or [], files, as_json)


@app.command(
    epilog="Examples:\n\n  wormholectl archive verify -c shop.toml\n\n  wormholectl archive verify --deep --json"
)
def verify(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every row: order, counts and checksum.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether an archive is whole: no hole, no overlap, every file there and as its manifest says. Exit code 1 when not."""
    from wormholectl.archive_listing import verify

    raise typer.Exit(verify(coordinator, dataset, archives or [], shard or [], deep, as_json))


@app.command(
    epilog="Examples:\n\n  wormholectl archive expire -c shop.toml --dry-run\n\n  wormholectl archive expire -c shop.toml"
)
def expire(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let go what is older than `keep`, and delete files that nothing has named for a day. Meant to be run daily."""
    from wormholectl.archive_listing import expire

    expire(coordinator, dataset, archives or [], shard or [], dry_run, as_json)


@app.command(
    epilog="Examples:\n\n  wormholectl archive run -c shop.toml\n\n  wormholectl archive run orders -c zk1:2181/wormhole --archive s3://lake/orders --http 127.0.0.1:9102"
)
def run(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    http: Annotated[
        str,
        typer.Option("--http", metavar="HOST:PORT", help="Answer `/metrics` here.", show_default=False),
    ] = "",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Where the log lost a range, note the hole in the archive and go on after it."
        ),
    ] = False,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="How much to say on standard error.")
    ] = LogLevel.INFO,
) -> None:
    """Keep every update of a dataset as Parquet, until SIGTERM or Ctrl-C. Several at a time share the shards."""
    from wormholectl.archiving import run

    run(dataset, coordinator, archives or [], http, accept_loss, log_level.value)


@app.command(
    epilog="Examples:\n\n  wormholectl archive compact -c shop.toml --dry-run\n\n  wormholectl archive compact orders --target 256MiB --master spark://s1:7077 -c zk1:2181/wormhole --archive s3://lake/orders"
)
def compact(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    target: Annotated[
        str,
        typer.Option("--target", metavar="SIZE", help="Of a merged file, about; 128MiB.", show_default=False),
    ] = "",
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's; else spark-submit's, else local[*].")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be merged.")] = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files that adjoin, by Spark, while the archiver writes and others read. Exit code 1 when some could not be."""
    from wormholectl.compacting import compact

    raise typer.Exit(compact(coordinator, dataset, archives or [], shard or [], target, master, dry_run, as_json))
