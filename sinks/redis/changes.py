"""What the sink of whole rows makes of an update. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from sinks.records.record import NoForm, Record
from sinks.redis.keys import Keys, types_of
from sinks.redis.versions import CHANGE, READ, UNFINISHED, digits, place
from subscriber_sdk import LogPosition
from wormhole.formats.json_values import row_as_json
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.update import Update

__all__ = ["GONE", "PART", "RANGE", "ROW", "TABLE", "RowChange", "RowEnvelope", "dump"]

ROW: Final = "row"
"""``document``: all columns."""
PART: Final = "part"
"""``document``: the columns that are known. The others are those of the row ``base``."""
GONE: Final = "gone"
RANGE: Final = "range"
"""The rows of the table from ``base`` on and before ``document`` are gone; both without the table's prefix."""
TABLE: Final = "table"
"""All rows of the table are gone."""

_PLAIN: Final = {str, int, bool, type(None)}
"""The types of values that are the same in JSON."""
dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RowChange(NamedTuple):
    """The value of a record. ``version``: without its era. ``types``: of the key. ``base``: empty if it is the key."""

    kind: str
    version: str
    generation: int
    types: str
    base: bytes = b""
    document: bytes = b""

    def to_bytes(self) -> bytes:
        """The form that is held."""
        head = f"{self.kind} {self.version} {self.generation} {self.types} {self.base.hex()}\n"
        return head.encode() + self.document

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of :meth:`to_bytes`."""
        head, _, document = data.partition(b"\n")
        kind, version, generation, types, base = head.decode().split(" ")
        return cls(kind, version, int(generation), types, bytes.fromhex(base) if base else b"", document)


class RowEnvelope:
    """Makes records whose ``key`` is that of Redis, and whose ``value`` is a :class:`RowChange`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._at = LogPosition(0, 0, 0), CHANGE
        self._place = place(*self._at)

    def records(self, update: Update) -> Sequence[Record]:
        """One record, or two of a row whose key changed. Raises :class:`~sinks.records.record.NoForm` for an update
        without the row's values, and :class:`~sinks.redis.keys.NoKey`.
        """
        id_, table, op = update.id, update.table, update.op
        at = update.position, READ if op is Op.READ else UNFINISHED if update.in_unfinished else CHANGE
        if at != self._at:  # an update of another transaction
            self._at, self._place = at, place(*at)
        version, generation = self._place + digits(update.index), update.generation
        if op is Op.TRUNCATE:
            self._keys.prefix(update.shard, table)  # a table whose rows have no key is refused here too
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
        change = RowChange(kind, version, generation, types, base, _document(row))
        record = Record(id_, id_, table, key, change.to_bytes())
        return [record, *self._former(update, RowChange(GONE, version, generation, types))]

    def _base(self, update: Update) -> bytes:
        return b"" if update.old_key is None else self._keys.key(update.shard, update.table, update.old_key)

    def _former(self, update: Update, gone: RowChange) -> list[Record]:
        """The row with the key before the change."""
        if update.old_key is None:
            return []
        key, change = (
            self._keys.key(update.shard, update.table, update.old_key),
            gone._replace(types=types_of(update.old_key)),
        )
        return [Record(f"{update.id}/1", update.id, update.table, key, change.to_bytes())]


def _document(row: Mapping[str, Value]) -> bytes:
    if not _PLAIN.issuperset(map(type, row.values())):
        row = row_as_json(row) or {}
    return dump(row).encode()
