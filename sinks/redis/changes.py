"""Turns updates into changes of rows, for the mode that keeps whole rows in Redis. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from sinks.envelopes.texts import row_text
from sinks.records.record import NoForm, Record
from sinks.records.transactions import Run
from sinks.redis.keys import Keys, types_of
from sinks.redis.versions import CHANGE, READ, UNFINISHED, digits, digits_as_bytes, place
from subscriber_sdk import LogPosition
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.update import Update

__all__ = ["GONE", "PART", "RANGE", "ROW", "TABLE", "Columns", "RowChange", "RowEnvelope"]

ROW: Final = "row"
"""``document``: all columns."""
PART: Final = "part"
"""``document``: the known columns. All other columns are taken from the row ``base``."""
GONE: Final = "gone"
RANGE: Final = "range"
"""The rows from the key ``base`` (inclusive) to the key ``document`` (exclusive) are deleted. Both keys are without the
table's prefix."""
TABLE: Final = "table"
"""All rows of the table are deleted."""

_ROWS: Final = frozenset({Op.INSERT, Op.UPDATE, Op.UPSERT, Op.DELETE, Op.READ})
"""The operations on one row."""


class Columns(NamedTuple):
    """Rows of one table, column by column. ``documents``: a document for each row, empty for a deleted row. ``types``:
    the types of the key's values, the same for all rows.
    """

    keys: Sequence[bytes]
    types: str
    versions: Sequence[bytes]
    documents: Sequence[bytes]


class RowChange(NamedTuple):
    """A change of one row: the value of a record. ``version``: the version without its era. ``types``: the types of the
    key's values. ``base``: empty if it is the key.
    """

    kind: str
    version: str
    generation: int
    types: str
    base: bytes = b""
    document: bytes = b""

    def to_bytes(self) -> bytes:
        """The bytes in the buffer of an incomplete transaction."""
        head = f"{self.kind} {self.version} {self.generation} {self.types} {self.base.hex()}\n"
        return head.encode() + self.document

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of :meth:`to_bytes`."""
        head, _, document = data.partition(b"\n")
        kind, version, generation, types, base = head.decode().split(" ")
        return cls(kind, version, int(generation), types, bytes.fromhex(base) if base else b"", document)


class RowEnvelope:
    """Makes records whose ``key`` is a key of Redis, and whose ``value`` is a :class:`RowChange`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._at = LogPosition(0, 0, 0), CHANGE
        self._place = place(*self._at)

    def records(self, update: Update) -> Sequence[Record]:
        """One record, or two if the row's key changed. Raises :class:`~sinks.records.record.NoForm` for an update
        without the row's values, and :class:`~sinks.redis.keys.NoKey`.
        """
        id_, table, op = update.id, update.table, update.op
        of = READ if op is Op.READ else UNFINISHED if update.in_unfinished else CHANGE
        version, generation = self._place_of(update.position, of) + digits(update.index), update.generation
        if op is Op.TRUNCATE:
            self._keys.prefix(update.shard, table)  # raises for a table whose keys could be the sink's own
            return [Record(id_, id_, table, b"", RowChange(TABLE, version, generation, "").to_bytes())]
        key, types = self._keys.key(update.shard, update.table, update.key), types_of(update.key)
        if op is Op.DELETE_RANGE:
            after = len(self._keys.prefix(update.shard, table))
            end = self._keys.key(update.shard, update.table, update.key_end or ())[after:]
            change = RowChange(RANGE, version, generation, types, key[after:], end)
            return [Record(id_, id_, table, b"", change.to_bytes())]
        if update.too_large:
            raise NoForm(update, "it is larger than max_update_bytes, so that its values were left out")
        if op is Op.MERGE:
            raise NoForm(update, "it is a merge, whose result is not in the log")
        if update.left or (columns := update.after) is None:
            gone = RowChange(GONE, version, generation, types)
            return [Record(id_, id_, table, key, gone.to_bytes()), *self._former(update, gone)]
        row = {column.name: value for column, value in zip(update.schema.key, update.key, strict=True)}
        row.update(columns)
        kind, base = ROW, b""
        if UNAVAILABLE in row.values():
            row |= {name: value for name, value in (update.before or {}).items() if row.get(name) is UNAVAILABLE}
            if UNAVAILABLE in row.values():
                row = {name: value for name, value in row.items() if value is not UNAVAILABLE}
                kind, base = PART, self._base(update)
        change = RowChange(kind, version, generation, types, base, row_text(row).encode())
        record = Record(id_, id_, table, key, change.to_bytes())
        return [record, *self._former(update, RowChange(GONE, version, generation, types))]

    def columns(self, era: str, run: Run, updates: Sequence[Update]) -> Columns | None:
        """The rows of a run; ``None`` if one of them needs a record. ``era``: the prefix of each version."""
        first, body = updates[0], run.batch.body
        reads = first.op is Op.READ
        at = (era + self._place_of(first.position, READ if reads else CHANGE)).encode()
        if not _ROWS.issuperset([update.op for update in updates]):
            return None
        keys = [update.key for update in updates]
        types = [set(map(type, column)) for column in zip(*keys, strict=True)]
        if any(len(found) != 1 for found in types):
            return None  # an update that needs a record, or a table without a key
        names = [column.name for column in first.schema.key]
        documents = []
        for update, key in zip(updates, keys, strict=True):
            if update.old_key is not None or update.too_large:
                return None
            after = update.after
            if after is None or update.left:
                documents.append(b"")
                continue
            row = dict(zip(names, key, strict=True))
            row.update(after)
            if UNAVAILABLE in row.values():
                return None
            documents.append(row_text(row).encode())
        stop = run.ordinal + len(updates)
        indexes = body.update_index[run.ordinal : stop] or range(first.index, first.index + len(updates))
        return Columns(
            self._keys.keys(first.shard, first.table, keys),
            types_of(keys[0]),
            [at + digits_as_bytes(index) for index in indexes],
            documents,
        )

    def _place_of(self, position: LogPosition, kind: int) -> str:
        if (position, kind) != self._at:  # an update of another transaction
            self._at, self._place = (position, kind), place(position, kind)
        return self._place

    def _base(self, update: Update) -> bytes:
        return b"" if update.old_key is None else self._keys.key(update.shard, update.table, update.old_key)

    def _former(self, update: Update, gone: RowChange) -> list[Record]:
        """The record that removes the row under its key before the change."""
        if update.old_key is None:
            return []
        key, change = (
            self._keys.key(update.shard, update.table, update.old_key),
            gone._replace(types=types_of(update.old_key)),
        )
        return [Record(f"{update.id}/1", update.id, update.table, key, change.to_bytes())]
