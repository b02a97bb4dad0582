"""Documents in the form of Debezium's JSON converter without schemas. docs/envelopes.md lists the differences."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from sinks.envelopes.plain import after_of, check, microseconds, named_key, place, row_of
from sinks.envelopes.texts import object_of, quoted, value_text
from sinks.records.record import Record
from wormhole.model.values import Op, Value
from wormhole.wire.update import Update

__all__ = ["DebeziumEnvelope"]

_NAME: Final = "debezium"
_VERSION: Final = "1"
_STAND_IN: Final = "__debezium_unavailable_value"
_STAND_INS: Final = {"text": quoted(_STAND_IN), "bytes": quoted(base64.b64encode(_STAND_IN.encode()).decode())}
_READ: Final = "r"
_CREATE, _UPDATE, _DELETE, _TRUNCATE = "c", "u", "d", "t"
_OPS: Final = {Op.INSERT: _CREATE, Op.UPSERT: _CREATE, Op.UPDATE: _UPDATE, Op.READ: _READ}


class DebeziumEnvelope:
    """Makes an event of each update. A delete is followed by a tombstone; a change of the key is a delete, a tombstone
    and an insert. An update that enters or leaves a filter's selection is an insert or a delete.

    ``database``: the database's name, if the names of tables begin with a schema (PostgreSQL); ``None``: they begin
    with the database.
    """

    def __init__(self, database: str | None = None) -> None:
        self._database = database

    def records(self, update: Update) -> Sequence[Record]:
        """One record, or up to three. Raises :class:`~sinks.records.record.NoForm`."""
        check(update, _NAME)
        if update.op is Op.TRUNCATE:
            return self._numbered(update, [(b"", self._document(update, _TRUNCATE, None, None))])
        key, old_key = update.key, update.old_key
        if update.op is Op.DELETE or update.left:
            return self._numbered(update, self._deleted(update, old_key or key))
        after = _with_stand_ins(update, after_of(update, _NAME))
        made: list[tuple[bytes, bytes | None]] = []
        op = _OPS[update.op]
        before = None
        if update.entered:
            op = _CREATE
        elif old_key is not None:
            made, op = self._deleted(update, old_key), _CREATE
        elif op == _UPDATE and update.before is not None:
            before = row_of(update, key, update.before)
        made.append((_key(update, key), self._document(update, op, before, after)))
        return self._numbered(update, made)

    def _deleted(self, update: Update, key: tuple[Value, ...]) -> list[tuple[bytes, bytes | None]]:
        document = self._document(update, _DELETE, row_of(update, key, update.before), None)
        named = _key(update, key)
        return [(named, document), (named, None)] if named else [(named, document)]

    def _document(self, update: Update, op: str, before: dict[str, str] | None, after: dict[str, str] | None) -> bytes:
        us = microseconds(update.committed_at)
        ms, micro, nano = ("null",) * 3 if us is None else (str(us // 1000), str(us), str(us * 1000))
        first, table = place(update.table)
        named = first if self._database is None else self._database
        schema = "" if self._database is None else f'"schema":{value_text(first)},'
        snapshot = "incremental" if op == _READ else "false"
        return (
            f'{{"before":{object_of(before)},"after":{object_of(after)},"source":{{"version":"{_VERSION}",'
            f'"connector":"wormhole","name":{quoted(update.shard)},"ts_ms":{ms},"snapshot":"{snapshot}",'
            f'"db":{value_text(named)},"ts_us":{micro},"ts_ns":{nano},{schema}"table":{quoted(table)},'
            f'"id":{quoted(update.id)},"position":{quoted(str(update.position))}}},"transaction":null,"op":"{op}",'
            f'"ts_ms":{ms},"ts_us":{micro},"ts_ns":{nano}}}'
        ).encode()

    @staticmethod
    def _numbered(update: Update, made: Sequence[tuple[bytes, bytes | None]]) -> list[Record]:
        id_, table = update.id, update.table
        return [
            Record(f"{id_}/{number}" if number else id_, id_, table, key, value)
            for number, (key, value) in enumerate(made)
        ]


def _key(update: Update, key: tuple[Value, ...]) -> bytes:
    return object_of(named_key(update.schema.key, key)).encode() if key else b""


def _with_stand_ins(update: Update, after: dict[str, str]) -> dict[str, str]:
    """The row, with Debezium's placeholders for large values that did not change. Numbers have no placeholder."""
    columns = update.schema.columns
    if len(after) < len(columns):
        after |= {
            column.name: _STAND_INS[column.type]
            for column in columns
            if column.name not in after and column.type in _STAND_INS
        }
    return after
