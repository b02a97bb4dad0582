"""Encodes a stream of binlog events as updates. Hot: compiled where possible.

The stream consists of packets of MySQL's client/server protocol. One or more packets hold one event::

    packet := length (3, low first) sequence (1) payload       a payload of 0xFFFFFF bytes continues in the next packet
    payload := 0x00 event | 0xFE … (the server stopped) | 0xFF … (an error)

The encoder handles plain transactions: GTID (or MariaDB's GTID), QUERY ``BEGIN``, known table maps, rows, XID or QUERY
``COMMIT``. It returns every other event to the caller with a status. An event of more than ``held`` bytes is never in
memory as a whole: the caller receives it, passes its header (`Encoder.large`), and then its rows in parts.
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
_SECOND_US: Final = 1_000_000  # as a name it has 64 bits when compiled; a product of literals would have 32
_TIME: Final = (1 << 55) - 1
_LIMIT: Final = (1 << 31) - 1
_KEPT_MAPS: Final = 16 << 20  # the most bytes of known table maps
_LEAST_HELD: Final = 1 << 20
_LARGEST_MAP: Final = 2 << 20
_DAMAGED: Final = "its checksum does not match: it was damaged on its way or in the file"


class Encoder:
    """Encodes transactions in order. `take` returns the updates.

    The caller sets: ``checksums``: events end with a CRC-32, which is verified; ``suppress``: transactions are passed
    and not encoded; ``collect``: table maps and rows are returned undecoded; ``single``: stop after each transaction;
    ``anonymous``: ordinal of the source of transactions without GTID, which are numbered by the place of their
    beginning; ``file_offset``: the place after the last event.

    ``rows``: the encoded rows, and the rows of the event that `stops.ROWS` was returned for. ``sources``: the prefixes
    of transaction ids by ordinal. ``transactions``: the ended ones, also those without updates.

    ``last_…``: of the transaction that ended last. ``last_checksum``: CRC-32 of headers and checksums of its events.
    ``held``: the most bytes of an event in memory, by default a quarter of ``max_update_bytes`` and between 1 and 16
    MiB. Raises :class:`DecodeError` for an event that cannot be decoded. If it came in parts, its rows before the fault
    are encoded, otherwise none of its rows. ``at`` is then the place after the event. ``table_id``, ``table_schema``
    and ``table_shard`` identify the table of its rows (-1: it has no table).
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
        # The last step.
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
        self._tx_first = 0  # its first update among those not yet taken
        self._tx_taken = 0
        # The last transaction.
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
        """The number of updates of the open transaction so far."""
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
        """Register a table map with these bytes. ``layout``: how to decode its rows; ``None``: they are returned
        undecoded. ``row_end``, ``maybe``: see `datastores.mysql.decode.rows.Table`.

        ``schema``, ``shard``: ordinals for `Piece`; for a table with a key ``shard`` may be
        `datastores.common.encode.piece.HASHED`.
        """
        if len(body) > _LARGEST_MAP:
            raise self._bad(f"it has {len(body)} bytes, and a table map of more than {_LARGEST_MAP} is not read")
        self._map_bytes += len(body)
        if self._map_bytes > _KEPT_MAPS:
            self.forget()
            self._map_bytes = len(body)
        self._tables[table_id] = Table(body, layout, schema, shard, row_end, maybe)

    def forget(self) -> None:
        """Drop all known table maps."""
        self._tables.clear()
        self._map_bytes = 0

    # --- packets and events ---------------------------------------------------------------------------------------

    def packets(self, data: bytes, at: int, end: int, max_bytes: int) -> int:
        """Read the packets in ``data[at:end]`` until about ``max_bytes`` are encoded. Returns the offset at which it
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
        """The status for a packet without an event."""
        self.table_id = -1
        if tells_the_end(payload):
            return END
        self.raw = payload
        return ERROR

    def event(self, raw: bytes, start: int, end: int) -> int:
        """Handle an event that is not itself in a file: one that was inflated, or kept earlier.

        It has no checksum and moves no place. Returns ``status``.
        """
        if start < 0 or end < start or len(raw) < end or len(raw) > _LIMIT:
            raise ValueError(f"event {start}:{end} of {len(raw)} bytes is out of range")
        self.status = self._event(raw, start, end, False)
        self._ended = False
        return self.status

    def ignores(self, kind: int, flags: int) -> bool:
        """Whether only the header of an event of this type and these flags is needed."""
        action = ACTIONS[kind]
        if action == TAKE_MAP or action > TAKE_ROWS:
            return self.suppress and not self.collect
        return action == PASS_OVER or (flags & IGNORABLE != 0 and kind not in events.NAMES)

    def large(self, outline: bytes, size: int, crc: int) -> None:
        """Handle the header of an event of ``size`` bytes that is not held in memory.

        Its rows follow, see `open_rows`. ``outline``: the header and the last four bytes. ``crc``: CRC-32 of all other
        bytes; -1: the event is not itself in a file, has no checksum and moves no place. Raises :class:`DecodeError`.
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
        """Begin the rows of the event whose header came last. ``head``: the bytes before the rows. ``kind``: its type
        without compression.

        Returns a status: `stops.ROWS`: `rows` is ready for them; `stops.EVENT`: the caller decodes them; `stops.OK`:
        there are none. Raises :class:`DecodeError`.
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
        """Add the last event and its place to the error for one of its rows."""
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
        """Read the header of an event of ``size`` bytes. Returns its type."""
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
        """Move the place past an event. Its header is at ``start``, and ``end`` is the offset after its last bytes."""
        place = self._number(data, start + 13, 4)
        if place and self.event_flags & ARTIFICIAL == 0 and kind != HEARTBEAT and kind != HEARTBEAT_V2:
            self._move(place, size, kind == FORMAT_DESCRIPTION)
            self._checksum.note(data, start, end, checked, self.in_transaction)

    def _back(self, data: bytes, start: int, end: int, status: int) -> int:
        self.raw = data[start:end]
        return status

    def _move(self, place: int, size: int, is_format: bool) -> None:
        """Move to the end of the last event. ``place``: only the lower 32 bits of that offset in the file."""
        offset = self.file_offset
        if is_format:
            # The server sends this event first, also if the requested place is far after it.
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
        """Find the table of an event's rows.

        Returns ``ROWS``, ``EVENT`` for rows that the caller decodes, or ``OK`` if there are none."""
        if end - body < 8:
            raise self._bad("its table id is cut")
        table_id = self._number(data, body, 6)
        if not self.in_transaction:
            raise self._bad("it is outside a transaction")
        table = self._tables.get(table_id)
        if table is None:
            if table_id == 0xFFFFFF:
                return OK  # an event without rows, which ends a statement
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
            # MariaDB writes this event with the commit, so its time is the commit time.
            self.begin(source, self._number(data, body, 8), self.event_timestamp * _SECOND_US)
            self.gtid_flags = flags
            return OK
        if end - body < 42:
            raise self._bad("it is cut")
        committed = self.event_timestamp * _SECOND_US
        if end - body >= 49:
            # If the highest bit is set, the time of the original commit follows.
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
        """The little-endian integer in the ``size`` bytes at ``at``."""
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
        """Begin a transaction with the last event.

        ``source``: an ordinal. ``committed_at_us``: 0 while it is unknown."""
        if len(self._tables) >= _KEPT_TABLES:
            self.forget()  # only between transactions: within one, rows may still need a map that was sent before
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
        """End the open transaction with the last event.

        ``committed_at_us``: 0: use the time of the GTID event, or of the last event's header."""
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
        """Add the update that a table was truncated to the open transaction."""
        if not self.in_transaction:
            raise self._bad("it removes rows and no transaction has begun")
        if not self.suppress:
            self.rows.updates.truncate(schema, shard)

    def discard(self, close: bool = False) -> bool:
        """Drop the updates of the open transaction, which was rolled back. Returns whether a part was already taken.

        The transaction's end is not encoded, so flows ignore the part that they received. ``close``: the transaction is
        not whole in the log; the place moves back to its beginning.
        """
        if not self.in_transaction:
            return False
        taken = self.back_to(0)
        if self._tx_taken:
            # The next piece no longer begins within the transaction.
            self._tx_taken = 0
            self._next_first_index = 0
        if close:
            self.in_transaction = False
            self.file_offset = self.tx_begin
            self._checksum.end()
        return taken

    def back_to(self, tx_updates: int) -> bool:
        """Drop the open transaction's updates after the first ``tx_updates``.

        Returns whether a part of them was already taken."""
        taken = self._tx_taken
        self.rows.updates.back(self._tx_first + max(0, tx_updates - taken))
        return taken > tx_updates

    # --- encoded updates ------------------------------------------------------------------------------------------

    def take(self, whole: bool = False) -> Piece:
        """The updates encoded since the last call. ``whole``: the open transaction is left for the next call.

        The piece's ``first_index`` is the index of its first update in its transaction, and is not 0 if the piece
        begins within one.
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
