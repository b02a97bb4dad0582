"""The reader of a log, which makes segments from a walsender's messages.

Order: that of the commits. Transactions: whole, never interleaved, sent after their commit; large ones come in parts.
Their ids are ``<system>:<timeline>:<LSN of the commit>``. Duplicates: none. Gaps: none. At the end of the log a reader
waits. While only other databases write, its place advances about once a second.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from typing import Final

from datastores.common.encode.piece import Piece
from datastores.common.log_reader import SqlLogReader
from datastores.postgres.decode.encoder import Encoder
from datastores.postgres.decode.tables import Tables
from datastores.postgres.history.delivered_transactions import DeliveredTransactions
from datastores.postgres.history.incarnations import History
from datastores.postgres.history.proof import ANEW, transaction_anchor
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.server.connection import ServerError
from datastores.postgres.server.lsn import format_delivered, format_lsn
from datastores.postgres.server.stream import HEADER_BYTES, KEEPALIVE, LOG_DATA, Stream, keepalive_end
from datastores.postgres.tables.unlogged_changes import NOTHING_NOTICED, UnloggedChanges
from wormhole.model.errors import DecodeError, Diverged, SourceUnavailable, WormholeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Run, Segment

__all__ = ["WalReader"]

_NO_SUCH_OBJECT: Final = "42704"  # a server's refusal to decode log that was written without the publication
_AGAIN: Final = "the publication was dropped and made again, or renamed"
_POLL_S: Final = 0.1  # the longest uninterrupted wait, so that close() soon ends a waiting read
_IDLE_S: Final = 1.0  # seconds between two segments without updates
_PROOF_S: Final = 10.0  # seconds between two proofs of an idle log


class WalReader(SqlLogReader):
    """A :class:`~wormhole.ports.log_source.LogReader` that begins after ``marker``, which is a place of ``history``.

    ``passed`` is called with every datamarker, and ``closed`` once, when the reader is closed. ``prove`` makes the
    anchor of an idle place if the server permits it. ``delivered`` gets the transactions. ``unlogged``: the changes of
    tables' rows that the log does not show.

    ``published_from``: returns, for an LSN, the end of the log after it that may have been written without the
    publication. ``silent``: begin (0: unknown) and end of such log, if the server skips it instead of refusing it.
    """

    def __init__(
        self,
        stream: Stream,
        encoder: Encoder,
        tables: Tables,
        marker: Datamarker,
        history: History,
        timelines: Timelines,
        *,
        unread: list[bytes],
        passed: Callable[[Datamarker], None],
        closed: Callable[[WalReader], None],
        prove: Callable[[LogPosition], Anchor | None],
        delivered: DeliveredTransactions,
        unlogged: UnloggedChanges,
        published_from: Callable[[int], int],
        silent: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(tables)
        self._stream = stream
        self._encoder = encoder
        self._tables = tables
        self._history = history
        self._timelines = timelines
        self._messages = unread
        self._next = 0  # the next of the received messages
        self._place = marker.order
        self._end = marker.order.offset  # the end of the last transaction, or of later log without our changes
        self._idle_end = self._end  # the end of the log that the server has sent or skipped
        self._anchor = marker.anchor
        self._commit = encoder.last_commit  # the last transaction's commit, to which the anchor belongs
        self._committed_at_us = marker.committed_at_us
        self._moved_s = time.monotonic()
        self._proved_s = self._moved_s if marker.anchor is not None else -math.inf
        self._jumped = True  # no transaction was received after the place yet
        self._passed = passed
        self._on_closed = closed
        self._prove = prove
        self._published_from = published_from
        self._silent_from, silent_until = silent
        self._unpublished = silent_until > marker.order.offset
        self._delivered = delivered
        self._unlogged = unlogged
        self._noticed = NOTHING_NOTICED
        self._noticed_at = 0  # the noticed names apply to transactions that commit from here on
        self._opened_at = marker.order.offset
        self._reported: dict[str, int] = {}  # the place of the last reported unlogged change, by table
        encoder.place = self._end
        delivered.begin(self._place)

    @property
    def place(self) -> LogPosition:
        """Where the next segment begins."""
        return self._place

    @property
    def too_large(self) -> int:
        """The number of updates sent without their values so far."""
        return int(self._encoder.too_large)

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        deadline = time.monotonic() + wait_s
        received = False  # a call receives at least once, even if no time is left
        with self._reading:
            while not self._closed.is_set():
                ready = self._end != self._place.offset
                if self._encoder.used >= max_bytes or (self._failure is not None and ready):
                    return self._segment()
                try:
                    if self._unpublished:
                        return self._gap()
                    if self._failure is not None:
                        raise self._failure
                    if self._take(max_bytes):
                        continue
                    if not ready and (self._idle() or self._replaced(self._end, report=False)):
                        return self._segment()
                    left = max(0.0, min(deadline - time.monotonic(), _POLL_S))
                    if (left or not received) and self._receive(0.0 if ready else left):
                        received = True
                        continue
                except WormholeError as error:
                    if self._failure is not None:
                        raise
                    self._failure = error  # the transactions before the fault are returned first
                    self._unpublished = isinstance(error, ServerError) and error.sqlstate == _NO_SUCH_OBJECT
                    continue
                if ready:
                    return self._segment()
                if time.monotonic() >= deadline:
                    return None
            self._release()
        return None

    def left_behind(self) -> None:
        """End the reader, because another server answers or the server restarted. The server of this reader's session
        may still run, with another log than that of the server at the address.
        """
        self._failure = self._failure or SourceUnavailable(
            "another server answers than the one that this reader reads", hint="it is opened again"
        )

    def republished(self) -> None:
        """End the reader, because the publication was dropped and created again. The next reader asks the server again
        for log that this one may have skipped.
        """
        self._failure = self._failure or SourceUnavailable(_AGAIN, hint="it is opened again")

    def _incarnation(self) -> int:
        return self._history.number

    def _give_back(self) -> None:
        self._stream.close()
        self._on_closed(self)

    # --- messages -------------------------------------------------------------------------------------------------

    def _receive(self, wait_s: float) -> bool:
        self._messages = self._stream.receive(wait_s)
        self._next = 0
        return bool(self._messages)

    def _take(self, max_bytes: int) -> bool:
        """Encode received messages until a segment is full. Returns whether there was a message."""
        self._notice()
        messages, encoder = self._messages, self._encoder
        if self._next == len(messages):
            return False
        while self._next < len(messages) and encoder.used < max_bytes:
            message = messages[self._next]
            if message[0] == LOG_DATA:
                if self._jumped:
                    self._check_next(messages)
                before, ended = self._end, len(encoder.ended_at)
                try:
                    self._next = encoder.add_all(messages, self._next, max_bytes)
                finally:  # the transactions that ended before a fault are returned first
                    if encoder.place > before:
                        self._ended()
                if len(encoder.ended_at) > ended and encoder.place <= before:
                    raise DecodeError(
                        f"the server sends a transaction that ends at {format_lsn(encoder.place)} again and again",
                        hint="check that the address leads to a PostgreSQL server, with nothing in between",
                        code="peer-not-database",
                    )
            else:
                self._next += 1
                if message[0] == KEEPALIVE:
                    self._idle_end = max(self._idle_end, keepalive_end(message))
        return True

    def _notice(self) -> None:
        """Use the names that the last check of the catalogue found."""
        noticed = self._unlogged.of(self._history.system)
        if noticed is not self._noticed:
            self._noticed = noticed
            self._encoder.rename(noticed.names)
            # The open transaction keeps the names with which it began.
            self._noticed_at = self._encoder.commit + 1 if self._encoder.in_transaction else 0

    def _check_next(self, messages: list[bytes]) -> None:
        """Raise :class:`~wormhole.model.errors.Diverged` if the next transaction is in log that, according to the
        server, held none of our changes.
        """
        for message in messages[self._next :]:
            if message[0] == LOG_DATA and message[HEADER_BYTES : HEADER_BYTES + 1] == b"B":
                commit = int.from_bytes(message[HEADER_BYTES + 1 : HEADER_BYTES + 9])
                if commit < self._end:
                    raise Diverged(
                        f"the log was read up to {format_lsn(self._end)}, and the server sends a transaction before, "
                        f"of {format_lsn(commit)}, which was not there",
                        position=str(self._place),
                        hint=ANEW,
                    )
                self._jumped = False
                break

    def _ended(self) -> None:
        """Advance to the encoder's place. A transaction gives a new anchor; a logical message outside a transaction
        does not."""
        encoder = self._encoder
        self._end = encoder.place
        self._idle_end = max(self._idle_end, self._end)
        if encoder.last_commit == self._commit:
            return
        self._commit = encoder.last_commit
        self._committed_at_us = encoder.last_committed_at_us
        self._anchor = transaction_anchor(
            self._source(encoder.last_commit), encoder.last_commit, encoder.last_checksum, self._history.number
        )

    def _idle(self) -> bool:
        """Advance the place over log without our changes, about once a second. Returns whether it advanced."""
        now = time.monotonic()
        if self._encoder.in_transaction or self._idle_end <= self._end or now - self._moved_s < _IDLE_S:
            return False
        self._end = self._encoder.place = self._idle_end
        self._jumped = True
        if now - self._proved_s >= _PROOF_S:
            self._proved_s = now
            self._anchor = self._prove(LogPosition(self._history.number, 0, self._end)) or self._anchor
        return True

    # --- segments -------------------------------------------------------------------------------------------------

    def _segment(self) -> Segment:
        encoder = self._encoder
        end = LogPosition(self._history.number, 0, self._end)
        # Ended transactions are returned first, so that a datamarker precedes a large open one.
        whole = not encoder.in_transaction or end != self._place
        piece = encoder.take(whole)
        runs = self._runs(piece, whole) if piece.tx_number else {}
        marker = self._marker(end) if whole else None
        if marker is not None:
            self._delivered.note(end, encoder.ended_ids, encoder.ended_at)
            del encoder.ended_ids[:], encoder.ended_at[:]
            self._passed(marker)
        begin, self._place = self._place, end
        log_bytes, encoder.log_bytes = encoder.log_bytes, 0
        self._moved_s = time.monotonic()
        # A transaction that is not part of this segment breaks the shards of a later one.
        broken = self._tables.take_broken(end.offset) if whole else self._tables.take_broken()
        replaced = self._replaced(begin.offset) if whole else {}
        return Segment(begin, end, runs, marker, log_bytes, self._committed_at_us, broken=broken, replaced=replaced)

    def _replaced(self, begin: int, *, report: bool = True) -> dict[str, LogPosition]:
        """The tables with unlogged changes up to :attr:`_end` that were not reported yet.

        ``begin``: the beginning of the segment. An earlier change is reported at ``begin``. ``report``: whether the
        caller reports the tables now.
        """
        found: dict[str, LogPosition] = {}
        if self._noticed_at > self._end:
            return found
        for table, change in self._noticed.changes.items():
            if not self._opened_at <= change.place <= self._end or self._reported.get(table) == change.place:
                continue
            truncated = change.files and self._tables.truncated.get(table, 0) >= change.since
            if report or truncated:
                self._reported[table] = change.place
            if not truncated:
                found[table] = LogPosition(self._history.number, 0, max(begin, change.place, self._noticed_at))
        return found

    def _gap(self) -> Segment:
        """The segment for a gap: log after the place that was written without the publication.

        Raises the reader's failure if the end of that log is unknown.
        """
        end = self._published_from(self._end)
        self._unpublished = False
        self._failure = self._failure or SourceUnavailable(_AGAIN, hint="it is opened again")
        if end <= self._end:
            raise self._failure
        # An open reader skipped a little of this log before the publication was found missing.
        since = min(self._end, self._silent_from or self._end)
        first = format_delivered(self._timelines.of(since), since)
        self._place = LogPosition(self._history.number, 0, end)
        self._end, self._anchor = end, self._prove(self._place)
        self._proved_s = time.monotonic() if self._anchor is not None else -math.inf
        marker = self._marker(self._place)
        self._passed(marker)
        gap = LogGap(LossKind.PURGED, first, marker.delivered, f"{_AGAIN}: what was written in between is not sent")
        return Segment(self._place, self._place, {}, marker, 0, self._committed_at_us, gap)

    def _runs(self, piece: Piece, whole: bool) -> dict[str, Run]:
        sources = [self._source(number) for number in piece.tx_number] if self._timelines.switches else []
        names = tuple(dict.fromkeys(sources)) or (self._source(piece.tx_number[0]),)
        if len(names) > 1:
            piece.tx_source = array("I", map(names.index, sources))
        return self._split(piece, whole, names, 0, self._encoder.first_index)

    def _marker(self, order: LogPosition) -> Datamarker:
        delivered = format_delivered(self._timelines.of(order.offset), order.offset)
        # The server must keep its log from the anchor's beginning on, because the anchor is read again.
        read_from = order if self._anchor is None else min(order, self._anchor.begin)
        return Datamarker(order, delivered, read_from, self._anchor, self._committed_at_us)

    def _source(self, commit: int) -> str:
        """System and timeline of the transaction committed at ``commit``: the first two parts of its id."""
        return f"{self._history.system}:{self._timelines.of(commit + 1)}"
