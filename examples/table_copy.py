"""Keeps a copy of tables in SQLite: existing rows, every change, and deletes that were missed. It can be verified.

WORMHOLE_COORDINATOR=shop.toml python -m examples.table_copy copy.db

The application has ``start = "existing"``, or ``wormholectl backfill start`` asks for the rows later.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from subscriber_sdk import UNAVAILABLE, Key, KeyRange, Op, ScanEnd, SchemaChange, Subscriber, Update, Value, run

__all__ = ["TableCopy"]


class TableCopy(Subscriber):
    """Writing a row twice does no harm, so at-least-once delivery needs no more care than this.

    Each row is stamped with the generation in which it arrived, in a READ or in a change. After a backfill, rows with
    an older stamp do not exist any more. Plain ``def``, because SQLite blocks: callbacks run in threads, those of
    several shards at one time.
    """

    def __init__(self, path: str) -> None:
        self.lock = threading.Lock()
        self.database = sqlite3.connect(path, check_same_thread=False)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS rows (name TEXT, key TEXT, shard TEXT, generation INTEGER, row TEXT, "
            "PRIMARY KEY (name, key))"
        )
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS columns (name TEXT, shard TEXT, names TEXT, PRIMARY KEY (name, shard))"
        )

    def on_updates(self, batch: Sequence[Update]) -> None:
        """One transaction for the batch."""
        with self.lock, self.database:
            for update in batch:
                self._apply(update)

    def on_schema(self, change: SchemaChange) -> None:
        """A dropped column goes from every row: no change of a row shows that."""
        place = (change.table, change.shard)
        names = [column.name for column in change.new.columns]
        with self.lock, self.database:
            found = self.database.execute("SELECT names FROM columns WHERE name = ? AND shard = ?", place).fetchone()
            self.database.execute("REPLACE INTO columns VALUES (?, ?, ?)", (*place, json.dumps(names)))
            if found and not set(json.loads(found[0])) <= set(names):
                self._drop_columns(place, names)

    def on_scan_end(self, end: ScanEnd) -> None:
        """Every row of the table in this shard has arrived: what has an older stamp is gone."""
        kept = set(map(to_text, end.except_keys))
        old = "SELECT key FROM rows WHERE name = ? AND shard = ? AND generation < ?"
        with self.lock, self.database:
            for (key,) in self.database.execute(old, (end.table, end.shard, end.generation)).fetchall():
                if key not in kept:
                    self._remove(end.table, key)

    def on_range(self, keys: KeyRange) -> None:
        """Single keys that were read again, as a repair does. Ranges are left to :meth:`on_scan_end`."""
        gone = "SELECT key FROM rows WHERE name = ? AND key = ? AND shard = ? AND generation < ?"
        with self.lock, self.database:
            for key in keys.keys - keys.except_keys:
                row = (keys.table, to_text(key), keys.shard, keys.generation)
                if self.database.execute(gone, row).fetchone():
                    self._remove(keys.table, to_text(key))

    def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Value]]:
        """The rows with these keys, with values as ``update.after`` had them."""
        query = "SELECT row FROM rows WHERE name = ? AND key = ? AND shard = ?"
        with self.lock:
            found = {key: self.database.execute(query, (table, to_text(key), shard)).fetchone() for key in keys}
        return {key: from_text(row[0]) for key, row in found.items() if row}

    def on_verify_keys(self, table: str, shard: str) -> Iterator[Key]:
        """Every key of the table in this shard, 1,000 at a time: other shards go on in between."""
        query = "SELECT key FROM rows WHERE name = ? AND shard = ? AND key > ? ORDER BY key LIMIT 1000"
        last = ""
        while True:
            with self.lock:
                found = self.database.execute(query, (table, shard, last)).fetchall()
            if not found:
                return
            for (last,) in found:
                yield tuple(from_text(last))

    def _apply(self, update: Update) -> None:
        if update.op is Op.TRUNCATE:
            self.database.execute("DELETE FROM rows WHERE name = ? AND shard = ?", (update.table, update.shard))
            return
        if not update.key or update.too_large:
            raise ValueError(f"{update.id}: {update.table} has no key, or the values were too large to be sent")
        before = self._remove(update.table, to_text(update.old_key or update.key))
        if update.op is Op.DELETE or update.left or update.after is None:
            return
        # READ is written like INSERT and UPDATE. An UPDATE may lack columns, which then stay as they are.
        row = {name: before.get(name, value) if value is UNAVAILABLE else value for name, value in update.after.items()}
        row = {name: value for name, value in row.items() if value is not UNAVAILABLE}
        values = (update.table, to_text(update.key), update.shard, update.generation, to_text(row))
        self.database.execute("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)

    def _drop_columns(self, place: tuple[str, str], names: Collection[str]) -> None:
        rows = self.database.execute("SELECT key, row FROM rows WHERE name = ? AND shard = ?", place)
        kept = [(to_text({n: v for n, v in from_text(row).items() if n in names}), place[0], key) for key, row in rows]
        self.database.executemany("UPDATE rows SET row = ? WHERE name = ? AND key = ?", kept)

    def _remove(self, table: str, key: str) -> dict[str, Any]:
        """Delete a row; returns the values that it had."""
        place = (table, key)
        found = self.database.execute("SELECT row FROM rows WHERE name = ? AND key = ?", place).fetchone()
        self.database.execute("DELETE FROM rows WHERE name = ? AND key = ?", place)
        return dict(from_text(found[0])) if found else {}


def to_text(values: Key | Mapping[str, Value]) -> str:
    """A key or a row as JSON, from which :func:`from_text` makes equal values."""
    if isinstance(values, Mapping):
        return json.dumps({name: _tagged(value) for name, value in values.items()})
    return json.dumps([_tagged(value) for value in values])


def from_text(text: str) -> Any:
    """Values of :func:`to_text`; those of a key as a list."""
    found: dict[str, Any] | list[Any] = json.loads(text)
    if isinstance(found, dict):
        return {name: _untagged(value) for name, value in found.items()}
    return [_untagged(value) for value in found]


def _tagged(value: Value) -> object:
    """What JSON has no type for is an object of one name, which is the type. No column holds an object else."""
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": value.hex()}
        case Mapping():
            return {"entries": [[name.hex(), entry.hex()] for name, entry in value.items()]}
        case _:
            return value


def _untagged(found: Any) -> Any:
    match found:
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"decimal": text}:
            return Decimal(text)
        case {"entries": entries}:
            return {bytes.fromhex(name): bytes.fromhex(entry) for name, entry in entries}
        case _:
            return found


if __name__ == "__main__":
    run(TableCopy(sys.argv[1]), application="copy")
