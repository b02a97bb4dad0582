"""Encodes a walsender's pgoutput messages (protocol 1) as updates. Hot: compiled where possible.

    log data := 'w' LSN (8) end of the log (8) time (8) message
    Begin    := 'B' LSN of the commit (8) time of the commit (8) transaction (4)
    Commit   := 'C' flags (1) LSN of the commit (8) place after it (8) time of the commit (8)

Times are microseconds since 2000-01-01. The server sends a transaction when it is committed, as a whole, in the order
of the commits. `datastores.postgres.decode.messages` and `datastores.postgres.decode.rows` describe the other messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

from datastores.common.encode.piece import Piece
from datastores.common.encode.runs import uniform
from datastores.common.encode.transactions import Transactions
from datastores.common.encode.updates import Updates
from datastores.postgres.decode.messages import Relation, parse_message, parse_relation, parse_truncate, parse_type
from datastores.postgres.decode.rows import Rows
from datastores.postgres.decode.table import Table
from datastores.postgres.decode.tables import Tables
from wormhole.model.errors import DecodeError

__all__ = ["COMMIT", "OK", "Encoder"]

OK: Final = 0
COMMIT: Final = 1
"""The result of `Encoder.add` for a message that ended a transaction."""

_COMMIT: Final = COMMIT
_LOG_DATA: Final = 0x77
_HEADER: Final = 25
_BEGIN: Final = 0x42
_END: Final = 0x43
_INSERT: Final = 0x49
_UPDATE: Final = 0x55
_DELETE: Final = 0x44
_RELATION: Final = 0x52
_TYPE: Final = 0x59
_ORIGIN: Final = 0x4F
_TRUNCATE: Final = 0x54
_MESSAGE: Final = 0x4D
_STREAM_ABORT: Final = 0x41
_ROLLBACK_PREPARED: Final = 0x72

_BEGIN_BYTES: Final = 21
_END_BYTES: Final = 26
_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, in microseconds since 1970
_LIMIT: Final = (1 << 31) - 1
_LOWER_HALF: Final = (1 << 32) - 1
_NEVER: Final = (1 << 64) - 1

_NAMES: Final = {
    _BEGIN: "Begin",
    _END: "Commit",
    _INSERT: "Insert",
    _UPDATE: "Update",
    _DELETE: "Delete",
    _RELATION: "Relation",
    _TYPE: "Type",
    _ORIGIN: "Origin",
    _TRUNCATE: "Truncate",
    _MESSAGE: "Message",
    # Messages of protocols 2 to 4, which the publisher does not request.
    _STREAM_ABORT: "Stream Abort",
    _ROLLBACK_PREPARED: "Rollback Prepared",
    0x53: "Stream Start",
    0x45: "Stream Stop",
    0x63: "Stream Commit",
    0x70: "Stream Prepare",
    0x62: "Begin Prepare",
    0x50: "Prepare",
    0x4B: "Commit Prepared",
}
_PASSED_OVER: Final = frozenset({_ORIGIN, _STREAM_ABORT, _ROLLBACK_PREPARED})
"""Messages that carry no change: a transaction's origin, and the end of a transaction without changes. PostgreSQL 18
sends the latter for a large transaction that was rolled back."""


class Encoder:
    """Encodes transactions in order. `take` returns the updates.

    ``tables``: the known tables, to which Relation messages add. A table whose rows cannot be read is marked there as
    broken. ``suppress``: transactions are passed and not encoded. ``place``: everything before this LSN was read. The
    caller sets it where reading begins, and may advance it while no transaction is open.

    ``transactions``: the ended ones. ``commit``: LSN of the open transaction's commit. ``last_…``: of the transaction
    that ended last: LSN of its commit, the place after it, its time (microseconds since 1970) and the CRC-32 of its
    Begin and Commit messages. ``log_bytes``: the bytes that `add_all` took. ``ended_ids`` and ``ended_at``: the lower
    halves of the ids of the transactions that ended since the caller last cleared the lists, and the places after them.

    A logical message outside a transaction only advances ``place``. Its update is a transaction of its own, with the
    LSN before ``place`` as its number, and with the time of the previous transaction or of sending. The server does not
    send it again when reading begins at that place, so it proves nothing. A message not after ``place`` was read
    before.
    """

    def __init__(self, tables: Tables, max_update_bytes: int, hash_shards: int = 0, room: int = 1 << 16) -> None:
        self.tables = tables
        self.rows = Rows(max_update_bytes, hash_shards, room)
        self.transactions = Transactions()
        self.suppress = False
        self.place = 0
        self.in_transaction = False
        self.commit = 0
        self.tx_begin = 0
        self.committed_at_us = 0
        self.last_commit = 0
        self.last_end = 0
        self.last_committed_at_us = 0
        self.last_checksum = 0
        self.log_bytes = 0
        self.first_index = 0
        self._next_first_index = 0
        self.ended_ids = array("I")
        self.ended_at = array("Q")
        self._id = 0
        self._tx_first = 0  # its first update among those not yet taken
        self._tx_taken = 0
        self._checksum = 0
        self._known: dict[int, Table] = {}
        # The Relation message of each known table, and the commit of the transaction in which it came.
        self._relations: dict[int, tuple[Relation, int]] = {}
        self._names: dict[int, tuple[int, str]] = {}  # new names that no transaction has used yet
        self._names_from = _NEVER  # the first place among them
        self._messages: Any = None  # the `Table` of logical messages
        self._table: Any = None  # the `Table` of the last row
        self._table_id = -1

    @property
    def used(self) -> int:
        """The bytes of the updates not yet taken."""
        return int(self.rows.updates.used)

    @property
    def updates(self) -> int:
        """The number of updates not yet taken."""
        return int(self.rows.updates.count)

    @property
    def too_large(self) -> int:
        """The number of updates so far that lack their values."""
        return int(self.rows.too_large)

    def add(self, data: bytes) -> int:
        """Encode one message of log data. Returns `COMMIT` if it ended a transaction, else `OK`.

        Raises :class:`DecodeError` for unreadable data, except for a row of a known table.
        """
        p = data
        size = len(data)
        if size <= _HEADER or p[0] != _LOG_DATA or size > _LIMIT:
            raise DecodeError(f"{size} bytes that begin with {data[:1]!r} are no log data")
        kind = p[_HEADER]
        if kind in (_INSERT, _UPDATE, _DELETE):
            self._row(data, size, kind)
            return OK
        if kind == _BEGIN:
            self._begin(data, size)
            return OK
        if kind == _END:
            self._end(data, size)
            return _COMMIT
        self._rare(data, kind)
        return OK

    def add_all(self, messages: list[bytes], at: int, max_bytes: int) -> int:
        """Encode ``messages`` from index ``at`` on, until one is no log data or ``max_bytes`` are encoded. Returns the
        index of the first message left. ``last_…`` shows whether transactions ended. Raises as `add`."""
        count = len(messages)
        while at < count and self.rows.updates.used < max_bytes:
            message = messages[at]
            if message[0] != _LOG_DATA:
                break
            self.add(message)
            self.log_bytes += len(message)
            at += 1
        return at

    def rename(self, names: Mapping[int, tuple[int, str]]) -> None:
        """Use these names in the transactions that begin from now on. ``names``: by OID of a table, a place and the
        table's name. The name applies to transactions that commit at or after the place, until a Relation message has
        another one.

        The server sends the Relation message of a partitioned table with the first row of each partition. So it sends
        none if only the name of that table or of its schema changes.
        """
        self._names = dict(names)
        self._names_from = min((place for place, _ in names.values()), default=_NEVER)

    # --- rows -----------------------------------------------------------------------------------------------------

    def _row(self, data: bytes, size: int, kind: int) -> None:
        if not self.in_transaction:
            raise self._bad(data, "it is outside a transaction")
        if size < _HEADER + 5:
            raise self._bad(data, "its table is cut")
        p = data
        at = _HEADER + 1
        number = p[at]
        number = number << 8 | p[at + 1]
        number = number << 8 | p[at + 2]
        number = number << 8 | p[at + 3]
        if number != self._table_id:
            self._table = self._find(data, number)
            self._table_id = number
        table = self._table
        if not (self.suppress or table.skipped):
            try:
                if table.error is not None and not (table.inserts and kind == _INSERT):
                    raise table.error
                if kind == _INSERT:
                    self.rows.insert(data, at + 4, size, table)
                elif kind == _UPDATE:
                    self.rows.update(data, at + 4, size, table)
                else:
                    self.rows.delete(data, at + 4, size, table)
            except DecodeError as error:
                self.tables.break_at(table, self.commit, error)

    def _find(self, data: bytes, number: int) -> Table:
        table = self._known.get(number)
        if table is None:
            raise self._bad(data, f"no Relation message said what table {number} is")
        return table

    def _rare(self, data: bytes, kind: int) -> None:
        """Handle the messages that are neither rows nor the beginning or end of a transaction."""
        try:
            if kind == _RELATION:
                relation = parse_relation(data, _HEADER, self.tables.encoding)
                self._learn(relation)
            elif kind == _TYPE:
                self.tables.learn_type(parse_type(data, _HEADER, self.tables.encoding))
            elif kind == _TRUNCATE:
                self._truncate(data)
            elif kind == _MESSAGE:
                self._message(data)
            elif kind in _NAMES and kind not in _PASSED_OVER:
                raise self._bad(data, "it is about a transaction that is not committed, which was not asked for")
            elif kind not in _NAMES:
                raise self._bad(data, "this kind of message is not known; is the server newer than this publisher?")
        except DecodeError as error:
            raise error if error.hint else self._bad(data, error.message) from None

    def _learn(self, relation: Relation) -> None:
        self._known[relation.id] = self.tables.learn(relation, self.commit)
        self._relations[relation.id] = relation, self.commit
        self._table_id = -1

    def _truncate(self, data: bytes) -> None:
        if not self.in_transaction:
            raise self._bad(data, "it is outside a transaction")
        for number in parse_truncate(data, _HEADER):
            table = self._find(data, number)
            if not (self.suppress or table.skipped):
                self.rows.updates.truncate(table.barrier_schema, table.barrier_shard)
                self.tables.truncated[table.name] = self.commit

    def _message(self, data: bytes) -> None:
        message = parse_message(data, _HEADER, self.tables.encoding)
        if self._messages is None:
            self._messages = self.tables.messages()
        table = self._messages
        alone = not self.in_transaction
        if alone and message.transactional:
            raise self._bad(data, "it is outside a transaction")
        if self.suppress or table.skipped or (alone and message.lsn <= self.place):
            return
        prefix = message.prefix.encode()
        self.rows.message(table.schema, table.shard, prefix, message.content, message.transactional)
        if alone:
            # The LSN is the place after the message, where a commit may begin. No commit begins one byte before.
            committed_at_us = self.last_committed_at_us or self._time(data, 17)
            self.transactions.add(0, message.lsn - 1, message.lsn, committed_at_us)
            self.transactions.end(self.rows.updates.count)
            self.place = message.lsn

    # --- transactions ---------------------------------------------------------------------------------------------

    def _begin(self, data: bytes, size: int) -> None:
        if self.in_transaction:
            raise self._bad(data, "the transaction before it has not ended")
        if size != _HEADER + _BEGIN_BYTES:
            raise self._bad(data, f"it has {size - _HEADER} bytes, not {_BEGIN_BYTES}")
        self.in_transaction = True
        self.commit = self._number(data, _HEADER + 1)
        self.tx_begin = self.place
        self.committed_at_us = self._time(data, _HEADER + 9)
        self._id = self._number(data, _HEADER + 13) & _LOWER_HALF
        self._checksum = crc32(data[_HEADER:])
        self._tx_first = self.rows.updates.count
        self._tx_taken = 0
        if self.commit >= self._names_from:
            self._rename()

    def _rename(self) -> None:
        """Give the known tables the names that they have in the new transaction."""
        for number, (place, name) in tuple(self._names.items()):
            if place > self.commit:
                continue
            del self._names[number]
            relation, learned = self._relations.get(number, (None, 0))
            if relation is not None and learned < place and relation.name != name:
                schema, _, table = name.partition(".")
                self._learn(replace(relation, schema=schema, table=table))
        self._names_from = min((place for place, _ in self._names.values()), default=_NEVER)

    def _end(self, data: bytes, size: int) -> None:
        if not self.in_transaction:
            raise self._bad(data, "no transaction has begun")
        if size != _HEADER + _END_BYTES:
            raise self._bad(data, f"it has {size - _HEADER} bytes, not {_END_BYTES}")
        if self._number(data, _HEADER + 2) != self.commit:
            raise self._bad(data, f"it ends another transaction than the one at {_lsn(self.commit)}")
        end = self._number(data, _HEADER + 10)
        count = self.rows.updates.count
        if self._tx_taken or count > self._tx_first:
            self.transactions.add(0, self.commit, end, self.committed_at_us)
            self.transactions.end(count)
        self.in_transaction = False
        self.place = end
        self.ended_ids.append(self._id)
        self.ended_at.append(end)
        self.last_commit = self.commit
        self.last_end = end
        self.last_committed_at_us = self.committed_at_us
        self.last_checksum = crc32(data[_HEADER:], self._checksum)

    def _number(self, data: bytes, at: int) -> int:
        """The big-endian number in the eight bytes at ``at``."""
        p = data
        n = 0
        for i in range(8):
            n = n << 8 | p[at + i]
        return n

    def _time(self, data: bytes, at: int) -> int:
        """The time in the eight bytes at ``at``, in microseconds since 1970; 0 for a time before 2000 or after 100,000
        years."""
        n = self._number(data, at)
        return 0 if n >> 62 else n + _EPOCH_US

    def _bad(self, data: bytes, problem: str) -> DecodeError:
        name = _NAMES.get(data[_HEADER], f"of kind {data[_HEADER : _HEADER + 1]!r}")
        return DecodeError(f"the message {name} at {_lsn(self._number(data, 1))}: {problem}", hint=_REPORT)

    # --- encoded updates ------------------------------------------------------------------------------------------

    def take(self, whole: bool = False) -> Piece:
        """The updates encoded since the last call. ``whole``: the open transaction is left for the next call.

        The piece's ``first_index`` is the index of its first update in its transaction, and is not 0 if the piece
        begins within one.
        """
        updates: Updates = self.rows.updates
        transactions = self.transactions
        n = updates.count
        if self.in_transaction:
            if whole:
                n = self._tx_first
            elif n > self._tx_first:
                transactions.add(0, self.commit, self.tx_begin, self.committed_at_us)
        t = transactions.count
        piece = Piece(
            bytes(memoryview(updates.out)[: updates.ends[n - 1] if n else 0]),
            updates.ends[:n],
            uniform(updates.schemas, n),
            uniform(updates.shards, n),
            transactions.numbers[:t],
            transactions.offsets[:t],
            transactions.ends[: transactions.ended],
            tx_committed_at_us=transactions.times[:t],
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


_REPORT: Final = (
    "read that place with `pg_recvlogical`; when the server was upgraded, upgrade the publisher too; else report this "
    "with the message's bytes"
)


def _lsn(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
