"""What an archive holds and what was merged in it, as rows and as objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wormholectl.show.printer import SCHEMA, size

if TYPE_CHECKING:
    from spark_replay.archive.compact import Merged
    from spark_replay.archive.coverage import Coverage, Span
    from spark_replay.archive.manifest import FileEntry, Manifest
    from spark_replay.archive.store import ArchiveStore

__all__ = ["about", "file_row", "merged_object", "merged_row", "shard_object", "span_rows"]


def about(store: ArchiveStore) -> dict[str, Any]:
    """Which archive it is: the first fields of every object."""
    return {"schema": SCHEMA, "dataset": store.dataset, "copy": store.copy, "to": store.to}


def span_rows(held: Coverage) -> list[Sequence[str]]:
    """The spans that are held of one shard."""
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


def file_row(shard: str, one: FileEntry) -> Sequence[str]:
    """One data file."""
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


def merged_row(one: Merged) -> Sequence[str]:
    """What became of one group of small files."""
    if one.state == "failed":
        text = one.problem + (f"; next: {one.hint}" if one.hint else "")
    else:
        text = "" if one.state == "merged" else "left alone: another writer was first"
    return (one.shard, f"{one.files:,}", size(one.before), size(one.after) if one.after else "-", text)


def merged_object(one: Merged) -> dict[str, Any]:
    """The same for programs."""
    found: dict[str, Any] = {"shard": one.shard, "files": one.files, "bytes_before": one.before, "state": one.state}
    if one.state == "merged":
        found["bytes_after"] = one.after
    if one.problem:
        found |= {"problem": one.problem, "next": one.hint}
    return found
