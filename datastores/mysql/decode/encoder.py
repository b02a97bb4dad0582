"""A stream of binlog events to pieces of encoded updates. Hot: compiled where possible.

What comes over the connection are packets of MySQL's client/server protocol, of which one or more hold one event::

    packet := length (3, low first) sequence (1) payload       a payload of 0xFFFFFF bytes goes on in the next packet
    payload := 0x00 event | 0xFE … (the server stopped) | 0xFF … (an error)

The encoder walks plain transactions by itself and hands back every other event with a status, so that the caller
decides: GTID (or MariaDB's GTID), QUERY ``BEGIN``, table maps that it knows, rows, XID or QUERY ``COMMIT``. An event of
more than ``held`` bytes is never in memory as a whole: the caller receives it, has its header looked at
(`Encoder.large`) and hands its rows in by and by.
"""

from __future__ import annotations

from typing import Any, Final

from zlib_ng.zlib_ng import crc32

from datastores.common.encode.piece import Piece
from datastores.common.encode.runs import uniform
from datastores.common.encode.transactions import Transactions
from datastores.mysql.decode import events
from datastores.mysql.decode.actions import (
    ACTIONS,
    PASS_OVER,
    TAKE_GTID,
    TAKE_MAP,
    TAKE_QUERY,
    TAKE_ROWS,
    TAKE_XID,
    VERSION_2,
)
from datastores.mysql.decode.events import (
    ANONYMOUS_GTID,
    ARTIFICIAL,
    CHECKSUM,
    FL_COMPLETED_XA,
    FL_PREPARED_XA,
    FORMAT_DESCRIPTION,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_V2,
    IGNORABLE,
    MARIADB_GTID,
    PARTIAL_UPDATE_ROWS,
)
from datastores.mysql.decode.framing import WHOLE_PAYLOAD, tells_the_end
from datastores.mysql.decode.rows import Rows, Table
from datastores.mysql.decode.stops import END, ERROR, EVENT, LARGE, MORE, OK, ROWS, TABLE, TRANSACTION
from datastores.mysql.decode.table_map import Layout
from datastores.mysql.decode.transaction_checksum import TransactionChecksum
from datastores.mysql.decode.transaction_sources import Sources
from wormhole.model.errors import DecodeError

__all__ = ["Encoder"]

_XA_FLAGS: Final = FL_PREPARED_XA | FL_COMPLETED_XA
_KEPT_TABLES: Final = 4096
_SECOND_US: Final = 1_000_000  # 64 bits wide where compiled: a literal's product would have 32
_TIME: Final = (1 << 55) - 1
_LIMIT: Final = (1 << 31) - 1
_KEPT_MAPS: Final = 16 << 20  # bytes
_LEAST_HELD: Final = 1 << 20
_LARGEST_MAP: Final = 2 << 20
_DAMAGED: Final = "its checksum does not match: it was damaged on its way or in the file"


class Encoder:
    """Encodes transactions one after the other, until `take` hands out what there is.

    The caller sets: ``checksums``: events end with a CRC-32, which is verified; ``suppress``: transactions are only
    walked; ``collect``: table maps and rows are handed back undecoded; ``single``: stop after each transaction;
    ``anonymous``: ordinal of the source of transactions without GTID, whose number is the place of their beginning;
    ``file_offset``: the place after the last event.

    ``rows`` holds what is encoded, and the rows of the event that `stops.ROWS` was about. ``sources``: the left halves
    of transaction ids by ordinal. ``transactions`` has those that ended, also those without updates.

    ``last_…`` is about the last transaction that ended. ``last_checksum``: CRC-32 of headers and checksums of its
    events. ``held``: bytes of the largest event that is held whole, by default a quarter of ``max_update_bytes`` and
    between 1 and 16 MiB. Raises :class:`DecodeError` for an event that cannot be decoded. Then nothing of that event is
    encoded, except the rows before the fault if the event came in parts. ``at`` is the place after it. ``table_id``,
    ``table_schema`` and ``table_shard`` name the table of its rows (-1: it has no table).
    """

    def __init__(self, max_update_bytes: int, hash_shards: int = 0, room: int = 1 << 16, held: int = 0) -> None:
        self.rows = Rows(max_update_bytes, hash_shards, room)
        self.held = min(held or max(_LEAST_HELD, max_update_bytes // 4), WHOLE_PAYLOAD - 1)
        self.transactions = Transactions()
        self.checksums = False
        self.suppress = False
        self.collect = False
        self.single = False
        self.anonymous = -1
        self.file_offset = 4
        self.sources = Sources()
        # What the last step was about.
        self.status = OK
        self.at = 0
        self.need = 0
        self.raw = b""
        self.event_type = 0
        self.event_flags = 0
        self.event_timestamp = 0
        self.event_server_id = 0
        self.event_begin = 0
        self.table_id = -1
        self.table_schema = -1
        self.table_shard = -1
        # The open transaction.
        self.in_transaction = False
        self.begun = False
        self.source = 0
        self.number = 0
        self.tx_begin = 0
        self.gtid_flags = 0
        self.committed_at_us = 0
        self._tx_first = 0  # its first update among those that are not taken yet
        self._tx_taken = 0
        # The last one.
        self.last_source = -1
        self.last_number = 0
        self.last_begin = 0
        self.last_end = 0
        self.last_committed_at_us = 0
        self.last_checksum = 0
        self._checksum = TransactionChecksum()
        self.first_index = 0
        self._next_first_index = 0
        self._tables: dict[int, Table] = {}
        self._map_bytes = 0
        self._table: Any = None  # the `Table` of the last rows
        self._ended = False

    @property
    def tx_updates(self) -> int:
        """Updates of the open transaction so far."""
        return self._tx_taken + self.rows.updates.count - self._tx_first if self.in_transaction else 0

    def add_table(
        self,
        table_id: int,
        body: bytes,
        layout: Layout | None,
        schema: int,
        shard: int,
        row_end: int = -1,
        maybe: tuple[int, ...] = (),
    ) -> None:
        """From now on a table map with these bytes is known; ``layout`` ``None``: its rows are handed back.
        ``row_end``, ``maybe``: see `datastores.mysql.decode.rows.Table`.

        ``schema``, ``shard``: ordinals that come out in `Piece`, or `datastores.common.encode.piece.HASHED` for a table
        with a key.
        """
        if len(body) > _LARGEST_MAP:
            raise self._bad(f"it has {len(body)} bytes, and a table map of more than {_LARGEST_MAP} is not read")
        self._map_bytes += len(body)
        if self._map_bytes > _KEPT_MAPS:
            self.forget()
            self._map_bytes = len(body)
        self._tables[table_id] = Table(body, layout, schema, shard, row_end, maybe)

    def forget(self) -> None:
        """Forget all table maps."""
        self._tables.clear()
        self._map_bytes = 0

    # --- packets and events ---------------------------------------------------------------------------------------

    def packets(self, data: bytes, at: int, end: int, max_bytes: int) -> int:
        """Walk the packets in ``data[at:end]`` until about ``max_bytes`` are encoded; returns the place where it
        stopped.

        ``status`` is the reason.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"packets {at}:{end} of {len(data)} bytes are out of range")
        p = data
        updates = self.rows.updates
        status = OK
        while at < end and updates.used < max_bytes:
            left = end - at
            if left < 4:
                self.need = 4
                status = MORE
                break
            length = p[at] | p[at + 1] << 8 | p[at + 2] << 16
            if length > self.held:
                status = LARGE
                break
            if length + 4 > left:
                self.need = length + 4
                status = MORE
                break
            start = at + 4
            if length == 0:
                self.at = start
                self.table_id = -1
                raise DecodeError("a packet of the binlog stream is empty")
            at = start + length
            self.at = at
            status = self._event(data, start + 1, at, True) if p[start] == 0 else self._told(data[start:at])
            if status != OK:
                break
            if self._ended:
                self._ended = False
                if self.single:
                    status = TRANSACTION
                    break
        self.at = at
        self.status = status
        return at

    def _told(self, payload: bytes) -> int:
        """The status that a packet without an event stands for."""
        self.table_id = -1
        if tells_the_end(payload):
            return END
        self.raw = payload
        return ERROR

    def event(self, raw: bytes, start: int, end: int) -> int:
        """Take one event that is in no file by itself: inflated, or kept from before.

        It has no checksum and moves no place.

        Returns ``status``.
        """
        if start < 0 or end < start or len(raw) < end or len(raw) > _LIMIT:
            raise ValueError(f"event {start}:{end} of {len(raw)} bytes is out of range")
        self.status = self._event(raw, start, end, False)
        self._ended = False
        return self.status

    def ignores(self, kind: int, flags: int) -> bool:
        """Whether nothing but the header of such an event matters."""
        action = ACTIONS[kind]
        if action == TAKE_MAP or action > TAKE_ROWS:
            return self.suppress and not self.collect
        return action == PASS_OVER or (flags & IGNORABLE != 0 and kind not in events.NAMES)

    def large(self, outline: bytes, size: int, crc: int) -> None:
        """Take the header of an event of ``size`` bytes that is received and not held.

        Its rows follow, see `open_rows`.

        ``outline``: the header and the last four bytes. ``crc``: CRC-32 of all bytes but those four; -1: the event
        is in no file by itself, has no checksum and moves no place. Raises :class:`DecodeError`.
        """
        if len(outline) != HEADER + CHECKSUM:
            raise ValueError(f"an outline of {len(outline)} bytes")
        kind = self._head(outline, 0, size)
        if crc >= 0:
            checked = self.checksums and kind != FORMAT_DESCRIPTION
            stored = self._number(outline, HEADER, CHECKSUM)
            if checked and crc != stored:
                raise self._bad(_DAMAGED)
            self._pass(outline, 0, len(outline), size, kind, checked)

    def open_rows(self, head: bytes, kind: int) -> int:
        """The event whose header came last has rows: ``head`` is what precedes them, ``kind`` its type without
        compression.

        Returns a status: `stops.ROWS`: `rows` is open for them; `stops.EVENT`: they are the caller's; `stops.OK`: it
        has none. Raises :class:`DecodeError`.
        """
        if self.suppress:
            self.status = OK
        else:
            self.status = self._open_rows(head, 0, len(head))
            if self.status == ROWS:
                action = ACTIONS[kind]
                partial = kind == PARTIAL_UPDATE_ROWS
                try:
                    self.rows.open(head, 8, len(head), self._table, action - TAKE_ROWS, VERSION_2[kind] != 0, partial)
                except DecodeError as error:
                    raise self._bad(error.message) from error
        return self.status

    def at_fault(self, error: DecodeError) -> DecodeError:
        """The error for a row of the last event."""
        return self._bad(error.message)

    def _event(self, data: bytes, start: int, end: int, counted: bool) -> int:
        p = data
        size = end - start
        kind = self._head(data, start, size)
        body_end = end
        if counted:
            checked = self.checksums and kind != FORMAT_DESCRIPTION
            if checked:
                body_end -= CHECKSUM
                if body_end - start < HEADER:
                    raise self._bad("its checksum is cut")
                if crc32(p[start:body_end]) != self._number(data, body_end, CHECKSUM):
                    raise self._bad(_DAMAGED)
            self._pass(data, start, end, size, kind, checked)
        action = ACTIONS[kind]
        if action > TAKE_ROWS:
            return self._rows_event(data, start, body_end, action - TAKE_ROWS, kind)
        if action == TAKE_MAP:
            return self._table_map(data, start, body_end)
        if action == TAKE_GTID:
            return self._gtid(data, start, body_end, kind)
        if action == TAKE_QUERY:
            return self._query(data, start, body_end)
        if action == TAKE_XID:
            if not self.in_transaction:
                raise self._bad("a transaction ends that did not begin")
            self.end_transaction()
            return OK
        if action == PASS_OVER or (self.event_flags & IGNORABLE and kind not in events.NAMES):
            return OK
        return self._back(data, start, body_end, EVENT)

    def _head(self, data: bytes, start: int, size: int) -> int:
        """Read the header of an event of ``size`` bytes; returns its type."""
        p = data
        self.event_begin = self.file_offset
        self.table_id = -1
        self.table_schema = -1
        self.table_shard = -1
        if size < HEADER:
            raise self._bad(f"its header has {HEADER} bytes and {size} are there")
        kind = p[start + 4]
        self.event_type = kind
        self.event_timestamp = self._number(data, start, 4)
        self.event_server_id = self._number(data, start + 5, 4)
        length = self._number(data, start + 9, 4)
        if length != size:
            raise self._bad(f"its header says that it has {length} bytes and {size} are there")
        self.event_flags = p[start + 17] | p[start + 18] << 8
        return kind

    def _pass(self, data: bytes, start: int, end: int, size: int, kind: int, checked: bool) -> None:
        """Move the place behind an event whose header is at ``start`` and whose last bytes before ``end``."""
        place = self._number(data, start + 13, 4)
        if place and self.event_flags & ARTIFICIAL == 0 and kind != HEARTBEAT and kind != HEARTBEAT_V2:
            self._move(place, size, kind == FORMAT_DESCRIPTION)
            self._checksum.note(data, start, end, checked, self.in_transaction)

    def _back(self, data: bytes, start: int, end: int, status: int) -> int:
        self.raw = data[start:end]
        return status

    def _move(self, place: int, size: int, is_format: bool) -> None:
        """The last event ends at ``place``, which has only the lower 32 bits of a file's places."""
        offset = self.file_offset
        if is_format:
            # Sent first whatever the place that was asked for: it may stand far before it.
            self.file_offset = max(offset, place)
        else:
            place += offset >> 32 << 32
            if place < offset:
                place += 1 << 32
            self.file_offset = place
            self.event_begin = place - size

    def _rows_event(self, data: bytes, start: int, end: int, op: int, kind: int) -> int:
        body = start + HEADER
        if self.collect:
            return self._back(data, start, end, EVENT)
        if self.suppress:
            return OK
        status = self._open_rows(data, body, end)
        if status == EVENT:
            return self._back(data, start, end, status)
        if status == ROWS:
            try:
                at = self.rows.event(
                    data, body + 8, end, self._table, op, VERSION_2[kind] != 0, kind == PARTIAL_UPDATE_ROWS
                )
            except DecodeError as error:
                raise self._bad(error.message) from error
            return OK if at == end else self._back(data, at, end, status)
        return status

    def _open_rows(self, data: bytes, body: int, end: int) -> int:
        """Find out whose rows an event has.

        Returns ``ROWS``, ``EVENT`` for rows that are the caller's, or ``OK``: there are none."""
        if end - body < 8:
            raise self._bad("its table id is cut")
        table_id = self._number(data, body, 6)
        if not self.in_transaction:
            raise self._bad("it is outside a transaction")
        table = self._tables.get(table_id)
        if table is None:
            if table_id == 0xFFFFFF:
                return OK  # ends a statement and has no rows
            raise self._bad(f"no table map said what table {table_id} is")
        self.table_id = table_id
        self.table_schema = table.schema
        self.table_shard = table.shard
        self._table = table
        return EVENT if table.columns is None else ROWS

    def _table_map(self, data: bytes, start: int, end: int) -> int:
        p = data
        body = start + HEADER
        if self.collect:
            return self._back(data, start, end, EVENT)
        if self.suppress:
            return OK
        if end - body < 8:
            raise self._bad("its table id is cut")
        table_id = self._number(data, body, 6)
        table = self._tables.get(table_id)
        if table is not None and table.body == p[body:end]:
            return OK
        return self._back(data, start, end, TABLE)

    def _gtid(self, data: bytes, start: int, end: int, kind: int) -> int:
        p = data
        body = start + HEADER
        if self.in_transaction:
            raise self._bad(f"a transaction begins inside of {self.sources.names[self.source]}:{self.number}")
        if kind == MARIADB_GTID:
            if end - body < 13:
                raise self._bad("it is cut")
            flags = p[body + 12]
            if flags & _XA_FLAGS:
                return self._back(data, start, end, EVENT)
            source = self.sources.of_domain(self._number(data, body + 8, 4), self.event_server_id)
            # Written with the commit: its time is that of the transaction's end, known before the first piece of it.
            self.begin(source, self._number(data, body, 8), self.event_timestamp * _SECOND_US)
            self.gtid_flags = flags
            return OK
        if end - body < 42:
            raise self._bad("it is cut")
        committed = self.event_timestamp * _SECOND_US
        if end - body >= 49:
            # The highest bit says that the time of the original commit follows.
            committed = self._number(data, body + 42, 7) & _TIME
        if kind == ANONYMOUS_GTID:
            if self.anonymous < 0:
                raise self._bad("a transaction without GTID, and the source of such is not known")
            self.begin(self.anonymous, self.event_begin, committed)
            return OK
        source = self.sources.of_uuid(p[body + 1 : body + 17])
        self.begin(source, self._number(data, body + 17, 8), committed)
        return OK

    def _number(self, data: bytes, at: int, size: int) -> int:
        """The integer in the ``size`` bytes at ``at``, low byte first."""
        p = data
        n = 0
        for i in range(size - 1, -1, -1):
            n = n << 8 | p[at + i]
        return n

    def _query(self, data: bytes, start: int, end: int) -> int:
        p = data
        body = start + HEADER
        if end - body < 13:
            raise self._bad("it is cut")
        text = body + 14 + (p[body + 11] | p[body + 12] << 8) + p[body + 8]
        if text > end:
            raise self._bad("its status variables or its database run over its end")
        size = end - text
        if self.in_transaction:
            if size == 5 and p[text:end] == b"BEGIN":
                self.begun = True
                return OK
            if size == 6 and p[text:end] == b"COMMIT":
                self.end_transaction()
                return OK
        return self._back(data, start, end, EVENT)

    def _bad(self, problem: str) -> DecodeError:
        return DecodeError(f"{events.name_of(self.event_type)} that begins at offset {self.event_begin}: {problem}")

    # --- transactions ---------------------------------------------------------------------------------------------

    def begin(self, source: int, number: int, committed_at_us: int) -> None:
        """A transaction begins with the last event.

        ``source``: an ordinal; ``committed_at_us``: 0 when it is not known yet."""
        if len(self._tables) >= _KEPT_TABLES:
            self.forget()  # only here: a statement's rows follow the maps of all its tables
        self.in_transaction = True
        self.begun = False
        self.source = source
        self.number = number
        self.tx_begin = self.event_begin
        self.gtid_flags = 0
        self.committed_at_us = committed_at_us
        self._tx_first = self.rows.updates.count
        self._tx_taken = 0
        self._checksum.begin()

    def end_transaction(self, committed_at_us: int = 0) -> None:
        """The open transaction ends with the last event.

        Without a time the GTID event's holds, or that of the last event's header."""
        if not self.in_transaction:
            raise self._bad("it ends a transaction and none has begun")
        if committed_at_us == 0:
            committed_at_us = self.committed_at_us
            if committed_at_us == 0:
                committed_at_us = self.event_timestamp * _SECOND_US
        updates = self.rows.updates.count
        if not self.suppress:
            if self._tx_taken or updates > self._tx_first:
                self.transactions.add(self.source, self.number, self.file_offset, committed_at_us)
                self.transactions.end(updates)
            self.transactions.passes(self.source, self.number)
        self.in_transaction = False
        self.last_source = self.source
        self.last_number = self.number
        self.last_begin = self.tx_begin
        self.last_end = self.file_offset
        self.last_committed_at_us = committed_at_us
        self.last_checksum = self._checksum.end()
        self._ended = True

    def truncate(self, schema: int, shard: int) -> None:
        """All rows of a table are gone: an update of the open transaction."""
        if not self.in_transaction:
            raise self._bad("it removes rows and no transaction has begun")
        if not self.suppress:
            self.rows.updates.truncate(schema, shard)

    def discard(self, close: bool = False) -> bool:
        """Drop the open transaction's updates: it was rolled back. Returns whether part of it was taken already.

        No end of it is encoded, so that a reader's flows see that what they were given of it does not count.
        ``close``: it is not in the log as a whole either; the place is where it begins again.
        """
        if not self.in_transaction:
            return False
        taken = self.back_to(0)
        if self._tx_taken:
            # The next piece was to begin inside of it.
            self._tx_taken = 0
            self._next_first_index = 0
        if close:
            self.in_transaction = False
            self.file_offset = self.tx_begin
            self._checksum.end()
        return taken

    def back_to(self, tx_updates: int) -> bool:
        """Drop what is encoded of the open transaction after its first ``tx_updates`` updates.

        Returns whether part of that was taken already."""
        taken = self._tx_taken
        self.rows.updates.back(self._tx_first + max(0, tx_updates - taken))
        return taken > tx_updates

    # --- what is encoded ------------------------------------------------------------------------------------------

    def take(self, whole: bool = False) -> Piece:
        """What was encoded since the last call; ``whole``: without the open transaction, which is kept for the next
        one.

        ``first_index`` is then the index of the first update in its transaction: not 0 when the piece begins inside of
        one.
        """
        updates = self.rows.updates
        transactions = self.transactions
        n = updates.count
        if self.in_transaction:
            if whole:
                n = self._tx_first
            elif n > self._tx_first:
                committed = self.committed_at_us or self.event_timestamp * _SECOND_US
                transactions.add(self.source, self.number, self.tx_begin, committed)
        t = transactions.count
        piece = Piece(
            bytes(memoryview(updates.out)[: updates.ends[n - 1] if n else 0]),
            updates.ends[:n],
            uniform(updates.schemas, n),
            uniform(updates.shards, n),
            transactions.numbers[:t],
            transactions.offsets[:t],
            transactions.ends[: transactions.ended],
            transactions.sources[:t],
            transactions.times[:t],
        )
        updates.drop(n)
        transactions.clear()
        self.first_index = self._next_first_index
        self._next_first_index = 0
        if self.in_transaction:
            if not whole:
                self._tx_taken += n - self._tx_first
            self._tx_first = 0
            self._next_first_index = self._tx_taken
        return piece
