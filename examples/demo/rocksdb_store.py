"""The demo on RocksDB: a store with default options, which the writer's process owns, written through rocksdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rocksdict import AccessType, Options, Rdict, WriteBatch

from examples.demo.datastore import Content, Datastore, Store
from examples.demo.journal import digest
from examples.demo.workload import TABLES, Change

__all__ = ["DemoDatastore", "DemoStore"]


def _options() -> Options:
    return Options(raw_mode=True)  # raw: keys and values are bytes; everything else is RocksDB's default


class DemoStore(Store):
    """The RocksDB at ``place`` with one column family for each table.

    Each chore lets RocksDB delete its log, and so does the graceful end.
    """

    chores: ClassVar[Mapping[str, Sequence[float]]] = {"flush": (0.3, 0.8), "reopen": (0.55,)}

    def __init__(self, place: str) -> None:
        self._path = Path(place)
        self._open()

    def _open(self) -> None:
        there = Rdict.list_cf(str(self._path), _options()) if (self._path / "CURRENT").exists() else []
        self._db = Rdict(str(self._path), _options(), column_families={name: _options() for name in there})
        self._families = {
            name: self._db.get_column_family(name) if name in there else self._db.create_column_family(name, _options())
            for name in TABLES
        }
        self._handles = {name: self._db.get_column_family_handle(name) for name in TABLES}

    def commit(self, changes: Sequence[Change]) -> None:
        batch = WriteBatch(raw_mode=True)
        for change in changes:
            if change.value is None:
                batch.delete(change.key, self._handles[change.table])
            else:
                batch.put(change.key, change.value, self._handles[change.table])
        self._db.write(batch)

    def do(self, chore: str) -> str:
        if chore == "flush":
            for family in self._families.values():
                family.flush(wait=False)  # RocksDB writes the tables out in the background
        else:
            self.close()
            self._open()
        return f"the store was {chore}ed: RocksDB has deleted its old log, the publisher pinned it"

    def close(self) -> None:
        self._handles.clear()
        for family in self._families.values():
            family.close()
        self._families.clear()
        self._db.close()


class DemoDatastore(Datastore):
    """There is no server: the store is a folder."""

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def place(self) -> str:
        return str(self.folder / "store")

    @property
    def source(self) -> str:
        return f'source = "rocksdb://{self.place}"'

    @property
    def told(self) -> str:
        return "RocksDB, default options, column families users and orders"

    def content(self) -> Content:
        families = {name: _options() for name in ("default", *TABLES)}
        database = Rdict(self.place, _options(), column_families=families, access_type=AccessType.read_only())
        content: dict[tuple[str, str], str] = {}
        for table in TABLES:
            family = database.get_column_family(table)
            content.update(((table, _bytes(key).decode()), digest(_bytes(value))) for key, value in family.items())
            family.close()
        database.close()
        return content


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)  # raw mode
    return value
