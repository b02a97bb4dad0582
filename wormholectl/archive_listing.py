"""What an archive holds, whether it is whole, and what goes from it: as tables and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from wormhole.model.errors import UsageError
from wormholectl.archiving import Archived, archived
from wormholectl.guard import BROKEN, lazily
from wormholectl.output import print_json, print_progress, print_table, print_text, size, span
from wormholectl.render import SCHEMA

if TYPE_CHECKING:
    from spark_replay.archive.coverage import Coverage, Span
    from spark_replay.archive.manifest import FileEntry, Manifest
    from spark_replay.archive.store import ArchiveStore

__all__ = ["expire", "show", "verify"]

_SPANS: Final = ("SHARD", "FROM", "TO", "SINCE", "UNTIL", "UPDATES", "SIZE", "FILES", "BEFORE IT")
_FILES: Final = ("SHARD", "FILE", "FROM", "TO", "SINCE", "UNTIL", "UPDATES", "SIZE")


def _opened(chosen: Archived) -> ArchiveStore:
    store: ArchiveStore = lazily("spark_replay.archive.store", "archive").store_of(chosen.config, chosen.name)
    return store


def _about(store: ArchiveStore) -> dict[str, Any]:
    return {"schema": SCHEMA, "dataset": store.dataset, "copy": store.copy, "to": store.to}


def show(
    coordinator: str, dataset: str, archives: Sequence[str], shards: Sequence[str], files: bool, as_json: bool
) -> None:
    """Print what is held of ``shards``, all when empty; with ``files`` each data file. Raises :class:`~wormhole.model.errors.WormholeError`."""
    store = _opened(archived(coordinator, dataset, archives))
    covered = lazily("spark_replay.archive.coverage", "archive").coverage
    manifests = [manifest for shard in store.chosen(shards) if (manifest := store.read(shard)) is not None]
    if as_json:
        print_json({**_about(store), "shards": [_shard_object(one, covered(one), files) for one in manifests]})
        return
    if files:
        print_table(_FILES, [_file_row(one.shard, file) for one in manifests for file in one.files], "no files yet")
        return
    rows = [row for one in manifests for row in _span_rows(covered(one))]
    print_table(_SPANS, rows, f"nothing is archived in {store.to} yet")


def _span_rows(held: Coverage) -> list[Sequence[str]]:
    before = {loss.resume.order: loss.message for loss in held.losses}
    before[held.spans[0].begin.order] = "nothing: the log began here" if held.whole else "not archived"
    return [
        (
            held.shard,
            str(one.begin.order),
            str(one.end.order),
            _instant(one.first_us),
            _instant(one.last_us),
            f"{one.rows:,}",
            size(one.bytes),
            f"{one.files:,}",
            before.get(one.begin.order, ""),
        )
        for one in held.spans
    ]


def _file_row(shard: str, one: FileEntry) -> Sequence[str]:
    places = (str(one.begin.order), str(one.end.order))
    return (shard, one.name, *places, _instant(one.first_us), _instant(one.last_us), f"{one.rows:,}", size(one.bytes))


def _instant(at_us: int) -> str:
    """As `wormholectl replay --from` takes it: in UTC, and saying so."""
    try:
        return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}" if at_us else "-"
    except (ValueError, OverflowError, OSError):  # whoever wrote it counted in something else
        return f"{at_us} us"


def _time(at_us: int) -> str | None:
    if not at_us:
        return None
    try:
        return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def _shard_object(manifest: Manifest, held: Coverage, files: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "shard": held.shard,
        "version": manifest.version,
        "epoch": manifest.epoch,
        "whole": held.whole,
        "spans": [{**_span_object(one), "files": one.files} for one in held.spans],
        "losses": [{"resume": str(loss.resume.order), "message": loss.message} for loss in held.losses],
    }
    if files:
        found["files"] = [{"name": one.name, **_span_object(one), "merged": one.merged} for one in manifest.files]
    return found


def _span_object(one: Span | FileEntry) -> dict[str, Any]:
    return {
        "begin": str(one.begin.order),
        "end": str(one.end.order),
        "first_at": _time(one.first_us),
        "last_at": _time(one.last_us),
        "updates": one.rows,
        "bytes": one.bytes,
    }


def verify(
    coordinator: str, dataset: str, archives: Sequence[str], shards: Sequence[str], deep: bool, as_json: bool
) -> int:
    """Print what is wrong with ``shards``, all when empty. Returns the exit code. Raises :class:`~wormhole.model.errors.WormholeError`."""
    store = _opened(archived(coordinator, dataset, archives))

    def told(shard: str, done: int, of: int) -> None:
        print_progress(f"{shard}: file {done + 1:,} of {of:,}")

    report = lazily("spark_replay.archive.verify", "archive").verify(store, shards, deep, told)
    print_progress("")
    if as_json:
        problems = [{"shard": one.shard, "file": one.file or None, "problem": one.text} for one in report.problems]
        counts = {"files": report.files, "updates": report.rows, "bytes": report.bytes, "unnamed": report.unnamed}
        counts |= {"manifests_without_checksum": report.unsealed, "files_without_checksums": report.unsummed}
        print_json({**_about(store), "deep": deep, "shards": report.shards, **counts, "problems": problems})
    else:
        rows = [(one.shard, one.file or "-", one.text) for one in report.problems]
        looked = f"{_counted(report.shards, 'shard')}, {_counted(report.files, 'file')}, {report.rows:,} updates, {size(report.bytes)}"
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
    return BROKEN if report.problems else 0


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def expire(
    coordinator: str, dataset: str, archives: Sequence[str], shards: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    """Run retention over ``shards``, all when empty, and print what it did. Raises :class:`~wormhole.model.errors.WormholeError`."""
    chosen = archived(coordinator, dataset, archives)
    store = _opened(chosen)
    settings = chosen.config.datasets[chosen.name].archive
    assert settings is not None  # else there would be no store
    if chosen.stored and settings.keep is not None:
        raise UsageError(
            f"updates of dataset {chosen.name} are to be kept {span(settings.keep)}: only ZooKeeper says how long, and others may write there",
            hint=f"give -c FILE, a configuration with keep under [datasets.{chosen.name}.archive]: what is deleted does not come back",
        )
    retention = lazily("spark_replay.archive.retention", "archive")
    found = retention.expire(store, settings.keep, int(time.time()), shards, dry_run)
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
        print_json({**_about(store), "dry_run": dry_run, "keep_s": settings.keep, "shards": objects})
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
