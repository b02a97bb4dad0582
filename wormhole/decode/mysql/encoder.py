"""A stream of binlog events to pieces of encoded updates. Hot: compiled where possible.

What comes over the connection are packets of MySQL's client/server protocol, of which one or more hold one event::

    packet := length (3, low first) sequence (1) payload       a payload of 0xFFFFFF bytes goes on in the next packet
    payload := 0x00 event | 0xFE … (the server stopped) | 0xFF … (an error)

The encoder walks plain transactions by itself and hands back every other event with a status, so that the caller decides: GTID
(or MariaDB's GTID), QUERY ``BEGIN``, table maps that it knows, rows, XID or QUERY ``COMMIT``.
"""

from __future__ import annotations

from array import array
from typing import Final
from zlib import crc32

from wormhole.decode.mysql import events
from wormhole.decode.mysql.gtid import source_text
from wormhole.decode.mysql.layout import Layout
from wormhole.decode.mysql.rows import Rows, Table
from wormhole.decode.mysql.transactions import Transactions
from wormhole.decode.piece import Piece
from wormhole.errors import DecodeError

__all__ = ["Encoder", "Status"]


class Status:
    """Why the encoder stopped."""

    OK: Final = 0
    """Everything is consumed, or enough is encoded."""
    MORE: Final = 1
    """The data ends inside a packet; ``need`` bytes from the place where it stopped would hold more of the event (0: not known)."""
    EVENT: Final = 2
    """An event that the caller has to look at: ``raw``."""
    TABLE: Final = 3
    """A table map that is not known: ``raw``; `Encoder.add_table`, then go on."""
    TRANSACTION: Final = 4
    """A transaction ended, and ``single`` is set."""
    END: Final = 5
    """The server ended the stream."""
    ERROR: Final = 6
    """The server sent an error: ``raw``."""


# The constants again, private: the .pxd makes C integers of these.
_S_OK: Final = Status.OK
_S_MORE: Final = Status.MORE
_S_EVENT: Final = Status.EVENT
_S_TABLE: Final = Status.TABLE
_S_TRANSACTION: Final = Status.TRANSACTION
_S_END: Final = Status.END
_S_ERROR: Final = Status.ERROR
_HEADER: Final = events.HEADER
_CHECKSUM: Final = events.CHECKSUM
_ARTIFICIAL: Final = events.ARTIFICIAL
_IGNORABLE: Final = events.IGNORABLE
_XA_FLAGS: Final = events.FL_PREPARED_XA | events.FL_COMPLETED_XA
_MARIADB_GTID: Final = events.MARIADB_GTID
_ANONYMOUS: Final = events.ANONYMOUS_GTID
_PARTIAL: Final = events.PARTIAL_UPDATE_ROWS
_FORMAT: Final = events.FORMAT_DESCRIPTION
_HEARTBEAT: Final = events.HEARTBEAT
_HEARTBEAT_V2: Final = events.HEARTBEAT_V2

# What is done with an event, by its type.
_HAND_BACK: Final = 0
_IGNORE: Final = 1
_GTID: Final = 2
_QUERY: Final = 3
_MAP: Final = 4
_XID: Final = 5
_INSERT: Final = 8  # _ROWS plus the operation on the wire
_UPDATE: Final = 9
_DELETE: Final = 10
_ROWS: Final = 7

_by_type = {
    **dict.fromkeys(
        (
            events.STOP,
            events.HEARTBEAT,
            events.HEARTBEAT_V2,
            events.IGNORABLE_EVENT,
            events.ROWS_QUERY,
            events.TRANSACTION_CONTEXT,
            events.VIEW_CHANGE,
            events.ANNOTATE_ROWS,
            events.BINLOG_CHECKPOINT,
        ),
        _IGNORE,
    ),
    **dict.fromkeys((events.GTID, events.ANONYMOUS_GTID, events.MARIADB_GTID), _GTID),
    events.QUERY: _QUERY,
    events.TABLE_MAP: _MAP,
    events.XID: _XID,
    events.WRITE_ROWS_V1: _INSERT,
    events.WRITE_ROWS_V2: _INSERT,
    events.UPDATE_ROWS_V1: _UPDATE,
    events.UPDATE_ROWS_V2: _UPDATE,
    events.PARTIAL_UPDATE_ROWS: _UPDATE,
    events.DELETE_ROWS_V1: _DELETE,
    events.DELETE_ROWS_V2: _DELETE,
}
_ACTION: bytes = bytes(_by_type.get(kind, _HAND_BACK) for kind in range(256))
_VERSION_2: bytes = bytes(
    kind in {events.WRITE_ROWS_V2, events.UPDATE_ROWS_V2, events.DELETE_ROWS_V2, events.PARTIAL_UPDATE_ROWS}
    for kind in range(256)
)

_WHOLE_PAYLOAD: Final = 0xFFFFFF
_KEPT_TABLES: Final = 4096
_LIMIT: Final = (1 << 31) - 1
# Bytes of the anchor's checksum that are collected before it is brought up to date.
_ANCHOR_ROOM: Final = 4096


def _uniform(column: array[int], n: int) -> array[int]:
    """The first ``n`` entries; one for all where they are the same."""
    view = column
    for i in range(1, n):
        if view[i] != view[0]:
            return column[:n]
    return column[: min(n, 1)]


class Encoder:
    """Encodes transactions one after the other, until `take` hands out what there is.

    The caller sets: ``checksums``: events end with a CRC-32, which is verified; ``suppress``: transactions are only walked;
    ``collect``: table maps and rows are handed back undecoded; ``single``: stop after each transaction; ``anonymous``: ordinal of the
    source of transactions without GTID, whose number is the place of their beginning; ``file_offset``: the place after the last event.

    ``last_…`` is about the last transaction that ended. ``last_checksum``: CRC-32 of headers and checksums of its events.
    Raises :class:`DecodeError` for what cannot be decoded: then nothing of that event is encoded, ``at`` is the place after it, and
    ``table_id``, ``table_schema`` and ``table_shard`` say whose rows it held (-1: none's).
    """

    def __init__(self, max_update_bytes: int, hash_shards: int = 0, room: int = 1 << 16) -> None:
        self._rows = Rows(max_update_bytes, hash_shards, room)
        self._transactions = Transactions()
        self.checksums = False
        self.suppress = False
        self.collect = False
        self.single = False
        self.anonymous = -1
        self.file_offset = 4
        self.sources: list[str] = []
        self._source_of: dict[object, int] = {}
        # What the last step was about.
        self.status = _S_OK
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
        self._anchor = bytearray(_ANCHOR_ROOM + _HEADER + _CHECKSUM)
        self._anchor_used = 0
        self._anchor_noted = 0  # bytes of the last event behind those
        self._anchor_checksum = 0
        self.first_index = 0
        self._next_first_index = 0
        self._tables: dict[int, Table] = {}
        self._ended = False

    @property
    def used(self) -> int:
        """Bytes that are encoded."""
        return self._rows.used

    @property
    def updates(self) -> int:
        """Updates since the last `take`."""
        return self._rows.updates

    @property
    def transactions(self) -> int:
        """Transactions with updates that ended since the last `take`."""
        return self._transactions.ended

    @property
    def too_large(self) -> int:
        """How many updates went without their values so far."""
        return self._rows.too_large

    @property
    def tx_updates(self) -> int:
        """Updates of the open transaction so far."""
        return self._tx_taken + self._rows.updates - self._tx_first if self.in_transaction else 0

    def add_source(self, name: str) -> int:
        """The ordinal of a source, which is the left half of transaction ids."""
        if name in self._source_of:
            return self._source_of[name]
        ordinal = len(self.sources)
        self.sources.append(name)
        self._source_of[name] = ordinal
        return ordinal

    def add_table(self, table_id: int, body: bytes, layout: Layout | None, schema: int, shard: int) -> None:
        """From now on a table map with these bytes is known; ``layout`` ``None``: its rows are handed back.

        ``schema``, ``shard``: ordinals that come out in `Piece`, or `wormhole.decode.piece.HASHED` for a table with a key.
        """
        if len(self._tables) >= _KEPT_TABLES:
            self._tables.clear()
        self._tables[table_id] = Table(body, layout, schema, shard)

    def forget(self) -> None:
        """Forget all table maps."""
        self._tables.clear()

    # --- packets and events ---------------------------------------------------------------------------------------

    def packets(self, data: bytes, at: int, end: int, max_bytes: int) -> int:
        """Walk the packets in ``data[at:end]`` until about ``max_bytes`` are encoded; returns the place where it stopped.

        ``status`` says why.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"packets {at}:{end} of {len(data)} bytes are out of range")
        p = data
        rows = self._rows
        status = _S_OK
        while at < end and rows.used < max_bytes:
            left = end - at
            if left < 4:
                self.need = 4
                status = _S_MORE
                break
            length = p[at] | p[at + 1] << 8 | p[at + 2] << 16
            if length + 4 > left:
                self.need = length + 4
                status = _S_MORE
                break
            start = at + 4
            if length == 0:
                self.at = start
                raise DecodeError("a packet of the binlog stream is empty")
            if length == _WHOLE_PAYLOAD:
                following = self._after_parts(data, at, end)
                if following < 0:
                    status = _S_MORE
                    break
                at = following
                self.at = at
                joined = self.raw
                status = self._event(joined, 1, len(joined), True) if joined[0] == 0 else self._told(joined)
            else:
                at = start + length
                self.at = at
                status = self._event(data, start + 1, at, True) if p[start] == 0 else self._told(data[start:at])
            if status != _S_OK:
                break
            if self._ended:
                self._ended = False
                if self.single:
                    status = _S_TRANSACTION
                    break
        self.at = at
        self.status = status
        return at

    def _after_parts(self, data: bytes, at: int, end: int) -> int:
        """The place after the packets that hold one payload, which is then in ``raw``; negative: they are not all there."""
        parts = []
        start = at
        while True:
            if end - at < 4:
                self.need = at + 4 - start
                return -1
            length = int.from_bytes(data[at : at + 3], "little")
            if length + 4 > end - at:
                self.need = at + length + 4 - start
                return -1
            parts.append(data[at + 4 : at + 4 + length])
            at += 4 + length
            if length < _WHOLE_PAYLOAD:
                break
        self.raw = b"".join(parts)
        return at

    def _told(self, payload: bytes) -> int:
        """What a packet says that holds no event."""
        if payload[0] == 0xFE and len(payload) < 9:
            return _S_END
        if payload[0] == 0xFF:
            self.raw = payload
            return _S_ERROR
        raise DecodeError(
            f"a packet of the binlog stream begins with 0x{payload[0]:02x}, which is no event, end or error"
        )

    def event(self, raw: bytes, start: int, end: int) -> int:
        """Take one event that stands in no file by itself: inflated, or kept from before. It has no checksum and moves no place.

        Returns ``status``.
        """
        if start < 0 or end < start or len(raw) < end or len(raw) > _LIMIT:
            raise ValueError(f"event {start}:{end} of {len(raw)} bytes is out of range")
        self.status = self._event(raw, start, end, False)
        self._ended = False
        return self.status

    def _event(self, data: bytes, start: int, end: int, counted: bool) -> int:
        p = data
        size = end - start
        self.table_id = -1
        self.table_schema = -1
        self.table_shard = -1
        if size < _HEADER:
            raise self._bad(f"its header has {_HEADER} bytes and {size} are there")
        kind = p[start + 4]
        self.event_type = kind
        self.event_timestamp = p[start] | p[start + 1] << 8 | p[start + 2] << 16 | p[start + 3] << 24
        self.event_server_id = p[start + 5] | p[start + 6] << 8 | p[start + 7] << 16 | p[start + 8] << 24
        length = p[start + 9] | p[start + 10] << 8 | p[start + 11] << 16 | p[start + 12] << 24
        if length != size:
            raise self._bad(f"its header says that it has {length} bytes and {size} are there")
        self.event_flags = p[start + 17] | p[start + 18] << 8
        body_end = end
        if counted:
            place = p[start + 13] | p[start + 14] << 8 | p[start + 15] << 16 | p[start + 16] << 24
            checked = self.checksums and kind != _FORMAT
            if checked:
                body_end -= _CHECKSUM
                if body_end - start < _HEADER:
                    raise self._bad("its checksum is cut")
                stored = p[end - 4] | p[end - 3] << 8 | p[end - 2] << 16 | p[end - 1] << 24
                if crc32(data[start:body_end]) != stored:
                    raise self._bad("its checksum does not match: it was damaged on its way or in the file")
            if place and self.event_flags & _ARTIFICIAL == 0 and kind != _HEARTBEAT and kind != _HEARTBEAT_V2:
                self._move(place, size, kind == _FORMAT)
                self._note(data, start, end, checked)
            else:
                self.event_begin = self.file_offset
        action = _ACTION[kind]
        body = start + _HEADER
        if action >= _INSERT:
            return self._rows_event(data, start, body_end, action - _ROWS, kind)
        if action == _MAP:
            return self._table_map(data, start, body_end)
        if action == _GTID:
            return self._gtid(data, start, body_end, kind)
        if action == _QUERY:
            return self._query(data, start, body_end)
        if action == _XID:
            if not self.in_transaction:
                raise self._bad("a transaction ends that did not begin")
            self.end_transaction()
            return _S_OK
        if action == _IGNORE or (self.event_flags & _IGNORABLE and kind not in events.NAMES):
            return _S_OK
        return self._back(data, start, body_end, _S_EVENT)

    def _back(self, data: bytes, start: int, end: int, status: int) -> int:
        self.raw = data[start:end]
        return status

    def _move(self, place: int, size: int, is_format: bool) -> None:
        """The last event ends at ``place``, which has only the lower 32 bits of a file's places."""
        offset = self.file_offset
        if is_format:
            # Sent first whatever the place that was asked for: it may stand far before it.
            self.event_begin = offset
            self.file_offset = max(offset, place)
        else:
            place |= offset & ~0xFFFFFFFF
            if place < offset:
                place += 1 << 32
            self.file_offset = place
            self.event_begin = place - size

    def _note(self, data: bytes, start: int, end: int, checked: bool) -> None:
        """Note what the checksum of the transaction runs over."""
        p = data
        a = self._anchor
        used = self._anchor_used
        for i in range(_HEADER):
            a[used + i] = p[start + i]
        noted = _HEADER
        if checked:
            for i in range(_CHECKSUM):
                a[used + noted + i] = p[end - _CHECKSUM + i]
            noted += _CHECKSUM
        self._anchor_noted = noted
        if self.in_transaction:
            used += noted
            self._anchor_used = used
            if used > _ANCHOR_ROOM - _HEADER:
                self._anchor_checksum = crc32(self._anchor[:used], self._anchor_checksum)
                self._anchor_used = 0

    def _rows_event(self, data: bytes, start: int, end: int, op: int, kind: int) -> int:
        p = data
        body = start + _HEADER
        if self.collect:
            return self._back(data, start, end, _S_EVENT)
        if self.suppress:
            return _S_OK
        if end - body < 8:
            raise self._bad("its table id is cut")
        table_id = self._table_id(data, body)
        if not self.in_transaction:
            raise self._bad("it stands outside of a transaction")
        table = self._tables.get(table_id)
        if table is None:
            if table_id == 0xFFFFFF:
                return _S_OK  # ends a statement and has no rows
            raise self._bad(f"no table map said what table {table_id} is")
        self.table_id = table_id
        self.table_schema = table.schema
        self.table_shard = table.shard
        if table.columns is None:
            return self._back(data, start, end, _S_EVENT)
        try:
            self._rows.event(data, body + 8, end, table, op, _VERSION_2[kind], kind == _PARTIAL)
        except DecodeError as error:
            raise self._bad(error.message) from error
        return _S_OK

    def _table_id(self, data: bytes, at: int) -> int:
        p = data
        n = 0
        for i in range(5, -1, -1):
            n = n << 8 | p[at + i]
        return n

    def _table_map(self, data: bytes, start: int, end: int) -> int:
        body = start + _HEADER
        if self.collect:
            return self._back(data, start, end, _S_EVENT)
        if self.suppress:
            return _S_OK
        if end - body < 8:
            raise self._bad("its table id is cut")
        table_id = self._table_id(data, body)
        table = self._tables.get(table_id)
        if table is not None and table.body == data[body:end]:
            return _S_OK
        return self._back(data, start, end, _S_TABLE)

    def _gtid(self, data: bytes, start: int, end: int, kind: int) -> int:
        p = data
        body = start + _HEADER
        if self.in_transaction:
            raise self._bad(f"a transaction begins inside of {self.sources[self.source]}:{self.number}")
        if kind == _MARIADB_GTID:
            if end - body < 13:
                raise self._bad("it is cut")
            flags = p[body + 12]
            if flags & _XA_FLAGS:
                return self._back(data, start, end, _S_EVENT)
            domain = p[body + 8] | p[body + 9] << 8 | p[body + 10] << 16 | p[body + 11] << 24
            key: object = (domain, self.event_server_id)
            source = self._source_of.get(key, -1)
            if source < 0:
                source = self.add_source(f"{domain}-{self.event_server_id}")
                self._source_of[key] = source
            self.begin(source, self._number(data, body), 0)
            self.gtid_flags = flags
            return _S_OK
        if end - body < 42:
            raise self._bad("it is cut")
        committed = 0
        if end - body >= 49:
            for i in range(6, -1, -1):
                committed = committed << 8 | p[body + 42 + i]
            committed &= (1 << 55) - 1  # the highest bit says that the time of the original commit follows
        if kind == _ANONYMOUS:
            if self.anonymous < 0:
                raise self._bad("a transaction without GTID, and the source of such is not known")
            self.begin(self.anonymous, self.event_begin, committed)
            return _S_OK
        key = data[body + 1 : body + 17]
        source = self._source_of.get(key, -1)
        if source < 0:
            source = self.add_source(source_text(data[body + 1 : body + 17]))
            self._source_of[key] = source
        self.begin(source, self._number(data, body + 17), committed)
        return _S_OK

    def _number(self, data: bytes, at: int) -> int:
        p = data
        n = 0
        for i in range(7, -1, -1):
            n = n << 8 | p[at + i]
        return n

    def _query(self, data: bytes, start: int, end: int) -> int:
        p = data
        body = start + _HEADER
        if end - body < 13:
            raise self._bad("it is cut")
        text = body + 14 + (p[body + 11] | p[body + 12] << 8) + p[body + 8]
        if text > end:
            raise self._bad("its status variables or its database run over its end")
        size = end - text
        if self.in_transaction:
            if size == 5 and data[text:end] == b"BEGIN":
                self.begun = True
                return _S_OK
            if size == 6 and data[text:end] == b"COMMIT":
                self.end_transaction()
                return _S_OK
        return self._back(data, start, end, _S_EVENT)

    def _bad(self, problem: str) -> DecodeError:
        return DecodeError(f"{events.name_of(self.event_type)} that begins at offset {self.event_begin}: {problem}")

    # --- transactions ---------------------------------------------------------------------------------------------

    def begin(self, source: int, number: int, committed_at_us: int) -> None:
        """A transaction begins with the last event. ``source``: an ordinal; ``committed_at_us``: 0 when it is not known yet."""
        self.in_transaction = True
        self.begun = False
        self.source = source
        self.number = number
        self.tx_begin = self.event_begin
        self.gtid_flags = 0
        self.committed_at_us = committed_at_us
        self._tx_first = self._rows.updates
        self._tx_taken = 0
        self._anchor_used = self._anchor_noted
        self._anchor_checksum = 0

    def end_transaction(self, committed_at_us: int = 0) -> None:
        """The open transaction ends with the last event. Without a time the GTID event's holds, or that of the last event's header."""
        if not self.in_transaction:
            raise ValueError("no transaction is open")
        if committed_at_us == 0:
            committed_at_us = self.committed_at_us
            if committed_at_us == 0:
                committed_at_us = self.event_timestamp * 1_000_000
        updates = self._rows.updates
        if not self.suppress:
            if self._tx_taken or updates > self._tx_first:
                self._transactions.add(self.source, self.number, self.file_offset, committed_at_us)
                self._transactions.end(updates)
            self._transactions.passes(self.source, self.number)
        self.in_transaction = False
        self.last_source = self.source
        self.last_number = self.number
        self.last_begin = self.tx_begin
        self.last_end = self.file_offset
        self.last_committed_at_us = committed_at_us
        self.last_checksum = crc32(self._anchor[: self._anchor_used], self._anchor_checksum)
        self._anchor_used = 0
        self._ended = True

    def truncate(self, schema: int, shard: int) -> None:
        """All rows of a table are gone: an update of the open transaction."""
        if not self.in_transaction:
            raise ValueError("no transaction is open")
        if not self.suppress:
            self._rows.truncate(schema, shard)

    def discard(self, close: bool = False) -> bool:
        """Drop what is encoded of the open transaction. ``close``: it did not happen. Returns whether part of it was taken already."""
        if not self.in_transaction:
            return False
        self._rows.back(self._tx_first)
        if close:
            self.in_transaction = False
            self._anchor_used = 0
        return self._tx_taken > 0

    # --- what is encoded ------------------------------------------------------------------------------------------

    def take(self, whole: bool = False) -> Piece:
        """What was encoded since the last call; ``whole``: without the open transaction, which is kept for the next one.

        ``first_index`` is then the index of the first update in its transaction: not 0 when the piece begins inside of one.
        """
        rows = self._rows
        transactions = self._transactions
        n = rows.updates
        if self.in_transaction:
            if whole:
                n = self._tx_first
            elif n > self._tx_first:
                committed = self.committed_at_us or self.event_timestamp * 1_000_000
                transactions.add(self.source, self.number, self.tx_begin, committed)
        t = transactions.count
        piece = Piece(
            bytes(memoryview(rows.out)[: rows.ends[n - 1] if n else 0]),
            rows.ends[:n],
            _uniform(rows.schemas, n),
            _uniform(rows.shards, n),
            transactions.numbers[:t],
            transactions.offsets[:t],
            transactions.ends[: transactions.ended],
            transactions.sources[:t],
            transactions.times[:t],
        )
        rows.drop(n)
        transactions.clear()
        self.first_index = self._next_first_index
        self._next_first_index = 0
        if self.in_transaction:
            if not whole:
                self._tx_taken += n - self._tx_first
            self._tx_first = 0
            self._next_first_index = self._tx_taken
        return piece

    def take_gtids(self) -> tuple[array[int], array[int]]:
        """Ordinals of sources, and numbers, of all transactions that ended since the last call, those without updates too."""
        return self._transactions.take_passed()
