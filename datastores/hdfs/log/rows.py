"""Encodes rows of updates and assigns them to shards."""

from __future__ import annotations

import threading
from typing import Final

from datastores.hdfs.decode.events import COLUMNS, KEY, Edit, table_of
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.changes import ChangeEncoder
from wormhole.wire.runs import RunsBuilder

__all__ = ["Rows"]

_MOST: Final = 4096


class Rows:
    """The rows of a log. Thread-safe. Each folder below the root is a table."""

    def __init__(self, log: str, sharding: Sharding, max_update_bytes: int) -> None:
        self._encoder = ChangeEncoder(log, sharding, max_update_bytes)
        self._by_table = sharding.by == "table"
        self._lock = threading.Lock()
        self._shards: set[str] = set()
        self._schemas: dict[str, Schema] = {}

    def add(self, edit: Edit, runs: RunsBuilder) -> int:
        """Add an update to its shards. Returns the update's size in bytes."""
        table = table_of(edit.path)
        end = (edit.key_end,) if edit.key_end else ()
        row = self._encoder.encode_row(edit.op, (edit.path,), after=edit.values, key_end=end)
        shards = self._encoder.shards_of(edit.op, table, (edit.path,))
        with self._lock:
            schema = self._schemas.get(table)
            if schema is None:
                if len(self._schemas) >= _MOST:
                    self._schemas.clear()
                schema = self._schemas[table] = Schema(table, KEY, COLUMNS)
            self._shards.update(shards)
        runs.add(shards, schema, row)
        return len(row)

    def shards(self, folders: tuple[str, ...]) -> frozenset[str]:
        """The shards of these folders, and those of all updates so far."""
        with self._lock:
            known = frozenset(self._shards)
        if not self._by_table:
            return self._encoder.shards()
        return known.union(*(self._encoder.shards_of(Op.READ, folder, ()) for folder in folders))
