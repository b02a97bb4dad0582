"""Counts what an archive holds as publishers count deliveries: by shard and window, the updates that a filter selects.

Nothing is shuffled: each task counts the rows that it reads, and its few sums are added.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_replay.archive.arrays import U64, signed
from spark_replay.archive.columns import place_bytes
from spark_replay.frames import ShardFiles, read, reading, schemas_of
from spark_replay.replay.pieces import Formats
from wormhole.audit.delivery_counts import Range, RangeKind
from wormhole.filters import Filter, RunView
from wormhole.model.position import LogPosition
from wormhole.model.reads import is_read_source
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.wire.rows import entry
from wormhole.wire.tally import Tally, added, tally_rows, update_hash, window_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_replay.archive.store import ArchiveStore

__all__ = ["Archived", "AuditPart", "AuditPlaces", "Selecting", "part_of", "tally", "which"]

_NEEDED: Final = ("shard", "place", "tx_source", "tx_number", "tx_index", "committed_at", "schema_id", "update")
_TALLIES: Final = "shard string, window bigint, part int, updates bigint, hash bigint, first binary, last binary"
_IDS: Final = "shard string, window bigint, hash bigint, id string"


class AuditPart(IntEnum):
    """The range of the delivery counts in which an update is."""

    COUNTED = 0
    """In a range that the counts cover."""
    UNAUDITED = 1
    """Before the counts began, or in a range that they do not cover."""
    PENDING = 2
    """After everything that was acknowledged: not delivered yet."""
    PARTIAL = 3
    """See :class:`~wormhole.audit.delivery_counts.RangeKind`."""
    REDELIVERED = 4
    """See :class:`~wormhole.audit.delivery_counts.RangeKind`."""


@dataclass(slots=True)
class Archived:
    """The archived updates of one window. ``first`` and ``last``: places of the first and the last counted update."""

    parts: dict[AuditPart, Tally] = field(default_factory=dict)
    first: bytes = b""
    last: bytes = b""

    def of(self, part: AuditPart) -> Tally:
        """The updates in this part."""
        return self.parts.get(part, Tally())


@dataclass(frozen=True, slots=True)
class AuditPlaces:
    """The ranges of a flow's delivery counts, as bounds of places: ``begins[i]`` <= place < ``ends[i]``, ascending and
    disjoint. ``parts[i]``: the part of each.
    """

    begins: tuple[bytes, ...] = ()
    ends: tuple[bytes, ...] = ()
    parts: tuple[AuditPart, ...] = ()

    @classmethod
    def of(cls, ranges: Mapping[RangeKind, Iterable[Range]]) -> AuditPlaces:
        """Build the places from ranges. A range that was both counted and partially replayed is ``COUNTED``."""
        bounds = {kind: [(_bound(begin), _bound(end)) for begin, end in ranges.get(kind, ())] for kind in RangeKind}
        edges = sorted({edge for some in bounds.values() for both in some for edge in both})
        found = []
        for begin, end in pairwise(edges):
            kinds = {kind for kind, some in bounds.items() if any(b <= begin and end <= e for b, e in some)}
            if RangeKind.COUNTED in kinds:
                found.append(
                    (begin, end, AuditPart.REDELIVERED if RangeKind.REDELIVERED in kinds else AuditPart.COUNTED)
                )
            elif RangeKind.PARTIAL in kinds:
                found.append((begin, end, AuditPart.PARTIAL))
        begins, ends, parts = (tuple(column) for column in zip(*found, strict=True)) if found else ((), (), ())
        return cls(begins, ends, parts)


def _bound(place: LogPosition) -> bytes:
    return place_bytes(place, True, 0)  # a transaction that begins there is after it


def part_of(place: bytes, places: AuditPlaces) -> AuditPart:
    """The part of an update at ``place``."""
    number = bisect_left(places.ends, place)
    if number < len(places.ends) and places.ends[number] == place:
        number += 1
    if number == len(places.ends):
        return AuditPart.PENDING if places.ends else AuditPart.UNAUDITED
    return places.parts[number] if places.begins[number] <= place else AuditPart.UNAUDITED


@dataclass(frozen=True)
class Selecting:
    """An application's filter, in a form that can be sent to executors."""

    where: str
    tables: tuple[str, ...]
    formats: Formats
    schemas: Mapping[int, bytes]

    def filter(self) -> Filter:
        """The filter as the publisher applies it."""
        return Filter.parse(self.where or None, self.tables, self.formats.open())


def tally(
    spark: SparkSession,
    store: ArchiveStore,
    chosen: Sequence[ShardFiles],
    selecting: Selecting,
    places: Mapping[str, AuditPlaces],
) -> dict[str, dict[int, Archived]]:
    """The archived updates by shard and window. Raises :class:`~wormhole.model.errors.ArchiveError` for a missing or
    damaged file."""
    job = _Tallying(_with_schemas(selecting, store, chosen), dict(places))
    found: dict[str, dict[int, Archived]] = {}
    for row in _collected(spark, store, chosen, job, _TALLIES):
        one = found.setdefault(row.shard, {}).setdefault(row.window, Archived())
        part = AuditPart(row.part)
        one.parts[part] = one.of(part).plus(Tally(row.updates, row.hash & U64))
        if part is AuditPart.COUNTED:
            first, last = bytes(row.first), bytes(row.last)
            one.first, one.last = min(one.first or first, first), max(one.last, last)
    return found


def which(
    spark: SparkSession,
    store: ArchiveStore,
    chosen: Sequence[ShardFiles],
    selecting: Selecting,
    hashes: Mapping[tuple[str, int], frozenset[int]],
) -> dict[tuple[str, int], dict[int, str]]:
    """The ids of the updates with these hashes, by shard and window, then by hash."""
    if not hashes:
        return {}
    job = _Finding(_with_schemas(selecting, store, chosen), dict(hashes))
    found: dict[tuple[str, int], dict[int, str]] = {}
    for row in _collected(spark, store, chosen, job, _IDS):
        found.setdefault((row.shard, row.window), {})[row.hash & U64] = row.id
    return found


def _with_schemas(selecting: Selecting, store: ArchiveStore, chosen: Sequence[ShardFiles]) -> Selecting:
    return replace(selecting, schemas={id_: one.canonical for id_, one in schemas_of(store, chosen).items()})


def _collected(
    spark: SparkSession, store: ArchiveStore, chosen: Sequence[ShardFiles], job: _Tallying | _Finding, result: str
) -> list[Any]:
    with reading():
        return read(spark, store, chosen, _NEEDED[1:]).select(*_NEEDED).mapInArrow(job, result).collect()


@dataclass(frozen=True, slots=True)
class _Row:
    shard: str
    place: bytes
    source: str
    number: int
    index: int
    committed_at_us: int


class _Selected:
    """Selects the rows of batches that pass the filter. Rows that a backfill read are left out, as in delivery
    counts.
    """

    def __init__(self, selecting: Selecting) -> None:
        self._filter = selecting.filter()
        self._schemas = {id_: Schema.from_canonical(canonical) for id_, canonical in selecting.schemas.items()}

    def rows(self, batch: pa.RecordBatch) -> Iterator[_Row]:
        columns = [batch.column(name) for name in _NEEDED[:5]]
        times = batch.column("committed_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        every = zip(*(column.to_pylist() for column in (*columns, times)), strict=True)
        kept = self._kept(batch)
        for ordinal, (shard, place, source, number, index, at) in enumerate(every):
            if (kept is None or ordinal in kept) and not is_read_source(source):
                yield _Row(shard, place, source, number, index, at or 0)

    def _kept(self, batch: pa.RecordBatch) -> frozenset[int] | None:
        if self._filter.matches_all:
            return None
        entries = [entry(update) for update in batch.column("update").to_pylist()]
        ids = [id_ & U64 for id_ in batch.column("schema_id").to_pylist()]
        order = {id_: number for number, id_ in enumerate(dict.fromkeys(ids))}
        ends, size = array("I"), 0
        for one in entries:
            size += len(one)
            ends.append(size)
        run = Run(
            blob=b"".join(entries),
            ends=ends,
            schemas=tuple(self._schemas[id_] for id_ in order),
            sources=("",),
            tx_number=array("Q", [0]),
            tx_file=array("Q", [0]),
            tx_offset=array("Q", [0]),
            tx_committed_at_us=array("q", [0]),
            tx_end=array("I", [len(entries)]),
            schema_index=array("I", [order[id_] for id_ in ids]) if len(order) > 1 else array("I"),
        )
        found = self._filter.select(RunView(run)).kept
        return None if found is None else frozenset(found)


@dataclass(frozen=True)
class _Tallying:
    """Counts the rows of a task. Runs on the executors."""

    selecting: Selecting
    places: Mapping[str, AuditPlaces]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        selected = _Selected(self.selecting)
        tallies: dict[tuple[str, AuditPart], dict[int, Tally]] = {}
        ends: dict[tuple[str, int, AuditPart], tuple[bytes, bytes]] = {}
        for batch in batches:
            rows: dict[tuple[str, AuditPart], list[_Row]] = {}
            for row in selected.rows(batch):
                part = part_of(row.place, self.places.get(row.shard, AuditPlaces()))
                rows.setdefault((row.shard, part), []).append(row)
                key = (row.shard, window_of(row.committed_at_us), part)
                first, last = ends.get(key, (row.place, row.place))
                ends[key] = (min(first, row.place), max(last, row.place))
            for of, some in rows.items():
                more = tally_rows(
                    (row.source for row in some),
                    (row.number for row in some),
                    (row.index for row in some),
                    (row.committed_at_us for row in some),
                )
                added(tallies.setdefault(of, {}), more)
        found: list[dict[str, Any]] = []
        for (shard, part), by_window in tallies.items():
            for window, one in by_window.items():
                first, last = ends[shard, window, part]
                row_ = (shard, window, int(part), one.updates, signed(one.hash), first, last)
                found.append(dict(zip(_TALLIES_SCHEMA.names, row_, strict=True)))
        yield pa.RecordBatch.from_pylist(found, schema=_TALLIES_SCHEMA)


_TALLIES_SCHEMA: Final = pa.schema(
    [
        ("shard", pa.string()),
        ("window", pa.int64()),
        ("part", pa.int32()),
        ("updates", pa.int64()),
        ("hash", pa.int64()),
        ("first", pa.binary()),
        ("last", pa.binary()),
    ]
)
_IDS_SCHEMA: Final = pa.schema(
    [("shard", pa.string()), ("window", pa.int64()), ("hash", pa.int64()), ("id", pa.string())]
)


@dataclass(frozen=True)
class _Finding:
    """Finds the ids of updates by their hashes."""

    selecting: Selecting
    hashes: Mapping[tuple[str, int], frozenset[int]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        selected = _Selected(self.selecting)
        for batch in batches:
            found: list[dict[str, Any]] = []
            for row in selected.rows(batch):
                window = window_of(row.committed_at_us)
                wanted = self.hashes.get((row.shard, window))
                hash_ = update_hash(row.source, row.number, row.index) if wanted else 0
                if wanted and hash_ in wanted:
                    id_ = f"{row.source}:{row.number & U64}:{row.index}"
                    found.append({"shard": row.shard, "window": window, "hash": signed(hash_), "id": id_})
            yield pa.RecordBatch.from_pylist(found, schema=_IDS_SCHEMA)
