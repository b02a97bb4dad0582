"""Finds where the schema of a table changes in the updates of one flow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from subscriber_sdk.subscriber import SchemaChange
from wormhole.model.schema import Schema
from wormhole.wire.update import Batch, Update

__all__ = ["TABLE_BYTES", "FlowSchemas"]

TABLE_BYTES: Final = 256
"""The memory for one table of a flow, without its schema, which the stream keeps."""


class FlowSchemas:
    """The schemas in one epoch of a flow. ``hold``: called for each new table."""

    __slots__ = ("_before", "_current", "_held", "_hold", "_ids")

    def __init__(self, hold: Callable[[str], None]) -> None:
        self._hold = hold
        self._current: dict[str, Schema] = {}
        self._held: set[str] = set()  # tables
        self._ids: set[int] = set()  # ids of the schemas in _current
        self._before: dict[str, Schema | None] = {}  # for a rollback, the former schemas of tables that changed

    def changes_in(self, batch: Batch, updates: Sequence[Update]) -> list[tuple[int, SchemaChange]]:
        """The schema changes in ``batch``, the next batch, each with the index of the first update that has the new
        schema. A schema without columns is not a change: an operation on a whole table has such a schema.
        """
        body, ids, found = batch.body, self._ids, []
        if ids.issuperset(body.schema_ids):
            return []
        for i, update in enumerate(updates):
            if (id_ := body.schema_id_of(i)) in ids:
                continue
            new = batch.schema_of(id_)
            if not new.columns:
                continue
            old = self._current.get(new.table)
            if new.table not in self._held:
                self._hold(new.table)
                self._held.add(new.table)  # until the epoch ends, also when a rollback forgets the table
            self._before.setdefault(new.table, old)
            self._set(new.table, new)
            found.append((i, SchemaChange(batch.shard, batch.epoch, new.table, update.id, old, new)))
        return found

    def acknowledged(self) -> None:
        """Note that a datamarker was acknowledged: the next rollback restores the present schemas."""
        self._before.clear()

    def rolled_back(self) -> None:
        """Restore the schemas at the last acknowledged datamarker, because the updates since then come again."""
        for table, schema in self._before.items():
            self._set(table, schema)
        self._before.clear()

    def _set(self, table: str, schema: Schema | None) -> None:
        old = self._current.pop(table, None)
        if old is not None:
            self._ids.discard(old.id)
        if schema is not None:
            self._current[table] = schema
            self._ids.add(schema.id)
