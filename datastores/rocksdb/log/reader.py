"""The reader of RocksDB's log, which makes segments from WAL files.

Order: records in the order of the WAL, files in the order of their numbers. Transactions: a record is a transaction
with the id ``<source id>:<its first sequence number>``. Updates that were prepared by two-phase commit come with their
commit. Large transactions come in parts. Duplicates: none. Gaps: ``Segment.gap`` has the range of sequence numbers that
the log lacks. At a torn end the reader waits.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Sequence
from typing import Final

from datastores.common.encode.piece import HASHED
from datastores.common.encode.runs import open_shards, runs_of
from datastores.rocksdb.decode.write_batch import Encoder
from datastores.rocksdb.log.cursor import CursorStep, WalCursor
from datastores.rocksdb.log.places import sequence_of
from datastores.rocksdb.log.port import LogHistory
from datastores.rocksdb.log.wal_file import WalFile
from wormhole.model.errors import WormholeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run, Segment
from wormhole.model.sharding import Sharding, hash_shards, shard_of_table

__all__ = ["MAX_UPDATE_BYTES", "VALUE_SCHEMAS", "RocksReader"]

MAX_UPDATE_BYTES: Final = 64 << 20
"""A larger update is delivered without its values."""

_POLL_S: Final = 0.1  # the longest uninterrupted wait, so that close() soon ends a waiting read
_LIVE_S: Final = 1.0  # for this long after the log's end was reached, the commit time of new log is the present
_KEY: Final = (Column("key", "bytes"),)
_KEY_AND_TIMESTAMP: Final = (*_KEY, Column("timestamp", "bytes"))
_VALUE: Final = (Column("value", "bytes"),)
_WIDE: Final = (*_VALUE, Column("columns", "entries"))

VALUE_SCHEMAS: Final = {False: (_KEY, _VALUE), True: (_KEY, _WIDE)}
"""Keys and columns of a column family's plain values (``False``) and of its rows of wide columns (``True``)."""


class RocksReader:
    """A :class:`~wormhole.ports.log_source.LogReader` that begins after ``marker``.

    ``log``: the log's name, from which the shards' names are made. The caller has already checked the marker's anchor.
    ``too_large``: the number of updates returned without their values so far.
    """

    def __init__(
        self,
        history: LogHistory,
        marker: Datamarker,
        *,
        log: str,
        sharding: Sharding,
        max_update_bytes: int = MAX_UPDATE_BYTES,
    ) -> None:
        self._files = history.files
        self._catalogue = history.catalogue
        self._times = history.times
        self._source_id = history.source_id
        self._incarnation = history.incarnation
        self._place = marker.order
        self._anchor = marker.anchor
        self._committed_at_us = marker.committed_at_us
        self._encoder = Encoder(max_update_bytes, sharding.count if sharding.by == "hash" else 0)
        self._encoder.expected = sequence_of(marker) + 1 if marker.delivered else -1
        self._schemas: list[Schema] = []
        self._shards: dict[int, str] = {}
        self._shard_ordinals: dict[str, int] = {}
        self._by = sharding.by
        self._log = log
        if sharding.by == "hash":
            self._shards = dict(enumerate(hash_shards(log, sharding.count)))
        elif sharding.by != "table":
            self._shards = {0: log}  # a RocksDB is one database
        order, read_from = marker.order, marker.read_from
        start = min(order, read_from)
        self._cursor = WalCursor(
            history.files,
            self._encoder,
            self._resolve,
            file=start.file,
            at=start.offset,
            silent_until=(order.file, order.offset) if start is not order else None,
        )
        self._open_index = 0  # returned updates of the open transaction, and their shards
        self._open_shards: set[int] = set()
        self._gap: LogGap | None = None
        self._failure: WormholeError | None = None
        self._at_end_s = float("-inf")
        self._closed = threading.Event()
        self._reading = threading.Lock()

    @property
    def too_large(self) -> int:
        """The number of updates returned without their values so far."""
        return int(self._encoder.too_large)

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        deadline = time.monotonic() + wait_s
        cursor, encoder = self._cursor, self._encoder
        with self._reading:
            while not self._closed.is_set():
                try:
                    if self._failure is not None:
                        raise self._failure
                    step = cursor.step(max_bytes)
                except WormholeError as error:
                    if not self._advanced():
                        raise
                    # The updates before the fault are returned first.
                    self._failure = error
                    return self._segment(True)
                if step == CursorStep.GAP:
                    if self._advanced():
                        return self._segment(True)  # the next segment has the gap
                    self._gap, cursor.gap = cursor.gap, None
                elif step == CursorStep.PIECE:
                    return self._segment(False)
                elif step == CursorStep.PROGRESS:
                    # Small records of several kinds share a segment while they are in memory.
                    if not cursor.silent and (
                        cursor.gap is not None or not cursor.loaded or encoder.used >= max_bytes // 2
                    ):
                        return self._segment(True)
                else:
                    if self._advanced() or self._gap is not None:
                        return self._segment(True)
                    self._at_end_s = time.monotonic()
                    left = deadline - self._at_end_s
                    if left <= 0:
                        return None
                    self._files.wait(min(left, _POLL_S))
            self._cursor.close()
        return None

    def close(self) -> None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        self._closed.set()
        # A read in progress soon closes the files itself.
        if self._reading.acquire(blocking=False):
            try:
                self._cursor.close()
            finally:
                self._reading.release()

    # --- segments -------------------------------------------------------------------------------------------------

    def _advanced(self) -> bool:
        """Whether the cursor moved since the last segment."""
        place = self._place
        return not self._cursor.silent and (self._cursor.file, self._cursor.at) != (place.file, place.offset)

    def _segment(self, whole: bool) -> Segment:
        """The segment of all updates encoded since the last segment.

        ``whole``: the cursor is at a transaction's end, not within a transaction."""
        cursor = self._cursor
        piece = self._encoder.take()
        end = LogPosition(self._incarnation, cursor.file, cursor.at)
        runs: dict[str, Run] = {}
        if piece.tx_number:
            ends = piece.tx_offset.tolist()
            if not whole:
                ends[-1] = cursor.open_end
            times = self._times_of(cursor.file, ends)
            self._committed_at_us = times[-1]
            runs = runs_of(
                piece,
                self._shards,
                self._schemas,
                (self._source_id,),
                cursor.file,
                times,
                self._open_index,
                self._open_shards,
            )
        if whole:
            self._open_index, self._open_shards = 0, set()
        else:
            # The transaction began in this segment, or earlier segments had other parts of it.
            earlier = self._open_shards if self._open_index else set()
            self._open_shards = earlier | open_shards(piece, list(self._shards))
            self._open_index = cursor.open_index
        log_bytes, cursor.log_bytes = cursor.log_bytes, 0
        marker = None
        if whole:
            marker = cursor.marker(self._incarnation, self._source_id, self._anchor, self._committed_at_us)
            self._anchor = marker.anchor
        segment = Segment(self._place, end, runs, marker, log_bytes, self._committed_at_us, self._gap)
        self._place = end
        self._gap, cursor.gap = cursor.gap, None
        return segment

    def _times_of(self, file: int, offsets: Sequence[int]) -> array[int]:
        """The commit times of transactions at ascending places. Times never fall, so if the first and the last are
        equal, all are equal."""
        live = time.monotonic() - self._at_end_s < _LIVE_S

        def at(i: int) -> int:
            return self._times.committed_at(LogPosition(self._incarnation, file, offsets[i]), live)

        times = array("q", (0,)) * len(offsets)

        def fill(first: int, first_us: int, last: int, last_us: int) -> None:
            if first_us == last_us:
                times[first : last + 1] = array("q", (first_us,)) * (last + 1 - first)
            elif last - first == 1:
                times[first], times[last] = first_us, last_us
            else:
                middle = (first + last) // 2
                middle_us = at(middle)
                fill(first, first_us, middle, middle_us)
                fill(middle, middle_us, last, last_us)

        if offsets:
            first_us = at(0)
            fill(0, first_us, len(offsets) - 1, at(len(offsets) - 1) if len(offsets) > 1 else first_us)
        return times

    # --- column families ------------------------------------------------------------------------------------------

    def _resolve(self, family: int, wal: WalFile) -> None:
        """Register a column family with the encoder; see `Encoder.add_family`."""
        number, wide = family >> 1, bool(family & 1)
        name = self._catalogue.name(number)
        if name is None:
            name = f"column-family-{number}"  # created and dropped before its name was read
        timestamp = wal.timestamps.get(number)
        if timestamp is None:
            timestamp = self._catalogue.timestamp_size(number)
        if timestamp is None:  # the size is logged before the family's first change, perhaps before the cursor
            wal.read_timestamps(self._cursor.at)
            timestamp = wal.timestamps.get(number, 0)
        shard = 0
        if self._by == "hash":
            shard = HASHED
        elif self._by == "table":
            shard = self._shard_ordinals.setdefault(name, len(self._shard_ordinals))
            self._shards[shard] = shard_of_table(self._log, name)
        self._schemas.append(Schema(name, _KEY_AND_TIMESTAMP if timestamp else _KEY, _WIDE if wide else _VALUE))
        self._encoder.add_family(family, len(self._schemas) - 1, timestamp, shard)
