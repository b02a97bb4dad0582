"""A log in memory: the fake that ships beside the port, for the product's tests and for users' tests.

It keeps every promise of :class:`~wormhole.ports.log_source.LogSource`. Tests can make it fail as real logs fail:
:meth:`MemorySource.purge`, :meth:`MemorySource.skip`, :meth:`MemorySource.restore`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import google_crc32c

from wormhole.model.errors import Diverged, PositionError, PositionPurged, SourceUnavailable
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Value
from wormhole.ports.changes import Change, ChangeEncoder, ChangeTuple, EncodedChange
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.log_times import begins_later
from wormhole.wire.runs import RunsBuilder

__all__ = ["Change", "MemorySource", "NewKey", "Tables"]

_FIRST_FILE = 1
_HEADER = 16  # bytes of log per transaction besides its rows, so that an empty one has a place


@dataclass(slots=True)
class _Transaction:
    begin: LogPosition
    number: int
    committed_at_us: int
    rows: list[EncodedChange]
    size: int
    marker: Datamarker
    gap: LogGap | None
    replaced: Sequence[str] = ()


NewKey = Callable[[tuple[Value, ...]], tuple[Value, ...]]
"""Returns a row's new key when the columns of its table's key change."""


class Tables(Protocol):
    """Receives the log's changes: :class:`~datastores.memory.tables.MemoryTables`."""

    def committed(self, number: int, changes: Iterable[Change], encoder: ChangeEncoder) -> None:
        """Transaction ``number`` was committed."""
        ...

    def altered(self, number: int, schema: Schema, new_key: NewKey | None) -> None:
        """Alter a table in transaction ``number``, which is committed next."""
        ...

    def restored(self, number: int) -> None:
        """Drop everything after transaction ``number``."""
        ...


class MemorySource:
    """A log in memory. Thread-safe; implements :class:`~wormhole.ports.log_source.LogSource`.

    ``capacity``: the most bytes of rows that are kept; beyond it the oldest transactions are purged.
    ``max_update_bytes``: larger updates come without their values; ``None``: all come with their values. ``now_us``:
    the clock for commit times, in microseconds since 1970 in UTC.
    """

    def __init__(
        self,
        log: str = "memory",
        sharding: Sharding | None = None,
        *,
        source_id: str = "mem",
        capacity: int = 256 << 20,
        max_update_bytes: int | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._encoder = ChangeEncoder(log, sharding or Sharding("log"), max_update_bytes)
        self._source_id = source_id
        self._capacity = capacity
        self._now_us = now_us
        self._changed = threading.Condition()
        self._transactions: list[_Transaction] = []
        self._bytes = 0
        self._number = 0
        self._gap: LogGap | None = None
        origin = LogPosition(1, _FIRST_FILE, 0)
        self._floor = Datamarker(origin, "0", origin)
        self._end = self._floor
        self._history = 0  # increases with every restore, so that a reader notices the changed log
        self._reachable = True
        self._tables: Tables | None = None

    # --- for tests: change the log -----------------------------------------------------------------------------

    def commit(self, changes: Sequence[Change | ChangeTuple], replaced: Sequence[str] = ()) -> Datamarker:
        """Commit one transaction. Returns the datamarker after it. ``replaced``: names that become other tables'."""
        with self._changed:
            named = [Change(*change) for change in changes]
            rows = [encoded for change in named for encoded in self._encoder.encode(change)]
            size = sum(len(encoded.row) for encoded in rows)
            begin = self._end.order
            order = LogPosition(begin.incarnation, begin.file, begin.offset + _HEADER + size)
            self._number += 1
            committed_at_us = max(self._now_us(), self._end.committed_at_us)
            checksum = int(google_crc32c.value(b"".join((str(committed_at_us).encode(), *(e.row for e in rows)))))
            anchor = Anchor(f"{self._source_id}:{self._number}", checksum, begin)
            marker = Datamarker(order, str(self._number), order, anchor, committed_at_us)
            self._transactions.append(
                _Transaction(begin, self._number, committed_at_us, rows, size, marker, self._gap, replaced)
            )
            self._gap = None
            self._end = marker
            self._bytes += size
            while self._bytes > self._capacity and len(self._transactions) > 1:
                self._drop_oldest()
            if self._tables is not None:
                self._tables.committed(self._number, named, self._encoder)
            self._changed.notify_all()
            return marker

    def alter(
        self, table: str, *, without: Collection[str] = (), key: Sequence[Column] = (), new_key: NewKey | None = None
    ) -> Datamarker:
        """Commit an ALTER of a table that has changes: drop columns, or give every row another ``key``.

        As on a server, the log holds only the place of the statement, not the rows. Later changes have the new columns.
        """
        with self._changed:
            schema = self._encoder.alter(table, without=without, key=key)
            if self._tables is not None:
                self._tables.altered(self._number + 1, schema, new_key)
            return self.commit([])

    def rotate(self) -> None:
        """Continue in the next log file."""
        with self._changed:
            old = self._end
            order = LogPosition(old.order.incarnation, old.order.file + 1, 0)
            self._end = Datamarker(order, old.delivered, order, old.anchor, old.committed_at_us)

    def skip(self, count: int = 1) -> None:
        """Leave ``count`` transactions out of the log, so that the next committed one comes after a gap."""
        with self._changed:
            first = self._number + 1
            self._number += count
            last = self._number
            self._gap = LogGap(
                LossKind.NOT_LOGGED, str(first), str(last), f"transactions {first} to {last} were written past the log"
            )

    def purge(self, before: Datamarker | None = None) -> None:
        """Remove the log before ``before`` (default: all of it)."""
        with self._changed:
            limit = (before or self._end).order
            while self._transactions and self._transactions[0].marker.order <= limit:
                self._drop_oldest()
            self._changed.notify_all()

    def restore(self, to: Datamarker, *, new_incarnation: bool = False) -> None:
        """Lose everything after ``to``, like a server that was restored or that lost the end of its log.

        Without ``new_incarnation`` the places are used again, so that only the anchors differ.
        """
        with self._changed:
            while self._transactions and self._transactions[-1].marker.order > to.order:
                self._bytes -= self._transactions.pop().size
            end = self._transactions[-1].marker if self._transactions else self._floor
            self._number = int(end.delivered)
            if new_incarnation:
                order = LogPosition(end.order.incarnation + 1, _FIRST_FILE, 0)
                end = Datamarker(order, end.delivered, order)
                self._transactions.clear()
                self._bytes = 0
                self._floor = end
            self._end = end
            self._gap = None
            self._history += 1
            if self._tables is not None:
                self._tables.restored(self._number)
            self._changed.notify_all()

    def follow(self, tables: Tables) -> ChangeEncoder:
        """Report each later commit to ``tables``. Call before the first commit. Returns the encoder of the changes."""
        with self._changed:
            if self._number:
                raise ValueError("the tables of a log that holds transactions already would lack their rows")
            self._tables = tables
            return self._encoder

    def set_reachable(self, reachable: bool) -> None:
        """Make every call fail with a retryable error, or work again."""
        with self._changed:
            self._reachable = reachable
            self._changed.notify_all()

    # --- the port ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Prepares nothing. Raises :class:`SourceUnavailable` while unreachable."""
        with self._changed:
            self._check()

    def stop(self) -> None:
        """Releases nothing: the log stays for a later start."""

    def earliest(self) -> Datamarker:
        """The datamarker before the oldest transaction that is kept."""
        with self._changed:
            self._check()
            return self._floor

    def latest(self) -> Datamarker:
        """The datamarker after the last commit."""
        with self._changed:
            self._check()
            return self._end

    def locate(self, text: str) -> Datamarker:
        """``earliest``, ``latest``, ``incarnation/file/offset`` or ``seq:<transaction number>``."""
        with self._changed:
            self._check()
            if text == "earliest":
                return self._floor
            if text == "latest":
                return self._end
            if text.startswith("seq:") and text[4:].isdecimal():
                number = int(text[4:])
                return self._last_marker(
                    lambda m: int(m.delivered) <= number,
                    purged=int(self._floor.delivered) > number,
                    ahead=int(self._end.delivered) < number,
                    text=text,
                )
            place = LogPosition.parse(text)
            if place.incarnation != self._end.order.incarnation:
                raise PositionError(f"{text} is of another incarnation than {self._end.order}", hint="use latest")
            return self._last_marker(
                lambda m: m.order <= place, purged=place < self._floor.order, ahead=place > self._end.order, text=text
            )

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port: exact."""
        with self._changed:
            self._check()
            markers = [self._floor, *(t.marker for t in self._transactions), self._end]
            if self._floor.committed_at_us > at_us:
                raise begins_later(self._floor, self._floor.committed_at_us)
            return [marker for marker in markers if marker.committed_at_us <= at_us][-1]

    def open(self, marker: Datamarker) -> _MemoryReader:
        """A reader after ``marker``. See the port for its errors."""
        with self._changed:
            self._check()
            self._compare(marker)
            return _MemoryReader(self, marker.order, self._history)

    def shards(self) -> frozenset[str]:
        """All hash shards, the log's single shard, or those of the tables seen so far."""
        with self._changed:
            return self._encoder.shards()

    def release(self, oldest: LogPosition) -> None:
        """Remove the log before ``oldest``."""
        with self._changed:
            while self._transactions and self._transactions[0].marker.order <= oldest:
                self._drop_oldest()

    def status(self) -> SourceStatus:
        """The ends of the log, and the number of bytes kept."""
        with self._changed:
            end = self._end.order
            return SourceStatus(
                end, self._floor.order, self._bytes, files=((end.file, end.offset),), budget_bytes=self._capacity
            )

    # --- inside, with the lock held ----------------------------------------------------------------------------

    def _check(self) -> None:
        if not self._reachable:
            raise SourceUnavailable("the memory log was made unreachable", hint="call set_reachable(True)")

    def _drop_oldest(self) -> None:
        transaction = self._transactions.pop(0)
        self._bytes -= transaction.size
        self._floor = transaction.marker

    def _last_marker(self, accept: Callable[[Datamarker], bool], *, purged: bool, ahead: bool, text: str) -> Datamarker:
        """The last marker that ``accept`` accepts. A place within a transaction counts as its beginning."""
        if purged:
            raise self._purged(text)
        if ahead:
            raise PositionError(f"{text} is ahead of the log, which ends at {self._end}", hint="use latest")
        return [m for m in (self._floor, *(t.marker for t in self._transactions), self._end) if accept(m)][-1]

    def _purged(self, place: str, first: str = "") -> PositionPurged:
        return PositionPurged(
            f"the log begins at {self._floor} and no longer holds what follows {place}",
            first_missing=first,
            last_missing=self._floor.delivered,
            position=place,
            hint="start from earliest, or replay the range from the archive",
        )

    def _compare(self, marker: Datamarker) -> None:
        """Check that the log is still the one that ``marker`` came from. Raises ``Diverged`` or ``PositionPurged``."""
        order = marker.order
        if order.incarnation != self._end.order.incarnation or order > self._end.order:
            raise Diverged(
                f"the datamarker {marker} is not in this log, which goes from {self._floor} to {self._end}",
                position=str(order),
                hint="find out what happened to the datastore, then start the flow anew from a chosen position",
            )
        if order < self._floor.order:
            raise self._purged(str(order), str(int(marker.delivered) + 1))
        following = bisect_right(self._transactions, order, key=lambda t: t.marker.order)
        before = self._transactions[following - 1].marker if following else self._floor
        # Both the beginning of a new file and the end of the transaction before it are places.
        after = self._transactions[following].begin if following < len(self._transactions) else self._end.order
        if order in (before.order, after) and (before.anchor is None or marker.anchor in (None, before.anchor)):
            return
        found = before if order in (before.order, after) else None
        raise Diverged(
            f"the transaction before {order} was {marker.anchor} and is {found.anchor if found else 'not there'}",
            position=str(order),
            hint="find out what happened to the datastore, then start the flow anew from a chosen position",
        )


class _MemoryReader:
    """Reads from one place on; implements :class:`~wormhole.ports.log_source.LogReader`."""

    def __init__(self, source: MemorySource, place: LogPosition, history: int) -> None:
        self._source = source
        self._place = place
        self._history = history
        self._row = 0  # the next row of the transaction at the place, if a read cut it
        self._runs = RunsBuilder()
        self._closed = False

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :meth:`~wormhole.ports.log_source.LogReader.read`.

        Raises ``Diverged`` if the log was restored since the reader was opened."""
        source = self._source
        with source._changed:
            source._changed.wait_for(self._ready, wait_s)
            if self._closed or not self._ready():
                return None
            source._check()
            if self._history != source._history:
                self.close()
                raise Diverged(
                    f"the log was restored while it was read at {self._place}",
                    position=str(self._place),
                    hint="open another reader at the stored datamarker",
                )
            return self._collect(max_bytes)

    def close(self) -> None:
        """Wake a waiting read. Idempotent."""
        with self._source._changed:
            self._closed = True
            self._source._changed.notify_all()

    def _ready(self) -> bool:
        source = self._source
        return (
            self._closed or not source._reachable or self._history != source._history or self._place < source._end.order
        )

    def _collect(self, max_bytes: int) -> Segment:
        source = self._source
        begin = self._place
        gap = None
        if begin < source._floor.order:
            if self._row:
                self.close()
                raise source._purged(str(begin))
            begin = source._floor.order
            gap = LogGap(
                LossKind.PURGED, "", source._floor.delivered, f"the log between {self._place} and {begin} was purged"
            )
        segment = Segment(begin, begin, {}, None, 0, gap=gap)
        finished = True
        first = bisect_right(source._transactions, begin, key=lambda t: t.marker.order)
        for transaction in islice(source._transactions, first, None):
            if transaction.gap is not None and not self._row:
                if segment.log_bytes or gap is not None:
                    break  # a gap may be at the beginning of a segment only
                segment.gap = transaction.gap
                segment.begin = transaction.begin
            finished = self._append(transaction, max_bytes, segment)
            if self._runs.size >= max_bytes or not finished:
                break
        else:
            segment.end, segment.marker = source._end.order, source._end
        segment.runs = self._runs.take()
        if not finished:
            segment.marker = None
        elif segment.marker is None:
            segment.marker = source._floor  # the next gap needs a segment of its own
        self._place = segment.end
        return segment

    def _append(self, transaction: _Transaction, max_bytes: int, segment: Segment) -> bool:
        """Add rows of ``transaction`` to the segment. Returns whether the transaction ended."""
        runs = self._runs
        if not self._row:
            runs.begin(self._source._source_id, transaction.number, transaction.committed_at_us, transaction.begin)
        segment.end = transaction.begin
        while self._row < len(transaction.rows):
            if runs.size >= max_bytes:
                return False
            encoded = transaction.rows[self._row]
            runs.add(encoded.shards, encoded.schema, encoded.row)
            self._row += 1
            segment.log_bytes += len(encoded.row)
        self._row = 0
        segment.replaced = {**segment.replaced, **dict.fromkeys(transaction.replaced, transaction.begin)}
        runs.end(transaction.marker.order)
        segment.log_bytes += _HEADER
        segment.end, segment.marker = transaction.marker.order, transaction.marker
        segment.newest_us = transaction.committed_at_us
        return True
