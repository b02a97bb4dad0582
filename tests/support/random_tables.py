"""Two tables with random transactions and DDL, and the log of both: the datastore of the model of a backfill."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from wormhole.model.position import Datamarker
from wormhole.model.schema import Column
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.changes import Change
from wormhole.ports.changes import Key as ChangeKey
from wormhole.wire.rows import encode_key

Key = tuple[Value, ...]

IDS: Final = range(10)
TABLES: Final = ("t", "u")
_LARGE: Final = 400
_KINDS: Final = ("whole", "part", "delete", "move", "move part", "merge", "large", "again")
_OTHER_KEY: Final = (Column("id", "int"), Column("part", "int"))


class RandomTables:
    """A row is one of ten in its table; the column ``v`` has a number that rises with every change.

    ``replayable``: no change depends on the former values of a row, so that changes may come twice.
    """

    def __init__(self, chance: random.Random, sharding: Sharding, order: Callable[[Key], Any], *, replayable: bool):
        self._chance = chance
        self._replayable = replayable
        self._version = 1
        self._columns = {table: ["a"] for table in TABLES}
        self._named = len(TABLES)
        left_out = {"move part", "merge"} if replayable else set()
        favourites = chance.sample(_KINDS, chance.randrange(3))
        self._kinds = [kind for kind in (*_KINDS, "part", *favourites * 3) if kind not in left_out]
        most = chance.choice([_LARGE // 2, 10_000])
        self.source = MemorySource("log", sharding, now_us=lambda: 0, max_update_bytes=most)
        self.tables = MemoryTables(self.source, order=order)
        self.rekeyed: dict[str, Datamarker] = {}
        """Where a table got another key."""
        self.markers = [self.source.commit([(Op.INSERT, table, _named((0,)), {"v": 1, "a": 1}) for table in TABLES])]
        """After each transaction."""
        for _ in range(chance.randrange(8)):
            self.commit()

    @property
    def shards(self) -> list[str]:
        """In alphabetical order."""
        return sorted(self.source.shards())

    def rows(self, shard: str, marker: Datamarker | None = None) -> dict[tuple[str, Key], dict[str, Value]]:
        """The rows of one shard, by table and key, after ``marker``; ``None``: now."""
        return {
            (table, key): row
            for table, rows in self.tables.all_rows(marker).items()
            for key, row in rows.items()
            if self.tables.shard_of(table, encode_key(key)) == shard
        }

    def commit(self) -> None:
        """A random transaction."""
        rows = self.tables.all_rows()
        now = {table: set(rows.get(table, ())) for table in TABLES}
        changes = []
        for _ in range(self._chance.randrange(1, 4)):
            table = self._chance.choice(TABLES)
            changes.append(self._change(table, now[table]))
        self.markers.append(self.source.commit(changes))

    def commit_partial(self) -> None:
        """A transaction that leaves out values of one row: they have to be read again, if they were not sent."""
        table = self._chance.choice(TABLES)
        keys = set(self.tables.all_rows().get(table, ()))
        if keys:
            kind = "large" if self._replayable else self._chance.choice(["move part", "merge", "large"])
            self.markers.append(self.source.commit([self._change_of(table, keys, self._some(keys), kind)]))

    def alter(self) -> None:
        """A random ALTER TABLE."""
        table = self._chance.choice(TABLES)
        columns = self._columns[table]
        what = self._chance.choice(["add", "drop", "key"])
        if what == "add" and len(columns) < 3:
            # The log shows the column with the next change. No name is used twice: copies would keep former values.
            self._named += 1
            columns.append(f"a{self._named}")
        elif what == "drop" and columns:
            gone = columns.pop(self._chance.randrange(len(columns)))
            self.markers.append(self.source.alter(table, without=(gone,)))
        elif what == "key" and table not in self.rekeyed:
            marker = self.source.alter(table, key=_OTHER_KEY, new_key=_rekeyed)
            self.rekeyed[table] = marker
            self.markers.append(marker)

    def _key(self, table: str, id_: int) -> Key:
        return (id_, id_ % 2) if table in self.rekeyed else (id_,)

    def _some(self, keys: set[Key]) -> Key:
        return self._chance.choice(sorted(keys, key=repr))

    def _change(self, table: str, keys: set[Key]) -> Change:
        chance = self._chance
        key = self._key(table, chance.choice(IDS))
        if chance.random() < 0.02:
            keys.clear()
            return Change(Op.TRUNCATE, table)
        if key not in keys:
            keys.add(key)
            return Change(chance.choice([Op.INSERT, Op.UPSERT]), table, _named(key), self._row(table))
        return self._change_of(table, keys, key, chance.choice(self._kinds))

    def _change_of(self, table: str, keys: set[Key], key: Key, kind: str) -> Change:
        """A change of the row ``key``, which exists."""
        whole, columns = self._row(table), self._columns[table]
        part = {name: UNAVAILABLE if name in columns else value for name, value in whole.items()}
        free = {other for id_ in IDS if (other := self._key(table, id_)) not in keys}
        match kind:
            case "move" | "move part" if free:
                to = self._some(free)
                keys.remove(key)
                keys.add(to)
                after = whole if kind == "move" else part
                return Change(Op.UPDATE, table, _named(to), after, old_key=_named(key))
            case "delete":
                keys.remove(key)
                return Change(Op.DELETE, table, _named(key))
            case "merge" if columns:
                return Change(Op.MERGE, table, _named(key), {columns[0]: 1})
            case "large" if columns:
                return Change(Op.UPDATE, table, _named(key), {**whole, columns[0]: "x" * _LARGE})
            case "part":
                return Change(Op.UPDATE, table, _named(key), part)
            case _:
                return Change(Op.UPDATE if kind == "whole" else Op.UPSERT, table, _named(key), whole)

    def _row(self, table: str) -> dict[str, Value]:
        self._version += 1
        return {"v": self._version, **{name: self._chance.randrange(100) for name in self._columns[table]}}


def _rekeyed(key: Key) -> Key:
    """The key of a row after an ALTER: another column, in another order."""
    id_ = len(IDS) - 1 - int(str(key[0]))
    return id_, id_ % 2


def _named(key: Key) -> ChangeKey:
    return dict(zip(("id", "part"), key, strict=False))
