"""The noun ``archive``: every update of a dataset, kept as Parquet."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.guard import BROKEN, needs
from wormholectl.options import Archives, AsJson, LogLevel
from wormholectl.show.printer import print_json, print_progress, print_table, print_text, say_waiting, size, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_replay.archive.store import ArchiveStore
    from wormholectl.archive_choice import Archived

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

_SPANS: Final = ("SHARD", "FROM", "TO", "SINCE", "UNTIL", "UPDATES", "SIZE", "FILES", "BEFORE IT")
_FILES: Final = ("SHARD", "FILE", "FROM", "TO", "SINCE", "UNTIL", "UPDATES", "SIZE")
_PLANNED: Final = ("SHARD", "FILES", "SIZE")
_DONE: Final = ("SHARD", "FILES", "BEFORE", "AFTER", "")
_SHOW: Final = (
    "Examples:\n\n  wormholectl archive show -c shop.toml\n\n  wormholectl archive show orders --shard db1 --files "
    "-c zk1:2181/wormhole --archive s3://lake/orders"
)


@app.command(epilog=_SHOW)
@needs("archive")
def show(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    files: Annotated[bool, typer.Option("--files", help="Every data file too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an archive holds: per shard from where to where, in places and in time."""
    from spark_replay.archive.coverage import coverage
    from wormholectl.archive_choice import archived
    from wormholectl.show.archives import about, file_row, shard_object, span_rows

    store = _opened(archived(coordinator, dataset, archives or []))
    manifests = [manifest for shard in store.chosen(shard or []) if (manifest := store.read(shard)) is not None]
    if as_json:
        print_json({**about(store), "shards": [shard_object(one, coverage(one), files) for one in manifests]})
        return
    if files:
        print_table(_FILES, [file_row(one.shard, file) for one in manifests for file in one.files], "no files yet")
        return
    rows = [row for one in manifests for row in span_rows(coverage(one))]
    print_table(_SPANS, rows, f"nothing is archived in {store.to} yet")


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
    as_json: AsJson = False,
) -> None:
    """Say whether an archive is whole: no hole, no overlap, every file there and as its manifest says.

    Exit code 1 when not.
    """
    from spark_replay.archive.verify import verify as verify_archive
    from wormholectl.archive_choice import archived
    from wormholectl.show.archives import about

    store = _opened(archived(coordinator, dataset, archives or []))

    def progress(name: str, done: int, of: int) -> None:
        print_progress(f"{name}: file {done + 1:,} of {of:,}")

    report = verify_archive(store, shard or [], deep, progress)
    print_progress("")
    if as_json:
        problems = [{"shard": one.shard, "file": one.file or None, "problem": one.text} for one in report.problems]
        counts = {"files": report.files, "updates": report.rows, "bytes": report.bytes, "unnamed": report.unnamed}
        counts |= {"manifests_without_checksum": report.unsealed, "files_without_checksums": report.unsummed}
        print_json({**about(store), "deep": deep, "shards": report.shards, **counts, "problems": problems})
    else:
        rows = [(one.shard, one.file or "-", one.text) for one in report.problems]
        looked = (
            f"{_counted(report.shards, 'shard')}, {_counted(report.files, 'file')}, {report.rows:,} updates, "
            f"{size(report.bytes)}"
        )
        how = "every row read" if deep else "by manifests and footers; --deep reads every row"
        print_table(("SHARD", "FILE", "PROBLEM"), rows, f"whole: {looked} ({how})")
        if report.unnamed:
            print_text(
                f"{_counted(report.unnamed, 'file')} named by no manifest: `wormholectl archive expire` deletes in time"
            )
        if report.unsealed:
            print_text(
                f"{_counted(report.unsealed, 'manifest')} of an earlier release without a checksum: "
                "the shard's next commit writes one that has it"
            )
        if report.unsummed:
            print_text(
                f"{_counted(report.unsummed, 'file')} of an earlier release without checksums of all bytes: "
                "pages and footer alone are compared; "
                "`wormholectl archive compact` writes small ones anew"
            )
    if report.problems:
        raise typer.Exit(BROKEN)


@app.command(
    epilog=(
        "Examples:\n\n  wormholectl archive expire -c shop.toml --dry-run\n\n  wormholectl archive expire -c shop.toml"
    )
)
@needs("archive")
def expire(
    dataset: Dataset = "",
    coordinator: ArchiveAt = "",
    archives: Archives = None,
    shard: Shards = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let go what is older than `keep`, and delete files that nothing has named for a day. Meant to be run daily."""
    from spark_replay.archive import retention
    from wormholectl.archive_choice import archived
    from wormholectl.show.archives import about

    chosen = archived(coordinator, dataset, archives or [])
    store = _opened(chosen)
    settings = chosen.config.datasets[chosen.name].archive
    assert settings is not None  # else there would be no store
    if chosen.stored and settings.keep is not None:
        raise UsageError(
            (
                f"updates of dataset {chosen.name} are to be kept {span(settings.keep)}: only ZooKeeper says how long, "
                "and others may write there"
            ),
            hint=(
                f"give -c FILE, a configuration with keep under [datasets.{chosen.name}.archive]: what is deleted "
                "does not come back"
            ),
        )
    found = retention.expire(store, settings.keep, int(time.time()), shard or [], dry_run)
    if as_json:
        objects = [
            {
                "shard": one.shard,
                "dropped": [file.name for file in one.dropped],
                "deleted": [file.name for file in one.deleted],
                "deleted_bytes": sum(file.bytes for file in one.deleted),
                "waiting": [file.name for file in one.waiting],
            }
            for one in found
        ]
        print_json({**about(store), "dry_run": dry_run, "keep_s": settings.keep, "shards": objects})
        return
    columns = ("SHARD", "TOO OLD", "DELETED", "FREED", "WAITING")
    rows = [
        (
            one.shard,
            f"{len(one.dropped):,}",
            f"{len(one.deleted):,}",
            size(sum(file.bytes for file in one.deleted)),
            f"{len(one.waiting):,}",
        )
        for one in found
    ]
    print_table(columns, rows, f"nothing is archived in {store.to} yet")
    kept = "for ever" if settings.keep is None else f"for {span(settings.keep)}"
    print_text(f"updates are kept {kept}; files stay {span(retention.GRACE_S)} after nothing names them any more")
    if dry_run:
        print_text("nothing was changed (--dry-run)")


@app.command(
    epilog=(
        "Examples:\n\n  wormholectl archive run -c shop.toml\n\n  wormholectl archive run orders -c "
        "zk1:2181/wormhole --archive s3://lake/orders --http 127.0.0.1:9102"
    )
)
@needs("archive")
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
    from wormhole.host import logs
    from wormholectl.archive_choice import archived

    logs.configure(log_level.value)
    if http:
        with needs("monitor"):
            import aiohttp  # noqa: F401
    # pyarrow looks when it is imported: with an allocator of its own it keeps what the rest of the process could use.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from spark_replay.archive import run as archiver

    chosen = archived(coordinator, dataset, archives or [])
    archiver.run(chosen.config, chosen.name, coordinator, http=http, accept_loss=accept_loss)


@app.command(
    epilog=(
        "Examples:\n\n  wormholectl archive compact -c shop.toml --dry-run\n\n  wormholectl archive compact orders "
        "--target 256MiB --master spark://s1:7077 -c zk1:2181/wormhole --archive s3://lake/orders"
    )
)
@needs("spark")
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
    """Merge small files that adjoin, by Spark, while the archiver writes and others read.

    Exit code 1 when some could not be.
    """
    from spark_replay.archive import compact as small_files
    from spark_replay.spark import session
    from wormholectl.archive_choice import archived
    from wormholectl.show.archives import about, merged_object, merged_row

    target_bytes = _bytes(target) if target else small_files.TARGET_BYTES
    if not dry_run:
        session.check_spark()
    chosen = archived(coordinator, dataset, archives or [])
    store = _opened(chosen)
    groups = small_files.planned(store, shard or [], target_bytes)
    of = {**about(store), "dry_run": dry_run}
    if dry_run:
        found = [{"shard": one.shard, "files": len(one.files), "bytes_before": one.bytes} for one in groups]
        rows = [(one.shard, f"{len(one.files):,}", size(one.bytes)) for one in groups]
        _show_groups(as_json, {**of, "groups": found}, _PLANNED, rows)
        return
    # Without anything to do there is no reason to wait for Spark.
    if groups:
        say_waiting("starting Spark")
    done = (
        small_files.compact(session.spark_session("wormhole archive compact", master or None), store, groups)
        if groups
        else []
    )
    _show_groups(
        as_json, {**of, "groups": [merged_object(one) for one in done]}, _DONE, [merged_row(one) for one in done]
    )
    if any(one.state == "failed" for one in done):
        raise typer.Exit(BROKEN)


def _bytes(text: str) -> int:
    from wormhole.config import parse_size

    try:
        found = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--target {text}: {error}", hint="for example --target 128MiB") from None
    if found <= 0:
        raise UsageError(f"--target {text}: nothing fits into that", hint="for example --target 128MiB")
    return found


def _show_groups(
    as_json: bool, given: dict[str, object], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    if as_json:
        print_json(given)
        return
    print_table(columns, rows, "nothing to merge: no small files adjoin")
    if given["dry_run"]:
        print_text("nothing was changed (--dry-run)")
    elif rows:
        print_text("the merged files stay until `wormholectl archive expire` has seen them unnamed for a day")


def _opened(chosen: Archived) -> ArchiveStore:
    from spark_replay.archive.store import store_of

    return store_of(chosen.config, chosen.name)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
