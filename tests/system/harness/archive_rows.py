"""What an archive holds, update by update, as its readers get it."""

from __future__ import annotations

from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore
from wormhole.model.segment import Segment
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.update import Batch, Update


def rows(store: ArchiveStore, shard: str, name: str) -> list[Update]:
    """Every update of one data file of a shard, in its order."""
    with DataFile(store.open_data(shard, name), name) as file:
        return [update for segment in file.segments() for update in updates(segment, shard)]


def updates(segment: Segment, shard: str) -> list[Update]:
    """Every update of a segment."""
    found: list[Update] = []
    for run in segment.runs.values():
        body = build_body(run, segment.end.incarnation)
        assert body is not None
        by_id = {schema.id: schema for schema in run.schemas}
        found += Batch(parse_body(body.data), shard, 1, False, by_id.__getitem__).updates()
    return found
