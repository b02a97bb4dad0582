"""The program and the test that ``wormholectl init --start existing`` writes: a copy of tables in SQLite. Pure.

``of_bytes``: whether keys and values are bytes; otherwise columns have types. Other arguments are parts of Python text:
a literal, or words of a docstring. ``_PROGRAM`` and ``_TEST`` are the templates for both kinds of datastore. The other
constants are the parts that differ.
"""

from __future__ import annotations

from string import Template
from typing import Final

__all__ = ["PRINTED", "SHOW", "copy_program", "copy_test"]

PRINTED: Final = "PRINTED = 50  # updates a second, so that a busy table does not fill a terminal\n"
SHOW: Final = '''\
    def show(self, update) -> None:
        """Print the first updates of each second. `repr`: what is in a row must not control the terminal."""
        if self.second != (now := int(time.monotonic())):
            self.second, self.shown = now, 0
        self.shown += 1
        if self.shown <= PRINTED:
            print(update.op.value, update.table, *map(repr, update.key), flush=True)
'''
"""A method of both written programs. ``self.shown`` counts the updates of the second ``self.second``."""

_ROWS: Final = """\
        if update.op is Op.TRUNCATE:
            self.database.execute("DELETE FROM rows WHERE name = ? AND shard = ?", (update.table, update.shard))
            return
        if not update.key:
            self.note(update.table, "has no key, so its rows are not copied; `skip_tables` leaves the table out")
            return
        if update.too_large:
            raise ValueError(f"{update.id}: the values were too large to be sent")
        before = self.remove(update.table, stored(update.old_key or update.key))
        if update.op is Op.DELETE or update.left:
            return
        # INSERT, UPDATE and READ; an UPDATE may lack values, which then stay as they are
        row = {name: before.get(name, value) if value is UNAVAILABLE else value for name, value in update.after.items()}
        row = {name: value for name, value in row.items() if value is not UNAVAILABLE}
"""

_BYTES: Final = """\
        if update.op is Op.DELETE_RANGE:
            bounds = (update.table, update.shard, update.key[0], update.key_end[0])
            self.database.execute("DELETE FROM rows WHERE name = ? AND shard = ? AND key >= ? AND key < ?", bounds)
            return
        if update.op is Op.MERGE or update.too_large:
            raise ValueError(f"{update.id}: apply your merge operator here, or read the value yourself")
        self.remove(update.table, stored(update.key))
        if update.op is Op.DELETE or update.left:
            return
        row = update.after  # UPSERT and READ
"""

_STORED_ROWS: Final = '''\
def stored(key):
    """A key as the copy holds it; `key_of` is the inverse."""
    return json.dumps([tagged(value) for value in key])


def key_of(text):
    return tuple(map(untagged, json.loads(text)))
'''

_STORED_BYTES: Final = '''\
def stored(key):
    """A key as the copy holds it; `key_of` is the inverse."""
    return key[0]


def key_of(data):
    return (data,)
'''


_PROGRAM: Final = Template('''\
"""Keeps a copy of $source in copy.db: the rows that its tables hold, and every committed change.

Start it with: python subscriber.py
`wormholectl verify` compares the copy with its source.
"""

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from subscriber_sdk import $names, ScanEnd, SchemaChange, Subscriber, run

$printed

class TableCopy(Subscriber):
    """An update comes at least once: after a crash some come again. Writing a row twice does no harm.

    Each row has the generation in which it came: after a backfill, a row with an older one does not exist any more.
    """

    def __init__(self, path):
        self.lock = threading.Lock()  # callbacks of several shards run at one time
        self.second = self.shown = 0
        self.noted = set()
        self.database = sqlite3.connect(path, check_same_thread=False)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS rows (name TEXT, key $type, shard TEXT, "
            "generation INTEGER, row TEXT, PRIMARY KEY (name, key))"
        )
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS columns (name TEXT, shard TEXT, types TEXT, PRIMARY KEY (name, shard))"
        )

    def on_updates(self, batch) -> None:  # to return is "processed", to raise is "try again"
        with self.lock, self.database:  # one transaction
            for update in batch:
                self.apply(update)
                self.show(update)

    def on_schema(self, change: SchemaChange) -> None:
        """A dropped column goes from every row: no change of a row shows that."""
        place = (change.table, change.shard)
        types = {column.name: column.type for column in change.new.columns}
        with self.lock, self.database:
            before = self.types(*place)
            self.database.execute("REPLACE INTO columns VALUES (?, ?, ?)", (*place, json.dumps(types)))
            if before.keys() - types.keys():
                self.drop_columns(place, types)
        if before and (change.key_changed or types.items() - before.items()):
            self.note(change.table, "has new columns, types or keys; `wormholectl backfill start` reads its rows again")

    def on_scan_end(self, end: ScanEnd) -> None:
        """Every row that this shard of the table holds has come: what has an older stamp does not exist any more."""
        kept = set(map(stored, end.except_keys))
        old = "SELECT key FROM rows WHERE name = ? AND shard = ? AND generation < ?"
        with self.lock, self.database:
            for (key,) in self.database.execute(old, (end.table, end.shard, end.generation)).fetchall():
                if key not in kept:
                    self.remove(end.table, key)

    def on_range(self, keys: KeyRange) -> None:
        """Single keys that were read again, as a repair does; `on_scan_end` is enough for a backfill."""
        gone = "SELECT key FROM rows WHERE name = ? AND key = ? AND shard = ? AND generation < ?"
        with self.lock, self.database:
            for key in map(stored, keys.keys - keys.except_keys):
                if self.database.execute(gone, (keys.table, key, keys.shard, keys.generation)).fetchone():
                    self.remove(keys.table, key)

    def on_verify(self, table, shard, keys):
        """The rows with these keys. A column that the copy does not have yet is compared as NULL."""
        query = "SELECT row FROM rows WHERE name = ? AND key = ? AND shard = ?"
        with self.lock:
            names = self.types(table, shard)
            found = {key: self.database.execute(query, (table, stored(key), shard)).fetchone() for key in keys}
        return {key: dict.fromkeys(names) | row_of(row[0]) for key, row in found.items() if row}

    def on_verify_keys(self, table, shard):
        """Every key of the table in this shard, 1,000 at a time: other shards go on in between."""
        query = "SELECT key FROM rows WHERE name = ?1 AND shard = ?2 AND (?3 IS NULL OR key > ?3) ORDER BY key"
        last = None
        while True:
            with self.lock:
                found = self.database.execute(f"{query} LIMIT 1000", (table, shard, last)).fetchall()
            if not found:
                return
            for (last,) in found:
                yield key_of(last)

    def apply(self, update) -> None:
        """READ is a row that was there already. It is written like a change."""
$apply\
        values = (update.table, stored(update.key), update.shard, update.generation, text_of(row))
        self.database.execute("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)

    def remove(self, table, key):
        """Returns the values that the row had."""
        row = self.database.execute("SELECT row FROM rows WHERE name = ? AND key = ?", (table, key)).fetchone()
        self.database.execute("DELETE FROM rows WHERE name = ? AND key = ?", (table, key))
        return row_of(row[0]) if row else {}

    def types(self, table, shard):
        """The columns that the table had last, with the types of their values."""
        row = self.database.execute("SELECT types FROM columns WHERE name = ? AND shard = ?", (table, shard)).fetchone()
        return json.loads(row[0]) if row else {}

    def drop_columns(self, place, kept):
        found = self.database.execute("SELECT key, row FROM rows WHERE name = ? AND shard = ?", place).fetchall()
        for key, row in found:
            left = text_of({name: value for name, value in row_of(row).items() if name in kept})
            self.database.execute("UPDATE rows SET row = ? WHERE name = ? AND key = ?", (left, place[0], key))

    def note(self, table, what):
        """Once for each table, although each of its shards has it."""
        if (table, what) not in self.noted:
            self.noted.add((table, what))
            print(f"{table!r} {what}", file=sys.stderr, flush=True)

$show

$stored

def text_of(row):
    """A row as JSON, from which `row_of` makes equal values."""
    return json.dumps({name: tagged(value) for name, value in row.items()})


def row_of(text):
    return {name: untagged(value) for name, value in json.loads(text).items()}


def tagged(value):
    """What JSON has no type for is an object of one name, which is the type. No column holds an object else."""
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Mapping):
        return {"entries": [[name.hex(), entry.hex()] for name, entry in value.items()]}
    return value


def untagged(found):
    match found:
        case {"decimal": text}:
            return Decimal(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"entries": entries}:
            return {bytes.fromhex(name): bytes.fromhex(entry) for name, entry in entries}
    return found


if __name__ == "__main__":
    here = Path(__file__).parent
    run(TableCopy(here / "copy.db"), application=$application, coordinator=str(here / $toml))
''')


def copy_program(source: str, application: str, toml: str, *, of_bytes: bool) -> str:
    """The program. ``source``: the source in words; ``application`` and ``toml``: Python literals of the application's
    name and of the configuration's file name."""
    return _PROGRAM.substitute(
        source=source,
        application=application,
        toml=toml,
        names="KeyRange, Op" if of_bytes else "UNAVAILABLE, KeyRange, Op",
        type="BLOB" if of_bytes else "TEXT",
        apply=_BYTES if of_bytes else _ROWS,
        stored=_STORED_BYTES if of_bytes else _STORED_ROWS,
        printed=PRINTED,
        show=SHOW,
    )


_TEST: Final = Template('''\
"""Drives subscriber.py through existing rows, commits, a crash and a verification, without any server: `wormhole_kit`
comes with the package.

Run it with: pytest test_subscriber.py
"""

${imports}from subscriber_sdk import Op
from subscriber_sdk.testing import read, update

from subscriber import $used

TABLE = $table
ROWS = [
    $rows,
]


def keys(copy):
    return [key_of(key) for (key,) in copy.database.execute("SELECT key FROM rows ORDER BY key")]


def test_existing_rows_and_changes_are_in_the_copy_once(wormhole_kit):
    flow = wormhole_kit.attach(copy := TableCopy(":memory:"))
    flow.backfill(TABLE, ROWS)
    assert keys(copy) == [$both]
    flow.commit($change)
    flow.commit($delete)
    flow.crash_and_redeliver(2)  # nothing was acknowledged: the same comes again
    assert keys(copy) == [$first, $third]
    flow.commit($barrier)
    assert keys(copy) == []


def test_a_row_that_is_gone_leaves_the_copy_with_the_next_backfill(wormhole_kit):
    flow = wormhole_kit.attach(copy := TableCopy(":memory:"))
    flow.backfill(TABLE, ROWS)
    flow.backfill(TABLE, ROWS[:1])
    assert keys(copy) == [$first]


def test_the_copy_is_equal_to_its_source_and_is_repaired_where_it_is_not(wormhole_kit):
    flow = wormhole_kit.attach(copy := TableCopy(":memory:"))
    flow.backfill(TABLE, ROWS)
    assert flow.verify(TABLE, ROWS).equal  # every value, whatever its type
    copy.database.execute("UPDATE rows SET row = '{}'")
    assert not flow.verify(TABLE, ROWS[:1]).equal
    flow.verify(TABLE, ROWS[:1], repair=True)
    assert flow.verify(TABLE, ROWS[:1]).equal
    assert keys(copy) == [$first]
$more''')

_DROPPED: Final = """

def test_a_dropped_column_goes_from_every_row(wormhole_kit):
    flow = wormhole_kit.attach(copy := TableCopy(":memory:"))
    flow.backfill(TABLE, ROWS)
    flow.commit(update(TABLE, key=9, after={"name": "Eve"}))  # `paid` is gone
    assert [row_of(row) for (row,) in copy.database.execute("SELECT row FROM rows ORDER BY key")] == [
        {"name": "Ada"},
        {"name": b"\\xff"},
        {"name": "Eve"},
    ]
"""


def copy_test(table: str, *, of_bytes: bool) -> str:
    """The test. ``table``: a Python literal of the name of its table."""
    if of_bytes:
        names = {
            "keys": ['b"user:7"', 'b"user:8"', 'b"user:9"'],
            "values": ['{"value": b"Ada"}', '{"value": b"\\xff\\x00"}'],
        }
        change = 'update(TABLE, key=b"user:9", op=Op.UPSERT, after={"value": b"Eve"})'
        delete = 'update(TABLE, key=b"user:8", op=Op.DELETE)'
        barrier = 'update(TABLE, key=b"user:", key_end=b"user;", op=Op.DELETE_RANGE)'
    else:
        names = {
            "keys": ["7", "8", "9"],
            "values": ['{"name": "Ada", "paid": Decimal("12.50")}', '{"name": b"\\xff", "paid": None}'],
        }
        change = 'update(TABLE, key=9, after={"name": "Eve", "paid": 0.5})'
        delete = 'update(TABLE, key=8, before={"name": b"\\xff", "paid": None})'
        barrier = "update(TABLE, key=(), op=Op.TRUNCATE)"
    return _TEST.substitute(
        table=table,
        rows=",\n    ".join(
            f"read(TABLE, key={k}, after={v})" for k, v in zip(names["keys"], names["values"], strict=False)
        ),
        change=change,
        delete=delete,
        barrier=barrier,
        used="TableCopy, key_of" if of_bytes else "TableCopy, key_of, row_of",
        more="" if of_bytes else _DROPPED,
        imports="" if of_bytes else "from decimal import Decimal\n\n",
        first=f"({names['keys'][0]},)",
        third=f"({names['keys'][2]},)",
        both=f"({names['keys'][0]},), ({names['keys'][1]},)",
    )
