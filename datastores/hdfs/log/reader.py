"""Reads the edits from a place on: calls the NameNode and makes segments from its answers."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from datastores.hdfs.decode.events import Batch, Edit
from datastores.hdfs.log.places import SOURCE, EditLog, marker_at, place_after
from datastores.hdfs.log.rows import Rows
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.wire.runs import RunsBuilder

__all__ = ["EditReader"]

_POLL_S: Final = 0.1
# The NameNode reads a file of edits from its beginning for each call. At the end of the log each call is followed by a
# pause of four times its duration, so the calls use a fifth of one thread's time.
_REST: Final = 4
_PROVE_S: Final = 10.0
_PAUSE_S: Final = 2.0


class EditReader:
    """See :class:`~wormhole.ports.log_source.LogReader`."""

    def __init__(self, log: EditLog, rows: Rows, marker: Datamarker) -> None:
        self._log = log
        self._rows = rows
        self._marker = marker
        self._batches: deque[Batch] = deque()
        self._last = marker.order.offset  # the last transaction that was read
        self._edits: deque[Edit] = deque()  # the unread rest of a transaction that was cut
        self._open: Batch | None = None
        self._runs = RunsBuilder()
        self._closed = threading.Event()
        self._asked = self._proven = time.monotonic()
        self._rests_until = 0.0

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See the port. Raises :class:`~wormhole.model.errors.Diverged` and
        :class:`~wormhole.model.errors.PositionPurged` too.
        """
        until = time.monotonic() + wait_s
        while not self._closed.is_set():
            if self._batches or self._open is not None:
                return self._segment(max_bytes)
            if self._last > self._marker.order.offset:
                return self._passed()
            now = time.monotonic()
            if now >= self._rests_until and self._ask():
                continue
            if now >= until:
                return None
            self._closed.wait(min(until - now, max(_POLL_S, self._rests_until - now)))
        return None

    def close(self) -> None:
        """See the port."""
        self._closed.set()

    def _ask(self) -> bool:
        """Call the NameNode for the next edits. Returns whether it had any."""
        began = time.monotonic()
        # After a pause the NameNode may be restored and already past this place.
        paused, self._asked = began - self._asked > _PAUSE_S, began
        found = self._log.edits(self._last + 1)
        if paused or began - self._proven > _PROVE_S:
            self._log.prove(self._marker)
            self._proven = time.monotonic()
        self._asked = time.monotonic()
        if found.last in (-1, found.synced):
            self._rests_until = self._asked + (self._asked - began) * _REST
        if found.last <= self._last:
            if 0 < found.synced < self._last:
                raise SourceUnavailable(
                    f"the edits end at transaction {found.synced}, before {place_after(self._last)}",
                    hint="it is opened again, which shows whether the NameNode was restored",
                )
            return False
        if found.first > self._last + 1:
            raise self._log.purged(self._last, found.first)
        self._batches.extend(found.batches)
        self._last = found.last
        return True

    def _passed(self) -> Segment:
        """A segment for transactions without events."""
        begin, marker = self._marker.order, self._marker
        self._marker = Datamarker(
            place_after(self._last),
            str(self._last),
            place_after(self._last),
            marker.anchor,
            marker.committed_at_us,
        )
        return Segment(begin, self._marker.order, {}, self._marker, 0)

    def _segment(self, max_bytes: int) -> Segment:
        begin = place_after(self._open.txid - 1) if self._open is not None else self._marker.order
        segment = Segment(begin, begin, {}, None, 0)
        while (self._open is not None or self._batches) and self._runs.size < max_bytes:
            self._take(max_bytes, segment)
        segment.runs = self._runs.take()
        return segment

    def _take(self, max_bytes: int, segment: Segment) -> None:
        """Add a transaction's updates to the segment, or a part of them."""
        batch = self._open
        if batch is None:
            batch = self._open = self._batches.popleft()
            self._edits.extend(batch.edits)
            at_us = max(batch.at_ms * 1000, self._marker.committed_at_us)
            self._runs.begin(SOURCE, batch.txid, at_us, place_after(batch.txid - 1))
        at_us = max(batch.at_ms * 1000, self._marker.committed_at_us)
        while self._edits:
            if self._runs.size >= max_bytes:
                segment.end, segment.marker = place_after(batch.txid - 1), None
                return
            segment.log_bytes += self._rows.add(self._edits.popleft(), self._runs)
        self._runs.end(place_after(batch.txid))
        self._open = None
        segment.marker = self._marker = marker_at(batch.txid, batch, at_us)
        segment.end, segment.newest_us = segment.marker.order, at_us
