"""Removes old snapshots of an Iceberg table, and the files that only they use.

Each export adds a snapshot, and a table's metadata lists all its snapshots. Properties of the Iceberg specification
decide how long snapshots stay: ``history.expire.max-snapshot-age-ms``, here a day if it is not set, and
``history.expire.min-snapshots-to-keep``, here ten.

Files are deleted after the commit that removes the snapshots. They are listed in ``_wormhole/expired`` before this
commit, so that the next run deletes the files that a killed run left.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.properties import property_as_int

from spark_replay.archive.storage import storage_errors
from spark_replay.export.places import NOTES, places_path, write_note

__all__ = ["expirable", "expire", "without_parent"]

_AGE_MS: Final = 86_400_000
_LEAST: Final = 10
_BATCH: Final = 10
"""The least snapshots that expire at a time, because each time the manifests of the oldest kept snapshot are read."""


def expirable(table: Table, ours: Collection[int], now_ms: int) -> list[Snapshot]:
    """The snapshots that are older than the table's properties permit, oldest first.

    Snapshots that a branch or a tag names are kept. So is the last one of ``ours``, because it has the table's places.
    """
    age_ms = property_as_int(table.properties, "history.expire.max-snapshot-age-ms", _AGE_MS) or 0
    least = property_as_int(table.properties, "history.expire.min-snapshots-to-keep", _LEAST) or 1
    by_age = sorted(table.snapshots(), key=lambda one: one.timestamp_ms)
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    last = next((one.snapshot_id for one in reversed(by_age) if one.snapshot_id in ours), None)
    old = [one for one in by_age[: max(0, len(by_age) - least)] if one.timestamp_ms < now_ms - age_ms]
    return [one for one in old if one.snapshot_id not in named and one.snapshot_id != last]


def expire(
    table: Table, filesystem: fs.FileSystem, root: str, location: str, runs: dict[int, str], now_ms: int
) -> None:
    """Remove old snapshots with their files. ``root`` and ``location``: the table's folder in the file system and in
    its metadata. ``runs``: the run that made each snapshot of ours.
    """
    _finish(table, filesystem, root)
    old = expirable(table, runs.keys(), now_ms)
    if len(old) < _BATCH:
        return
    gone = {one.snapshot_id for one in old}
    # If a snapshot no longer has a file, no later snapshot has it.
    oldest = without_parent([one for one in table.snapshots() if one.snapshot_id not in gone])
    unused = _files(table, old) - _files(table, oldest)
    paths = [root + one.removeprefix(location) for one in sorted(unused) if one.startswith(f"{location}/")]
    paths += [places_path(root, runs[one]) for one in sorted(gone & runs.keys())]
    note = f"{root}/{NOTES}/expired/{secrets.token_hex(8)}.json"
    write_note(filesystem, note, json.dumps({"snapshots": sorted(gone), "files": paths}).encode())
    with contextlib.suppress(CommitFailedException):  # the next run finds that the snapshots still exist
        table.maintenance.expire_snapshots().by_ids(sorted(gone)).commit()
    _finish(table.refresh(), filesystem, root)


def without_parent(kept: Sequence[Snapshot]) -> list[Snapshot]:
    """The kept snapshots whose parents are not kept.

    A snapshot may also have the number of a parent that another engine removed long ago.
    """
    numbers = {one.snapshot_id for one in kept}
    return [one for one in kept if one.parent_snapshot_id not in numbers]


def _finish(table: Table, filesystem: fs.FileSystem, root: str) -> None:
    """Delete the files of each list whose snapshots are gone, then the list.

    If its snapshots still exist, the removal was not committed, and only the list is deleted.
    """
    known = {one.snapshot_id for one in table.snapshots()}
    folder = f"{root}/{NOTES}/expired"
    with storage_errors("delete", folder):
        for note in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
            with contextlib.suppress(FileNotFoundError):
                for path in _listed(filesystem, note.path, known):
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.delete_file(path)
                filesystem.delete_file(note.path)


def _listed(filesystem: fs.FileSystem, note: str, known: Collection[int]) -> Sequence[str]:
    with filesystem.open_input_stream(note) as source:
        try:
            given = json.loads(source.read())
            return () if set(given["snapshots"]) & set(known) else [str(path) for path in given["files"]]
        except (ValueError, KeyError, TypeError):
            return ()  # its writer was killed before the commit


def _files(table: Table, snapshots: Sequence[Snapshot]) -> set[str]:
    return {file for snapshot in snapshots for file in _of(table, snapshot)}


def _of(table: Table, snapshot: Snapshot) -> Iterator[str]:
    if snapshot.manifest_list:
        yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        yield manifest.manifest_path
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path
