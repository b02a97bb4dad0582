"""The reader of a binlog, which makes segments from a dump.

Order: the binlog's. Transactions: one per GTID, with the id ``<source>:<number>``. An XA transaction comes with its
commit, under the commit's id. Large ones come in parts. Duplicates: none. Gaps: an XA commit whose prepare is before
the place at which reading began. Only transactions that are complete in the log are delivered. At the end of the log a
reader waits.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from datastores.common.encode.piece import Piece
from datastores.common.log_reader import SqlLogReader
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.history.delivered import MariaDelivered, MySqlDelivered
from datastores.mysql.log.dump import Dump
from datastores.mysql.log.prepared_xa import Prepared
from datastores.mysql.log.tables import Tables
from datastores.mysql.log.walk import LogWalk, Step
from wormhole.model.errors import DecodeError, Fatal, SourceUnavailable, UnsupportedLog, WormholeError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Run, Segment

__all__ = ["BinlogReader"]

_POLL_S: Final = 0.1  # the longest uninterrupted wait, so that close() soon ends a waiting read
_LONGEST_DELIVERED: Final = 1 << 20  # the most characters of a GTID set, because each datamarker holds one


class BinlogReader(SqlLogReader):
    """A :class:`~wormhole.ports.log_source.LogReader` that begins after ``marker``, with a walk at that place.

    ``placed``: the walk is at the marker's own place. On another server, found by GTIDs, the first transaction gives
    the place. ``passed`` is called with every datamarker, and ``closed`` once, when the reader is closed. ``confirmed``
    is called with an error for an operator that one changed byte could cause, and with the transaction's end before it.
    It returns the error to raise.
    """

    def __init__(
        self,
        dump: Dump,
        encoder: Encoder,
        walk: LogWalk,
        tables: Tables,
        prepared: Prepared,
        delivered: MySqlDelivered | MariaDelivered,
        marker: Datamarker,
        *,
        placed: bool,
        passed: Callable[[Datamarker], None],
        closed: Callable[[], None],
        confirmed: Callable[[WormholeError, LogPosition], WormholeError],
    ) -> None:
        super().__init__(tables)
        self._dump = dump
        self._encoder = encoder
        self._walk = walk
        self._tables = tables
        self._prepared = prepared
        self._delivered = delivered
        self._began = self._place = marker.order
        self._anchor: Anchor | None = marker.anchor if placed else None
        self._unseen = walk.anchor  # the last transaction before the marker, to which the marker's anchor belongs
        self._committed_at_us = marker.committed_at_us
        self._placed = placed
        self._passed = passed
        self._confirmed = confirmed
        self._on_closed = closed
        self._believed: set[str] = set()  # shards with a confirmed error

    @property
    def too_large(self) -> int:
        """The number of updates returned without their values so far."""
        return int(self._encoder.rows.too_large)

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        deadline = time.monotonic() + wait_s
        with self._reading:
            while not self._closed.is_set():
                ready = self._ready()
                if self._encoder.rows.updates.used >= max_bytes or (self._failure is not None and ready):
                    return self._segment()
                if self._failure is not None:
                    raise self._failure
                left = max(0.0, min(deadline - time.monotonic(), _POLL_S))
                try:
                    step = self._walk.step(max_bytes, 0.0 if ready else left)
                    self._believe_broken()
                    self._forget_tables()
                except WormholeError as error:
                    self._failure = self._believe(error)  # updates before the fault are returned first
                    continue
                if step == Step.PROGRESS:
                    continue
                if self._ready() or (step != Step.END and self._encoder.rows.updates.count and not self._walk.ends):
                    return self._segment()
                if step == Step.END and time.monotonic() >= deadline:
                    return None
            self._release()
        return None

    def _believe(self, error: WormholeError) -> WormholeError:
        """The error to raise for an error of the stream. Without a correct checksum the event's bytes may have changed
        in transit, and the error must be confirmed."""
        if not isinstance(error, Fatal) or self._walk.verified:
            return error
        return self._confirmed(error, self._place)

    def _believe_broken(self) -> None:
        """Raise if a second reading does not confirm that rows are unreadable."""
        broken = self._walk.broken
        if not broken or self._encoder.checksums or broken.keys() <= self._believed:
            return
        self._believed |= broken.keys()
        for error in dict.fromkeys(broken.values()):
            sure = self._confirmed(error, self._place)
            if sure is not error:
                raise sure

    def _forget_tables(self) -> None:
        """Raise if descriptions of tables take too much memory, so that a new reader begins without them. Only after
        the end of a transaction, because the new reader begins there."""
        if self._tables.full and self._walk.place > self._began:
            raise SourceUnavailable(
                f"the log had {len(self._tables.schemas)} tables since it was opened, and what is known of "
                "them is forgotten",
                hint="it is opened again where it was read to",
            )

    def _incarnation(self) -> int:
        return self._walk.place.incarnation

    def _give_back(self) -> None:
        self._dump.close()
        self._prepared.close()
        self._walk.close()
        self._on_closed()

    # --- segments -------------------------------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether ended transactions can be returned.

        An open transaction is cut only if it is large. The place of a cut transaction's updates differs from that of a
        whole one's, and a small transaction must be the same each time it is returned."""
        encoder, walk = self._encoder, self._walk
        if walk.gap is not None:
            return True
        if not self._placed:
            self._placed = encoder.in_transaction or walk.anchor is not None
        return self._placed and (walk.open_place if encoder.in_transaction else walk.place) != self._place

    def _segment(self) -> Segment:
        encoder, walk = self._encoder, self._walk
        inside = encoder.in_transaction
        end = walk.open_place if inside else walk.place
        # Ended transactions are returned first, so that a datamarker precedes a large open one.
        whole = not inside or end != self._place
        self._tables.catalog.save()
        piece = encoder.take(whole)
        gap, walk.gap = walk.gap, None
        delivered = self._delivered
        sources, numbers = encoder.transactions.take_passed()
        if numbers:
            delivered.add(encoder.sources.names, sources, numbers)
        if gap is not None:
            gap = replace(gap, behind=str(delivered))
        runs = self._runs(piece, whole) if piece.tx_number else {}
        marker = self._marker(end) if whole else None
        if marker is not None:
            self._passed(marker)
        log_bytes, walk.log_bytes = walk.log_bytes, 0
        begin = self._place if gap is None else end
        self._place = end
        broken, replaced = self._broken(end, whole), walk.take_replaced()
        return Segment(begin, end, runs, marker, log_bytes, self._committed_at_us, gap, broken, replaced=replaced)

    def _runs(self, piece: Piece, whole: bool) -> dict[str, Run]:
        encoder = self._encoder
        self._committed_at_us = piece.tx_committed_at_us[-1] or self._committed_at_us
        names = sorted(set(piece.tx_source))
        if len(names) > 1:
            place = {ordinal: i for i, ordinal in enumerate(names)}
            piece.tx_source = array("I", map(place.__getitem__, piece.tx_source))
        else:
            piece.tx_source = array("I")
        sources = [encoder.sources.names[ordinal] for ordinal in names]
        return self._split(piece, whole, sources, self._walk.file.number, encoder.first_index)

    def _marker(self, order: LogPosition) -> Datamarker:
        anchor = self._walk.anchor
        if anchor is not self._unseen:
            self._anchor = anchor
        oldest = self._prepared.oldest
        read_from = order if oldest is None else min(order, oldest)
        delivered = str(self._delivered)
        if len(delivered) > _LONGEST_DELIVERED:
            raise UnsupportedLog(
                f"the log's GTID set has {len(delivered)} characters, more than a datamarker may have "
                f"({_LONGEST_DELIVERED})",
                hint="is the server the database? if it is, close the gaps in its gtid_executed with empty "
                "transactions",
                position=str(order),
            )
        return Datamarker(order, delivered, read_from, self._anchor, self._committed_at_us)

    def _broken(self, end: LogPosition, whole: bool) -> dict[str, DecodeError]:
        """The shards that break in the segment that ends at ``end``. A segment before the fault has none."""
        walk = self._walk
        return {} if whole and end <= walk.broken.at else walk.broken.take()
