"""Documents in the form of Maxwell's JSON. docs/envelopes.md lists the differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sinks.envelopes.plain import after_of, check, microseconds, named_key, place, plain_row, row_of
from sinks.envelopes.texts import object_of, quoted, value_text
from sinks.records.record import Record
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.update import Update

__all__ = ["MaxwellEnvelope"]

_NAME: Final = "maxwell"
_UPDATE, _DELETE, _TRUNCATE = "update", "delete", "table-truncate"
_TYPES: Final = {Op.INSERT: "insert", Op.UPSERT: "insert", Op.UPDATE: _UPDATE, Op.READ: "bootstrap-insert"}


class MaxwellEnvelope:
    """Makes one record of each update, and no tombstones. An update that enters or leaves a filter's selection is an
    insert or a delete.
    """

    def records(self, update: Update) -> Sequence[Record]:
        """One record. Raises :class:`~sinks.records.record.NoForm`."""
        check(update, _NAME)
        database, table = place(update.table)
        key, old_key = update.key, update.old_key
        old: dict[str, str] = {}
        data: dict[str, str] | None = None
        if update.op is Op.TRUNCATE:
            type_ = _TRUNCATE
        elif update.op is Op.DELETE or update.left:
            type_, key = _DELETE, old_key or key
            data = row_of(update, key, update.before)
        else:
            type_ = "insert" if update.entered else _TYPES[update.op]
            data = after_of(update, _NAME)
            if type_ == _UPDATE:
                old = _old(update, old_key)
        us = microseconds(update.committed_at)
        document = {
            "database": value_text(database),
            "table": quoted(table),
            "type": quoted(type_),
            "ts": "null" if us is None else str(us // 1_000_000),
        }
        if update.op is not Op.READ:
            document["xid"] = str(int(update.transaction.id.rpartition(":")[2]))
            document |= {"commit": "true"} if update.ends_transaction else {"xoffset": str(update.index)}
        if data is not None:
            document["data"] = object_of(data)
        if old:
            document["old"] = object_of(old)
        id_ = update.id
        return [Record(id_, id_, update.table, _key(update, database, table, key), object_of(document).encode())]


def _old(update: Update, old_key: tuple[Value, ...] | None) -> dict[str, str]:
    """The values before the change that differ, as far as the log has them."""
    before, after = update.before, update.after
    if before is None or after is None:
        return {} if old_key is None else named_key(update.schema.key, old_key)
    # Every NaN is the same object, so that NaN compares as equal here.
    return plain_row(
        {
            name: value
            for name, value in before.items()
            if (now := after[name]) is not value and now is not UNAVAILABLE and now != value
        }
    )


def _key(update: Update, database: str | None, table: str, key: tuple[Value, ...]) -> bytes:
    if not key:
        return b""
    named = {"database": value_text(database), "table": quoted(table)}
    named |= {f"pk.{name}": text for name, text in named_key(update.schema.key, key).items()}
    return object_of(named).encode()
