"""The program and the test that ``wormholectl init --start existing`` writes: a copy of tables in SQLite. Pure.

``of_bytes``: keys and values are bytes; else columns have types. Other arguments are parts of Python text: a literal
that stands as it is, or words within a docstring.
"""

from __future__ import annotations

from typing import Final

__all__ = ["copy_program", "copy_test"]

_ROWS: Final = """\
        if update.op is Op.TRUNCATE:
            self.database.execute("DELETE FROM rows WHERE name = ? AND shard = ?", (update.table, update.shard))
            return
        if not update.key:
            return  # a table without a key: its rows cannot be told apart
        before = self.remove(update.table, repr(update.old_key or update.key))
        if update.too_large:
            raise ValueError(f"{update.id}: the values were too large to be sent")
        if update.op is Op.DELETE or update.left:
            return
        # INSERT, UPDATE and READ; an UPDATE may lack columns, which then stay as they are
        after = {name: value for name, value in update.after.items() if value is not UNAVAILABLE}
        row = json.dumps({**before, **after}, default=repr)
"""

_BYTES: Final = """\
        if update.op is Op.DELETE_RANGE:
            bounds = (update.table, update.shard, update.key[0], update.key_end[0])
            self.database.execute("DELETE FROM rows WHERE name = ? AND shard = ? AND key >= ? AND key < ?", bounds)
            return
        if update.op is Op.MERGE or update.too_large:
            raise ValueError(f"{update.id}: apply your merge operator here, or read the value yourself")
        self.remove(update.table, update.key[0])
        if update.op is Op.DELETE or update.left:
            return
        row = repr(update.after["value"])  # UPSERT and READ
"""


def copy_program(source: str, application: str, toml: str, *, of_bytes: bool) -> str:
    """``source``: words; ``application`` and ``toml``: literals of its name and of the configuration's file name."""
    key = "update.key[0]" if of_bytes else "repr(update.key)"
    kept = "{key[0] for key in end.except_keys}" if of_bytes else "set(map(repr, end.except_keys))"
    kind = "BLOB" if of_bytes else "TEXT"
    imports = "" if of_bytes else "import json\n"
    names = "Op" if of_bytes else "UNAVAILABLE, Op"
    remove = (
        """\
    def remove(self, table, key):
        self.database.execute("DELETE FROM rows WHERE name = ? AND key = ?", (table, key))
"""
        if of_bytes
        else '''\
    def remove(self, table, key):
        """Returns the values that the row had."""
        row = self.database.execute("SELECT row FROM rows WHERE name = ? AND key = ?", (table, key)).fetchone()
        self.database.execute("DELETE FROM rows WHERE name = ? AND key = ?", (table, key))
        return json.loads(row[0]) if row else {}
'''
    )
    return f'''\
"""Keeps a copy of {source} in copy.db: the rows that its tables hold, and every committed change.

Start it with: python subscriber.py
"""

{imports}import sqlite3
import threading
from pathlib import Path

from subscriber_sdk import {names}, ScanEnd, Subscriber, run


class TableCopy(Subscriber):
    """An update comes at least once: after a crash some come again. Writing a row twice does no harm."""

    def __init__(self, path):
        self.lock = threading.Lock()  # callbacks of several shards run at one time
        self.database = sqlite3.connect(path, check_same_thread=False)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS rows (name TEXT, key {kind}, shard TEXT, generation INTEGER, row TEXT, "
            "PRIMARY KEY (name, key))"
        )

    def on_updates(self, batch) -> None:  # to return is "processed", to raise is "try again"
        with self.lock, self.database:  # one transaction
            for update in batch:
                self.apply(update)
                # `repr`: what is in a row must not control the terminal
                print(update.op.value, update.table, *map(repr, update.key), flush=True)

    def on_scan_end(self, end: ScanEnd) -> None:
        """Every row that this shard of the table holds has come: what has an older stamp does not exist any more."""
        kept = {kept}
        old = "SELECT key FROM rows WHERE name = ? AND shard = ? AND generation < ?"
        with self.lock, self.database:
            for (key,) in self.database.execute(old, (end.table, end.shard, end.generation)).fetchall():
                if key not in kept:
                    self.remove(end.table, key)

    def apply(self, update) -> None:
        """READ is a row that was there already. It is written like a change."""
{_BYTES if of_bytes else _ROWS}\
        values = (update.table, {key}, update.shard, update.generation, row)
        self.database.execute("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)

{remove}

if __name__ == "__main__":
    here = Path(__file__).parent
    run(TableCopy(here / "copy.db"), application={application}, coordinator=str(here / {toml}))
'''  # noqa: S608 - text, not a query


def copy_test(table: str, *, of_bytes: bool) -> str:
    """``table``: a literal of the name of the table that it is about."""
    if of_bytes:
        keys = ['b"user:7"', 'b"user:8"', 'b"user:9"']
        values = ['{"value": b"Ada"}', '{"value": b"Bob"}']
        change = f"update(TABLE, key={keys[2]}, op=Op.UPSERT, after={values[0]})"
        delete = f"update(TABLE, key={keys[1]}, op=Op.DELETE)"
        barrier = 'update(TABLE, key=b"user:", key_end=b"user;", op=Op.DELETE_RANGE)'
        shown = keys
    else:
        keys = ["7", "8", "9"]
        values = ['{"name": "Ada"}', '{"name": "Bob"}']
        change = f"update(TABLE, key={keys[2]}, after={values[0]})"
        delete = f"update(TABLE, key={keys[1]}, before={values[1]})"
        barrier = "update(TABLE, key=(), op=Op.TRUNCATE)"
        shown = [f'"({key},)"' for key in keys]
    first, second = (f"read(TABLE, key={keys[i]}, after={values[i]})" for i in range(2))
    return f'''\
"""Drives subscriber.py through existing rows, commits and a crash, without any server: `wormhole_kit` comes with the
package.

Run it with: pytest test_subscriber.py
"""

from subscriber_sdk import Op
from subscriber_sdk.testing import read, update

from subscriber import TableCopy

TABLE = {table}
ROWS = [{first}, {second}]


def keys(copy):
    return [key for (key,) in copy.database.execute("SELECT key FROM rows ORDER BY key")]


def test_existing_rows_and_changes_are_in_the_copy_once(wormhole_kit):
    flow = wormhole_kit.attach(copy := TableCopy(":memory:"))
    flow.backfill(TABLE, ROWS)
    assert keys(copy) == [{shown[0]}, {shown[1]}]
    flow.commit({change})
    flow.commit({delete})
    flow.crash_and_redeliver(2)  # nothing was acknowledged: the same comes again
    assert keys(copy) == [{shown[0]}, {shown[2]}]
    flow.commit({barrier})
    assert keys(copy) == []


def test_a_row_that_is_gone_leaves_the_copy_with_the_next_backfill(wormhole_kit):
    flow = wormhole_kit.attach(copy := TableCopy(":memory:"))
    flow.backfill(TABLE, ROWS)
    flow.backfill(TABLE, ROWS[:1])
    assert keys(copy) == [{shown[0]}]
'''  # noqa: S608 - text, not a query
