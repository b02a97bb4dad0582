"""The noun ``archive``: every update of a dataset, kept as Parquet."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.errors import needs
from wormholectl.shared.options import (
    Archives,
    AsJson,
    Dataset,
    DryRun,
    LogLevel,
    LogLevelOption,
    Master,
    coordinator_at,
    now,
    parsed,
)
from wormholectl.show.printer import print_json, print_progress, say_waiting, span

if TYPE_CHECKING:
    from spark_replay.archive.store import ArchiveStore

__all__ = ["ArchiveAt", "app"]

app = typer.Typer(no_args_is_help=True, help="Keep every update as Parquet, and look after what is kept.")

ArchiveAt = Annotated[str, coordinator_at("Where the configuration is that names the archive.")]
Shards = Annotated[
    list[str] | None, typer.Option("--shard", metavar="SHARD", help="Only this one; repeatable.", show_default=False)
]


@app.command(
    epilog="Examples:\n\n  wormholectl archive show -c shop.toml\n\n  wormholectl archive show orders --shard db1 "
    "--files -c zk1:2181/wormhole --archive s3://lake/orders"
)
@needs("archive")
def show(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    files: Annotated[bool, typer.Option("--files", help="Every data file too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the range of an archive for each shard, in positions and in time."""
    from spark_replay.archive.coverage import coverage
    from spark_replay.archive.newest_snapshot import needed_from
    from spark_replay.commands.show_archive import (
        about,
        shard_object,
        show_files,
        show_snapshot,
        show_spans,
        snapshot_object,
    )

    store = _store(coordinator, dataset, archives)
    # Only one manifest is in memory at a time, because each may name tens of thousands of files.
    manifests = (manifest for shard in store.chosen(shard or []) if (manifest := store.read(shard)) is not None)
    noted, needed = needed_from(store)
    if as_json:
        shards = [shard_object(one, coverage(one), files) for one in manifests]
        print_json({**about(store), "shards": shards, "newest_snapshot": snapshot_object(noted, bool(needed))})
    elif files:
        show_files(manifests)
    else:
        show_spans(store, [coverage(one) for one in manifests])
        show_snapshot(noted, bool(needed))


@app.command(
    epilog="Examples:\n\n  wormholectl archive verify -c shop.toml\n\n  wormholectl archive verify --deep --json"
)
@needs("archive")
def verify(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every row: order, counts and checksum.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Open no data file: compare manifests, names and sizes only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify that an archive is whole: no hole, no overlap, every file there and as its manifest records.

    Exit code 1 when it is not.
    """
    from spark_replay.archive.verify import verify as verify_archive
    from spark_replay.commands.show_archive import about, report_object, show_report

    if deep and quick:
        raise UsageError("--deep and --quick exclude each other", hint="give one of them, or neither")
    store = _store(coordinator, dataset, archives)

    def progress(name: str, done: int, of: int) -> None:
        print_progress(f"{name}: file {done + 1:,} of {of:,}")

    report = verify_archive(store, shard or [], deep, progress, quick=quick)
    print_progress("")
    if as_json:
        print_json({**about(store), "deep": deep, "quick": quick, **report_object(report)})
    else:
        show_report(report, deep, quick)
    if report.problems:
        raise typer.Exit(BROKEN)


@app.command(
    epilog="Examples:\n\n  wormholectl archive expire -c shop.toml --dry-run\n\n  wormholectl archive expire -c "
    "shop.toml"
)
@needs("archive")
def expire(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    ignore_snapshot: Annotated[
        bool,
        typer.Option(
            "--ignore-snapshot", help="Drop also what the next `snapshot --from` needs, and end these for good."
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop updates older than `keep`, and delete files that no manifest has named for a day. Run it daily.

    What the next `wormholectl snapshot --from` needs stays until that snapshot is made.
    """
    from spark_replay.archive import retention
    from spark_replay.archive.choice import archived
    from spark_replay.archive.newest_snapshot import needed_from
    from spark_replay.archive.store import store_of
    from spark_replay.commands.show_archive import about, expired_object, show_expired

    chosen = archived(coordinator, dataset, archives or [])
    store = store_of(chosen.config, chosen.name)
    settings = chosen.config.datasets[chosen.name].archive
    assert settings is not None  # else there would be no store
    if chosen.stored and settings.keep is not None:
        raise UsageError(
            f"updates of dataset {chosen.name} are to be kept {span(settings.keep)}: only ZooKeeper records how long, "
            "and others may write there",
            hint=f"give -c FILE, a configuration with keep under [datasets.{chosen.name}.archive]: deleted updates "
            "cannot be restored",
            code="untrusted-setting",
        )
    noted, needed = (None, {}) if ignore_snapshot else needed_from(store)
    found = retention.expire(store, settings.keep, int(now()), shard or [], dry_run, needed)
    if as_json:
        shards = [expired_object(one) for one in found]
        print_json({**about(store), "dry_run": dry_run, "keep_s": settings.keep, "shards": shards})
    else:
        show_expired(store, found, settings.keep, dry_run, noted)


@app.command(
    epilog="Examples:\n\n  wormholectl archive run -c shop.toml\n\n  wormholectl archive run orders -c "
    "zk1:2181/wormhole --archive s3://lake/orders --http 127.0.0.1:9102"
)
@needs("archive")
def run(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Answer `/metrics` here.", show_default=False)
    ] = "",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Where the log lost a range, record the hole in the archive and continue after it."
        ),
    ] = False,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Keep every update of a dataset as Parquet, until SIGTERM or Ctrl-C. Several at a time share the shards."""
    from spark_replay.archive.choice import archived
    from wormhole.host import logs

    logs.configure(log_level.value)
    if http:
        with needs("monitor"):
            import aiohttp  # noqa: F401
    # pyarrow reads this variable at import. Its own allocator would keep memory that the process could use.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from spark_replay.archive import run as archiver

    chosen = archived(coordinator, dataset, archives or [])
    archiver.run(chosen.config, chosen.name, coordinator, http=http, accept_loss=accept_loss)


@app.command(
    epilog="Examples:\n\n  wormholectl archive compact -c shop.toml --dry-run\n\n  wormholectl archive compact orders "
    "--target 256MiB --master spark://s1:7077 -c zk1:2181/wormhole --archive s3://lake/orders"
)
@needs("spark")
def compact(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    target: Annotated[
        str, typer.Option("--target", metavar="SIZE", help="Of a merged file, about; 128MiB.", show_default=False)
    ] = "",
    master: Master = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small adjacent files, by Spark, while the archiver writes and others read.

    Exit code 1 when some could not be merged.
    """
    from spark_replay.archive import compact as small_files
    from spark_replay.commands import show_archive as shown
    from spark_replay.spark import session

    target_bytes = _bytes(target) if target else small_files.TARGET_BYTES
    if not dry_run:
        session.check_spark()
    store = _store(coordinator, dataset, archives)
    groups = small_files.planned(store, shard or [], target_bytes)
    if dry_run:
        shown.show_planned(store, groups, as_json)
        return
    done = []
    if groups:  # without groups Spark is not needed
        say_waiting("starting Spark")
        spark = session.spark_session("wormhole archive compact", master or None)
        done = small_files.compact(spark, store, groups)
    shown.show_merged(store, done, as_json)
    if any(one.state == "failed" for one in done):
        raise typer.Exit(BROKEN)


def _bytes(text: str) -> int:
    from wormhole.model.units import parse_size

    found = parsed(parse_size, "--target", text, "128MiB")
    if found <= 0:
        raise UsageError(f"--target {text}: no file is that small", hint="for example --target 128MiB")
    return found


def _store(coordinator: str, dataset: str, archives: list[str] | None) -> "ArchiveStore":
    from spark_replay.archive.choice import archived
    from spark_replay.archive.store import store_of

    chosen = archived(coordinator, dataset, archives or [])
    return store_of(chosen.config, chosen.name)
