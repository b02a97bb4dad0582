"""Shows the content of an archive, and the results of verify, expire and compact, as tables and as objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from spark_replay.archive.compact import Group, Merged
from spark_replay.archive.coverage import Coverage, Span
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.newest_snapshot import NewestSnapshot
from spark_replay.archive.retention import GRACE_S, Expired
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import VerifyReport
from wormholectl.show.printer import counted, print_json, print_table, print_text, size, span

__all__ = [
    "about",
    "expired_object",
    "report_object",
    "shard_object",
    "show_expired",
    "show_files",
    "show_merged",
    "show_planned",
    "show_report",
    "show_snapshot",
    "show_spans",
    "snapshot_object",
]

_UNCHANGED: Final = "nothing was changed (--dry-run)"


def about(store: ArchiveStore) -> dict[str, Any]:
    """The first fields of every object, which identify the archive."""
    return {"dataset": store.dataset, "copy": store.copy, "to": store.to}


def show_spans(store: ArchiveStore, shards: Sequence[Coverage]) -> None:
    """A table of the spans of each shard."""
    columns = ("SHARD", "FROM", "TO", "SINCE", "UNTIL", "UPDATES", "SIZE", "FILES", "BEFORE IT")
    rows = [row for held in shards for row in _span_rows(held)]
    print_table(columns, rows, f"nothing is archived in {store.to} yet")


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


def show_snapshot(noted: NewestSnapshot | None, continues: bool) -> None:
    """The newest snapshot, if one is known."""
    if noted is None:
        return
    places = ", ".join(f"{shard} up to {place}" for shard, place in noted.places.items())
    print_text(f"newest snapshot: {noted.to} of {noted.created}: {places}")
    if not continues:
        print_text("no further snapshot can begin from it: the archive lacks the log after some of these places")


def snapshot_object(noted: NewestSnapshot | None, continues: bool) -> dict[str, Any] | None:
    """The newest snapshot for programs; ``None``: none is known."""
    if noted is None:
        return None
    shards = [{"shard": shard, "place": str(place)} for shard, place in noted.places.items()]
    return {"to": noted.to, "created": noted.created, "continues": continues, "shards": shards}


def show_files(manifests: Iterable[Manifest]) -> None:
    """A table of data files."""
    rows = [
        (
            one.shard,
            file.name,
            str(file.begin.order),
            str(file.end.order),
            _instant(file.first_us),
            _instant(file.last_us),
            f"{file.rows:,}",
            size(file.bytes),
        )
        for one in manifests
        for file in one.files
    ]
    print_table(("SHARD", "FILE", "FROM", "TO", "SINCE", "UNTIL", "UPDATES", "SIZE"), rows, "no files yet")


def _instant(at_us: int) -> str:
    """A time in the form for `wormholectl replay --from`: in UTC, with the zone."""
    try:
        return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}" if at_us else "-"
    except (ValueError, OverflowError, OSError):  # written in another unit
        return f"{at_us} us"


def _time(at_us: int) -> str | None:
    if not at_us:
        return None
    try:
        return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def shard_object(manifest: Manifest, held: Coverage, files: bool) -> dict[str, Any]:
    """One shard for programs, with its data files where ``files``."""
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


def report_object(report: VerifyReport) -> dict[str, Any]:
    """The result of a verification, for programs."""
    return {
        "shards": report.shards,
        "files": report.files,
        "updates": report.rows,
        "bytes": report.bytes,
        "unnamed": report.unnamed,
        "problems": [{"shard": one.shard, "file": one.file or None, "problem": one.text} for one in report.problems],
    }


def show_report(report: VerifyReport, deep: bool, quick: bool) -> None:
    """Show a table of problems, or the extent of the verification; then a note for the operator."""
    rows = [(one.shard, one.file or "-", one.text) for one in report.problems]
    verified = (
        f"{counted(report.shards, 'shard')}, {counted(report.files, 'file')}, {report.rows:,} updates, "
        f"{size(report.bytes)}"
    )
    how = "every row read" if deep else "by manifests and footers; --deep reads every row"
    if quick:
        how = "by manifests, names and sizes; without --quick footers are read too"
    print_table(("SHARD", "FILE", "PROBLEM"), rows, f"whole: {verified} ({how})")
    if report.unnamed:
        print_text(
            f"{counted(report.unnamed, 'file')} named by no manifest: `wormholectl archive expire` deletes in time"
        )


def expired_object(one: Expired) -> dict[str, Any]:
    """The expired files of one shard, for programs."""
    return {
        "shard": one.shard,
        "dropped": [file.name for file in one.dropped],
        "deleted": [file.name for file in one.deleted],
        "deleted_bytes": sum(file.bytes for file in one.deleted),
        "waiting": [file.name for file in one.waiting],
        "needed": [file.name for file in one.needed],
    }


def show_expired(
    store: ArchiveStore,
    shards: Sequence[Expired],
    keep_s: float | None,
    dry_run: bool,
    noted: NewestSnapshot | None = None,
) -> None:
    """Show a table of shards, then the updates that the snapshot after the ``noted`` one needs, then the rules."""
    rows = [
        (
            one.shard,
            f"{len(one.dropped):,}",
            f"{len(one.deleted):,}",
            size(sum(file.bytes for file in one.deleted)),
            f"{len(one.waiting):,}",
        )
        for one in shards
    ]
    print_table(("SHARD", "TOO OLD", "DELETED", "FREED", "WAITING"), rows, f"nothing is archived in {store.to} yet")
    needed = [one for one in shards if one.needed]
    if needed and noted is not None:
        files = ", ".join(f"{counted(len(one.needed), 'file')} of {one.shard}" for one in needed)
        print_text(
            f"too old, and kept for the next snapshot: {files}; next: `wormholectl snapshot {store.dataset} --from "
            f"{noted.to} --to NEW`, then run this again; or --ignore-snapshot, after which no snapshot has all rows"
        )
    kept = "for ever" if keep_s is None else f"for {span(keep_s)}"
    print_text(f"updates are kept {kept}; files stay {span(GRACE_S)} after nothing names them any more")
    if dry_run:
        print_text(_UNCHANGED)


def show_planned(store: ArchiveStore, groups: Sequence[Group], as_json: bool) -> None:
    """The groups of small files that would be merged."""
    if as_json:
        found = [{"shard": one.shard, "files": len(one.files), "bytes_before": one.bytes} for one in groups]
        print_json({**about(store), "dry_run": True, "groups": found})
        return
    rows = [(one.shard, f"{len(one.files):,}", size(one.bytes)) for one in groups]
    print_table(("SHARD", "FILES", "SIZE"), rows, _NOTHING_TO_MERGE)
    print_text(_UNCHANGED)


def show_merged(store: ArchiveStore, groups: Sequence[Merged], as_json: bool) -> None:
    """The result of merging each group of small files."""
    if as_json:
        print_json({**about(store), "dry_run": False, "groups": [_merged_object(one) for one in groups]})
        return
    print_table(("SHARD", "FILES", "BEFORE", "AFTER", ""), [_merged_row(one) for one in groups], _NOTHING_TO_MERGE)
    if groups:
        print_text("the merged files stay until `wormholectl archive expire` has found them unnamed for a day")


_NOTHING_TO_MERGE: Final = "nothing to merge: no small files adjoin"


def _merged_row(one: Merged) -> Sequence[str]:
    if one.state == "failed":
        text = one.problem + (f"; next: {one.hint}" if one.hint else "")
    else:
        text = "" if one.state == "merged" else "left alone: another writer was first"
    return (one.shard, f"{one.files:,}", size(one.before), size(one.after) if one.after else "-", text)


def _merged_object(one: Merged) -> dict[str, Any]:
    found: dict[str, Any] = {"shard": one.shard, "files": one.files, "bytes_before": one.before, "state": one.state}
    if one.state == "merged":
        found["bytes_after"] = one.after
    if one.problem:
        found |= {"problem": one.problem, "next": one.hint}
    return found
