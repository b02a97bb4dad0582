"""Finds the newest schema of each table, which is the schema of its last row by place in the log over all shards.

Places of two logs cannot be compared. A table that several logs have (one server each) has a newest schema in each log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import U64
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import END, DataFile, open_file, upto
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from wormhole.model.schema import Schema

__all__ = ["LogSchema", "Newest", "newest_schemas"]

_COLUMNS: Final = ("schema_id",)


@dataclass(frozen=True, slots=True)
class LogSchema:
    """A table's newest schema in one log. ``place``: the archive's place of the last row with it. If the table
    never had another schema, ``place`` is any place before that row.
    """

    schema: Schema
    place: bytes


Newest = Mapping[str, Mapping[str, LogSchema]]
"""The newest schemas by table, then by log."""


def newest_schemas(
    store: ArchiveStore,
    ranges: Sequence[ShardFiles],
    log_of: Mapping[str, str],
    schemas: Mapping[int, Schema],
    before: Newest | None = None,
) -> dict[str, dict[str, LogSchema]]:
    """The newest schemas of the rows in ``ranges`` and of the schemas ``before`` them.

    A TRUNCATE is ignored, because its schema has no columns. ``log_of``: log by shard. ``schemas``: the schemas of the
    rows, by id. The last row is read only for tables with more than one schema, and in as few row groups as possible.
    Raises :class:`~wormhole.model.errors.ArchiveError`.
    """
    found = {table: dict(logs) for table, logs in (before or {}).items()}
    known = {id_: schema for id_, schema in schemas.items() if schema.columns}
    several = _with_several(known, found)
    for one in ranges:
        for table, last in _of_shard(store, one, known, several).items():
            logs = found.setdefault(table, {})
            kept = logs.get(log_of[one.shard])
            if kept is None or kept.place < last.place:
                logs[log_of[one.shard]] = last
    return found


def _with_several(known: Mapping[int, Schema], before: Newest) -> frozenset[str]:
    by_table: dict[str, set[int]] = {}
    for schema in (*known.values(), *(one.schema for logs in before.values() for one in logs.values())):
        by_table.setdefault(schema.table, set()).add(schema.id)
    return frozenset(table for table, ids in by_table.items() if len(ids) > 1)


def _of_shard(
    store: ArchiveStore, one: ShardFiles, known: Mapping[int, Schema], several: Collection[str]
) -> dict[str, LogSchema]:
    found: dict[str, LogSchema] = {}
    low, high = one.bounds
    for entry in reversed(one.files):
        here = {known[id_].table for id_ in _ids(entry) if id_ in known} - found.keys()
        for id_ in _ids(entry):
            if id_ in known and (table := known[id_].table) in here and table not in several:
                found[table] = LogSchema(known[id_], max(low, upto(entry.begin)))
        if wanted := here & set(several):
            with open_file(store, one.shard, entry) as file:
                found.update(_in_file(file, low, high, wanted, known))
    return found


def _ids(entry: FileEntry) -> list[int]:
    return [int(text, 16) for text in entry.schemas]


def _in_file(
    file: DataFile, low: bytes, high: bytes, wanted: Collection[str], known: Mapping[int, Schema]
) -> dict[str, LogSchema]:
    """The last row of each of these tables. Reads row groups from the last one backwards."""
    found: dict[str, LogSchema] = {}
    ends = [b"", *(last for _, last in file.spans()[:-1]), END]
    for after, until in reversed(list(pairwise(ends))):
        if len(found) == len(wanted):
            break
        last: dict[str, LogSchema] = {}
        for batch in file.batches(max(after, low), min(until, high), _COLUMNS):
            last.update((schema.table, LogSchema(schema, place)) for place, schema in _lasts(batch, known))
        found = {**{table: one for table, one in last.items() if table in wanted}, **found}
    return found


def _lasts(batch: pa.RecordBatch, known: Mapping[int, Schema]) -> Iterator[tuple[bytes, Schema]]:
    """The last row of each schema with columns, ascending by place."""
    at = pa.array(range(batch.num_rows), pa.int64())
    rows = pa.table({"id": batch.column("schema_id"), "at": at})
    last = rows.group_by("id").aggregate([("at", "max")])
    places = batch.column("place")
    for row in last.take(pc.sort_indices(last.column("at_max"))).to_pylist():
        schema = known.get(row["id"] & U64)
        if schema is not None:
            yield places[row["at_max"]].as_py(), schema
