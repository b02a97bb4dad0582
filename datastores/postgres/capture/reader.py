"""The reader of recorded changes, which makes segments from rows of the change table.

Order: by the transactions' numbers. Transactions: whole, never interleaved; large ones come in parts. Duplicates: none.
Gaps: where nothing was recorded. At the end of the log a reader polls for new changes, at longer intervals while there
are none.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from datastores.common.log_reader import SqlLogReader
from datastores.postgres.capture import rows
from datastores.postgres.capture.session import LogState, Transaction, changes, transactions
from datastores.postgres.decode.encoder import Encoder
from datastores.postgres.decode.tables import Tables
from datastores.postgres.server.connection import Connection
from datastores.postgres.sql_text import quote_identifier
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment

__all__ = ["ANEW", "CaptureReader", "Source", "marker_of"]

ANEW: Final = "find out what happened to the database, then start the flow anew from a chosen position"
_AT_ONCE: Final = 1000  # transactions
_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 0.5
_SLOWER: Final = 1.5


@dataclass(frozen=True, slots=True)
class Source:
    """``look``: gives new transactions their numbers, and returns the state of the log. ``passed``: called with every
    datamarker. ``closed``: called once, when the reader is closed.
    """

    schema: str
    look: Callable[[], LogState]
    passed: Callable[[Datamarker], None]
    closed: Callable[[CaptureReader], None]


class CaptureReader(SqlLogReader):
    """A :class:`~wormhole.ports.log_source.LogReader` that begins after ``marker``."""

    def __init__(
        self,
        connection: Connection,
        encoder: Encoder,
        tables: Tables,
        marker: Datamarker,
        identity: str,
        source: Source,
    ) -> None:
        super().__init__(tables)
        self._connection = connection
        self._encoder = encoder
        self._tables = tables
        self._identity = identity
        self._source = source
        self._place = marker.order
        self._number = int(marker.delivered)  # the last transaction whose messages are all fetched
        self._checksum = None if marker.anchor is None else marker.anchor.checksum
        self._marker = marker  # after the last encoded transaction
        self._messages: deque[bytes] = deque()
        self._ends: deque[Transaction] = deque()  # the transactions whose end is among the messages
        self._large: Transaction | None = None  # the transaction that is not fully fetched
        self._fetched = (0, 0)  # place and number of its last fetched change
        self._left = 0  # the number of its changes not fetched yet
        self._layouts: dict[int, tuple[int, ...]] = {}
        encoder.place = self._place.offset

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        deadline, pause = time.monotonic() + wait_s, _SHORTEST_S
        with self._reading:
            while not self._closed.is_set():
                if self._failure is not None:
                    raise self._failure
                while self._messages and self._encoder.used < max_bytes:
                    self._encode()
                if self._encoder.used >= max_bytes or (not self._messages and self._is_ready()):
                    return self._segment()
                gap = self._fetch(max_bytes)
                if gap is not None:
                    return gap
                if self._messages or self._source.look().number > self._number:
                    continue
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._closed.wait(min(left, pause))
                pause = min(_LONGEST_S, pause * _SLOWER)
            self._release()
        return None

    def _incarnation(self) -> int:
        return self._place.incarnation

    def _give_back(self) -> None:
        self._connection.close()
        self._source.closed(self)

    # --- fetching changes -----------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        """Whether a segment may end here, because none of its changes is still to be fetched."""
        return self._marker.order != self._place or (self._large is not None and self._encoder.updates > 0)

    def _fetch(self, max_bytes: int) -> Segment | None:
        """Fetch the messages of the next transactions, or more of a large one. Returns a segment only for a gap."""
        if self._large is None:
            state, following = transactions(self._connection, self._source.schema, self._number, _AT_ONCE)
            self._check(state)
            if following and following[0].gap:
                return self._gap(following[0])
            chosen = _first(following, max_bytes)
            if not chosen:
                return None
            self._left = sum(one.changes for one in chosen)
            if len(chosen) == 1:
                self._large, self._fetched = chosen[0], (0, 0)
                self._messages.append(_begin(chosen[0]))
        else:
            chosen = [self._large]
        most = self._left
        if self._large is not None:
            most = max(1, min(most, self._large.changes * max_bytes // max(1, self._large.bytes)))
        self._take(chosen, most)
        return None

    def _take(self, chosen: list[Transaction], most: int) -> None:
        """Fetch the messages of ``most`` changes of these transactions."""
        expected = iter(chosen)
        current = self._large
        lines = [
            rows.fields(line)
            for some in changes(self._connection, self._source.schema, chosen, self._fetched, most)
            for line in some
        ]
        if len(lines) != most:
            raise SourceUnavailable(
                f"{most - len(lines)} changes after transaction {self._number} are not there: something else removed "
                "them",
                hint="it is opened again",
            )
        for number, place, own, layout, op, old, new in lines:
            if current is None or current.number != int(number or 0):
                self._end(current)
                current = next(one for one in expected if one.number == int(number or 0))
                self._messages.append(_begin(current))
            self._messages.append(self._change(op or b"", int(layout or 0), old, new))
            if self._large is not None:
                self._fetched = int(place or 0), int(own or 0)
        self._left -= len(lines)
        if not self._left:
            self._end(current)
            self._large, self._fetched = None, (0, 0)

    def _end(self, transaction: Transaction | None) -> None:
        if transaction is not None:
            self._messages.append(rows.commit(transaction.number, transaction.place, transaction.at_us))
            self._ends.append(transaction)
            self._number, self._checksum = transaction.number, transaction.checksum

    def _change(self, op: bytes, layout: int, old: bytes | None, new: bytes | None) -> bytes:
        left_out = self._layouts.get(layout)
        if left_out is None:
            left_out = self._layouts[layout] = self._describe(layout)
        return rows.truncate(layout) if op == b"T" else rows.change(op, layout, old, new, left_out)

    def _describe(self, layout: int) -> tuple[int, ...]:
        s = quote_identifier(self._source.schema)
        ((text,),) = self._connection.query(f"SELECT described FROM {s}.layout WHERE id = {layout}")  # noqa: S608
        messages, left_out = rows.described(layout, json.loads(text or ""), self._connection.encoding)
        self._messages.extend(messages)
        return left_out

    def _check(self, state: LogState) -> None:
        """Check that the log still has the history that was read."""
        known = state.proves(self._number)
        if state.identity != self._identity or (known is not None and self._checksum not in (None, known)):
            raise Diverged(
                f"the log was read up to transaction {self._number}, and the database has another one there",
                position=str(self._place),
                hint=ANEW,
            )
        if self._number < state.floor_number:
            raise PositionPurged(
                f"the log begins after transaction {state.floor_number}, and was read up to {self._number}",
                first_missing=str(self._number + 1),
                last_missing=str(state.floor_number),
                position=str(self._place),
                hint="start from earliest, or replay the range from the archive",
            )

    # --- segments -------------------------------------------------------------------------------------------------

    def _encode(self) -> None:
        message = self._messages.popleft()
        self._encoder.add(message)
        self._encoder.log_bytes += len(message)
        if self._encoder.place > self._marker.order.offset:
            ended = self._ends.popleft()
            self._marker = marker_of(self._place.incarnation, self._identity, ended, self._marker.order)

    def _segment(self) -> Segment:
        encoder = self._encoder
        end = self._marker.order
        # Ended transactions are returned first, so that a datamarker precedes a large open one.
        whole = not encoder.in_transaction or end != self._place
        piece = encoder.take(whole)
        del encoder.ended_ids[:], encoder.ended_at[:]
        runs = self._split(piece, whole, (self._identity,), 0, encoder.first_index) if piece.tx_number else {}
        if whole:
            self._source.passed(self._marker)
        begin, self._place = self._place, end
        log_bytes, encoder.log_bytes = encoder.log_bytes, 0
        # Errors of a transaction after this segment break the shards of a later segment.
        broken = self._tables.take_broken(int(self._marker.delivered) + 1) if whole else self._tables.take_broken()
        marker = self._marker if whole else None
        return Segment(begin, end, runs, marker, log_bytes, self._marker.committed_at_us, broken=broken)

    def _gap(self, transaction: Transaction) -> Segment:
        """The segment that reports changes that were not recorded."""
        self._marker = marker_of(self._place.incarnation, self._identity, transaction, self._place)
        self._number, self._checksum = transaction.number, transaction.checksum
        self._place = self._marker.order
        self._encoder.place = self._place.offset
        self._source.passed(self._marker)
        number = str(transaction.number)
        gap = LogGap(
            LossKind.NOT_LOGGED,
            number,
            number,
            "changes were not recorded, because the change table had reached its bound (`wormholectl capture show`)",
        )
        return Segment(self._place, self._place, {}, self._marker, 0, transaction.at_us, gap=gap)


def marker_of(incarnation: int, identity: str, transaction: Transaction, begin: LogPosition) -> Datamarker:
    """The datamarker after a transaction. ``begin``: the place before it."""
    order = LogPosition(incarnation, 0, transaction.place)
    anchor = Anchor(f"{identity}:{transaction.number}", transaction.checksum, begin)
    return Datamarker(order, str(transaction.number), order, anchor, transaction.at_us)


def _begin(transaction: Transaction) -> bytes:
    return rows.begin(transaction.number, transaction.at_us, transaction.xid)


def _first(following: list[Transaction], max_bytes: int) -> list[Transaction]:
    """The first transactions, up to a gap, that together take at most ``max_bytes``. A larger one comes alone."""
    chosen: list[Transaction] = []
    room = max_bytes
    for one in following:
        if one.gap or (chosen and one.bytes > room):
            break
        chosen.append(one)
        room -= one.bytes
        if room <= 0:
            break
    return chosen
