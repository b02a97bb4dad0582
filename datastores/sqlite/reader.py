"""Reads the publisher's record of changes from a place on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from datastores.sqlite.record import Place, Record, Recorded
from wormhole.model.errors import DecodeError, PositionPurged, SourceUnavailable
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding, hash_shards, shard_of_hash, shard_of_table
from wormhole.wire.rows import decode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.v1 import update_pb2

__all__ = ["RecordReader", "shard_of_values"]

_NO_GAP: Final = ("", "")


class _Source(Protocol):
    """The source of a reader. ``history``: increases when the database loses recorded changes. ``grown``: notified when
    a change was recorded. ``end``: the number of the last recorded change.
    """

    history: int
    grown: threading.Condition

    @property
    def end(self) -> int:
        """See the class."""

    @property
    def identity(self) -> str:
        """The identity of the database."""

    def order(self, seq: int) -> LogPosition:
        """The place after a change."""

    def marker(self, place: Place) -> Datamarker:
        """The datamarker at a place."""

    def purged(self, place: str, first: str = "") -> PositionPurged:
        """The error for a place before the beginning of the record."""


def shard_of_values(log: str, values: Sequence[update_pb2.Value], count: int) -> str:
    """The hash shard of a key. A key that is a single value of bytes is hashed as these bytes."""
    if len(values) == 1 and values[0].WhichOneof("kind") == "bytes":
        return shard_of_hash(log, values[0].bytes, count)
    return shard_of_hash(log, b"".join(value.SerializeToString() for value in values), count)


class RecordReader:
    """Implements :class:`~wormhole.ports.log_source.LogReader`. ``seq``: the number of the change to read after."""

    def __init__(self, source: _Source, record: Record, seq: int, log: str, sharding: Sharding) -> None:
        self._source = source
        self._record = record
        self._history = source.history
        self._log = log
        self._sharding = sharding
        self._place = source.order(seq)
        self._open: Recorded | None = None  # a transaction that the last segment cut
        self._nr = 0  # its next row
        self._runs = RunsBuilder()
        self._reading = threading.Lock()
        self._closed = False

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See the port."""
        with self._reading, self._source.grown:
            self._source.grown.wait_for(self._ready, wait_s)
        with self._reading:
            if self._closed:
                self._record.close()
                return None
            if self._source.history != self._history:
                raise SourceUnavailable(
                    "the database lost changes that were read", hint="the log is opened again at the datamarker"
                )
            return self._segment(max_bytes)

    def close(self) -> None:
        """See the port."""
        with self._source.grown:
            self._closed = True
            self._source.grown.notify_all()
        if self._reading.acquire(blocking=False):
            try:
                self._record.close()
            finally:
                self._reading.release()

    def _ready(self) -> bool:
        source = self._source
        return self._closed or source.history != self._history or source.end > self._place.offset

    def _segment(self, max_bytes: int) -> Segment | None:
        begin = self._record.begin()
        segment = Segment(self._place, self._place, {}, None, 0)
        if begin.seq > self._place.offset:
            if self._open is not None:
                raise self._source.purged(str(self._place), str(self._place.offset + 1))
            self._pass_over(segment, self._place.offset + 1, begin.seq, LossKind.PURGED, "was not kept any more")
            segment.marker = self._source.marker(begin)
        while self._runs.size < max_bytes:
            found = self._open or self._record.next(self._place.offset)
            if found is None or (found.gap != _NO_GAP and segment.marker is not None):
                break  # only the beginning of a segment may be a gap
            if found.gap != _NO_GAP and self._open is None:
                first, last = map(int, found.gap)
                self._pass_over(segment, first, last, LossKind.NOT_LOGGED, "was not recorded: see max_changes")
            if not self._take(found, max_bytes, segment):
                segment.marker = None
                break
        if segment.marker is None and self._open is None:
            return None
        segment.runs = self._runs.take()
        return segment

    def _pass_over(self, segment: Segment, first: int, last: int, kind: LossKind, why: str) -> None:
        segment.gap = LogGap(kind, str(first), str(last), f"what was committed at the changes {first} to {last} {why}")
        self._place = segment.begin = segment.end = self._source.order(last)

    def _take(self, found: Recorded, max_bytes: int, segment: Segment) -> bool:
        """Add rows of a transaction to the segment. Returns whether the transaction ended."""
        number, at_us = found.place.seq, found.place.at * 1000
        if self._open is None:
            self._runs.begin(self._source.identity, number, at_us, self._place)
            self._open, self._nr = found, 0
        segment.end = self._place
        for nr, schema, row, problem in self._record.rows(number, self._nr):
            if self._runs.size >= max_bytes:
                return False
            self._nr = nr + 1
            if problem:
                self._runs.add((), schema, b"")
                segment.broken = {**segment.broken, **self._broken(schema.table, number, nr, problem)}
                continue
            shard = self._log
            if self._sharding.by == "table":
                shard = shard_of_table(self._log, schema.table)
            elif self._sharding.by == "hash":
                shard = shard_of_values(self._log, decode_row(row).key, self._sharding.count)
            self._runs.add((shard,), schema, row)
            segment.log_bytes += len(row)
        marker = self._source.marker(found.place)
        self._runs.end(marker.order)
        if found.replaced:
            segment.replaced = {**segment.replaced, **dict.fromkeys(found.replaced, self._place)}
        self._open, self._place = None, marker.order
        segment.end, segment.marker, segment.newest_us = marker.order, marker, at_us
        return True

    def _broken(self, table: str, number: int, nr: int, problem: str) -> dict[str, DecodeError]:
        error = DecodeError(
            f"{table}: a row's key cannot be delivered: {problem}",
            tables=(table,),
            update_id=f"{self._source.identity}:{number}:{nr}",
            hint="correct the row, then `wormholectl flows skip`; its new key is a change of its own",
        )
        sharding, log = self._sharding, self._log
        if sharding.by == "hash":  # the shard of the key is unknown
            return dict.fromkeys(hash_shards(log, sharding.count), error)
        return {shard_of_table(log, table) if sharding.by == "table" else log: error}
