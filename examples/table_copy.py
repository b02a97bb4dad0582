"""Keeps a copy of tables in SQLite: existing rows, every change, and deletes that were missed.

python -m examples.table_copy copy.db

The application has ``start = "existing"``, or ``wormholectl backfill start`` asks for the rows later.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections.abc import Sequence
from typing import Any

from subscriber_sdk import UNAVAILABLE, Op, ScanEnd, Subscriber, Update, run

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

    def on_updates(self, batch: Sequence[Update]) -> None:
        """One transaction for the batch."""
        with self.lock, self.database:
            for update in batch:
                self._apply(update)

    def on_scan_end(self, end: ScanEnd) -> None:
        """Every row of the table in this shard has arrived: what has an older stamp is gone."""
        kept = set(map(repr, end.except_keys))
        old = "SELECT key FROM rows WHERE name = ? AND shard = ? AND generation < ?"
        with self.lock, self.database:
            for (key,) in self.database.execute(old, (end.table, end.shard, end.generation)).fetchall():
                if key not in kept:
                    self._remove(end.table, key)

    def _apply(self, update: Update) -> None:
        if update.op is Op.TRUNCATE:
            self.database.execute("DELETE FROM rows WHERE name = ? AND shard = ?", (update.table, update.shard))
            return
        if not update.key or update.too_large:
            raise ValueError(f"{update.id}: {update.table} has no key, or the values were too large to be sent")
        before = self._remove(update.table, repr(update.old_key or update.key))
        if update.op is Op.DELETE or update.left or update.after is None:
            return
        # READ is written like INSERT and UPDATE. An UPDATE may lack columns, which then stay as they are.
        after = {name: value for name, value in update.after.items() if value is not UNAVAILABLE}
        row = json.dumps({**before, **after}, default=repr)
        values = (update.table, repr(update.key), update.shard, update.generation, row)
        self.database.execute("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)

    def _remove(self, table: str, key: str) -> dict[str, Any]:
        """Delete a row; returns the values that it had."""
        place = (table, key)
        found = self.database.execute("SELECT row FROM rows WHERE name = ? AND key = ?", place).fetchone()
        self.database.execute("DELETE FROM rows WHERE name = ? AND key = ?", place)
        return dict(json.loads(found[0])) if found else {}


if __name__ == "__main__":
    run(TableCopy(sys.argv[1]), application="copy")
