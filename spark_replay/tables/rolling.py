"""Selects the archive's updates after a previous snapshot, for the next one, or refuses with the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_replay.archive.manifest import Manifest
from spark_replay.archive.ranges import Asked, files_between, held
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.tables.about import SnapshotAbout, SnapshotShard
from spark_replay.tables.newest import newest_schemas
from spark_replay.tables.selection import EARLIEST, LATEST, TableSelection, ordered_schemas, shard_range
from wormhole.model.errors import ReplayError

__all__ = ["ANEW", "lost_after", "select_since"]

ANEW: Final = (
    "name another snapshot with --from; without --from it is made of the archive alone, which has to begin at the "
    "first row of each shard"
)


def select_since(
    store: ArchiveStore, previous: SnapshotAbout, named: str, stop: Asked = LATEST, hint: str = ANEW
) -> TableSelection:
    """The archive's updates after ``previous`` and up to ``stop``, with the schemas of both.

    ``named``: the name of ``previous`` in messages. ``hint``: the next step in errors.

    Raises :class:`~wormhole.model.errors.ReplayError`, with every reason, if rows would be missing: the previous
    snapshot is not complete, has other shards or ends after ``stop``, or the archive does not continue from its end.
    """
    if previous.general:
        raise ReplayError(
            f"{named} is not complete: {'; '.join(previous.general)}", hint=hint, code="snapshot-unusable"
        )
    manifests = store.manifests()
    gone = sorted(previous.shards.keys() - manifests.keys())
    problems = [f"the archive has no shard {shard}, which {named} has" for shard in gone]
    ranges: list[ShardFiles] = []
    for shard, manifest in manifests.items():
        before = previous.shards.get(shard)
        if found := list(_problems(manifest, before, named)):
            problems += found
            continue
        begin = manifest.begin if before is None else before.marker
        until = shard_range(store, manifest, EARLIEST, stop).until
        assert until is not None
        if until.order < begin.order or _is_before(stop, manifest):
            problems.append(f"{named} holds {shard} up to {begin.order}, which is after {stop.text}")
            continue
        files = files_between(manifest, begin, until)
        ranges.append(ShardFiles(shard, files, begin, until))
    if problems:
        raise ReplayError("; ".join(problems), hint=hint)
    return _selection(store, previous, ranges, manifests)


def _selection(
    store: ArchiveStore, previous: SnapshotAbout, ranges: list[ShardFiles], manifests: dict[str, Manifest]
) -> TableSelection:
    by_id = schemas_of(store, ranges)
    log_of = {shard: manifest.log for shard, manifest in manifests.items()}
    before = {table: one.newest for table, one in previous.tables.items()}
    newest = newest_schemas(store, ranges, log_of, by_id, before)
    schemas = {one.id: one for one in (*previous.schemas, *ordered_schemas(by_id, ranges, {}))}
    last = {one.schema.id: one.schema for logs in newest.values() for _, one in sorted(logs.items())}
    ordered = (*(one for id_, one in schemas.items() if id_ not in last), *last.values())
    whole = frozenset(one.shard for one in ranges if not lost_after(manifests[one.shard], one))
    return TableSelection(tuple(ranges), manifests, whole, ordered, newest)


def _problems(manifest: Manifest, before: SnapshotShard | None, named: str) -> Iterator[str]:
    shard = manifest.shard
    if before is None:
        if not manifest.whole:
            yield (
                f"shard {shard} is not in {named}, and its archive begins at {manifest.begin.order}, not "
                "at its first row"
            )
    elif before.log != manifest.log:
        yield f"shard {shard} was of log {before.log} in {named}, and is of {manifest.log} now"
    elif not manifest.begin.order <= before.marker.order <= manifest.end.order:
        yield f"the archive does not go on where {named} ends, {before.marker.order}: {held(manifest)}"


def _is_before(stop: Asked, manifest: Manifest) -> bool:
    """Whether ``stop`` is before the beginning of the archive, whose earlier files retention removed."""
    if manifest.whole:
        return False
    begin = manifest.begin
    return (stop.place is not None and stop.place < begin.order) or (
        stop.at_us is not None and stop.at_us < begin.committed_at_us
    )


def lost_after(manifest: Manifest, range_: ShardFiles) -> str:
    """The reason why rows of a range may be missing: the archive lost a part of it. Empty if it did not."""
    assert range_.begin is not None
    assert range_.until is not None
    lost = [one for one in manifest.losses if range_.begin.order < one.resume.order <= range_.until.order]
    return f"the archive of {manifest.shard} lacks what is before {lost[0].resume.order}" if lost else ""
