"""Keeps the descriptions of a log's readable tables, and the boundaries of their chunks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from typing import Final

from caravan.backfill.boundaries import Boundaries, BoundaryStore
from wormhole.ports.table_source import ScannedTable, TableSource

__all__ = ["TableLists"]

_MOST: Final = 1 << 16  # limit of one table's boundaries: above it every second boundary is forgotten


class TableLists:
    """The tables and their boundaries. Methods may block; used by one thread at a time.

    ``tables``: as the datastore described them last. ``lists``: the lists of the readable tables.
    """

    def __init__(self, source: TableSource, store: BoundaryStore) -> None:
        self.tables: dict[str, ScannedTable] = {}
        self.lists: dict[str, Boundaries] = {}
        self._source = source
        self._store = store

    def load(self, wanted: Callable[[str], bool], named: Collection[str]) -> None:
        """Read the descriptions of the ``wanted`` tables again. ``named``: the names that were written out in full. A
        table whose key changed gets a new list.

        Raises the errors of :meth:`~wormhole.ports.table_source.TableSource.tables`, and ``OSError``.
        """
        self.tables = {table.name: table for table in self._source.tables(wanted, named)}
        lists = {}
        for table in self.tables.values():
            if not table.refused:
                known = self.lists.get(table.name)
                if known is None:
                    known = self._store.load(table.name)
                if known is None or known.fingerprint != table.fingerprint:
                    known = self.renew(table.name)
                lists[table.name] = known
        self.lists = lists

    def renew(self, table: str) -> Boundaries:
        """Begin another list. A flow that read a part of the table reads it again. Raises ``OSError``."""
        fresh = Boundaries(_new_id(), self.tables[table].fingerprint)
        self._store.replace(table, fresh)
        self.lists[table] = fresh
        return fresh

    def split(self, table: str, begin: int, end: int, key: bytes) -> int | None:
        """The number of ``key``, where a chunk ended between two neighbours. It is durable when this returns. ``None``:
        no number is free. Raises ``OSError``.
        """
        boundaries = self.lists[table]
        number = boundaries.place(begin, end, key)
        if number is not None:
            self._store.add(table, boundaries, number, key)
            boundaries.add(number, key)
        return number

    def thin(self, table: str) -> int | None:
        """Shorten a list that became too long. Returns its former id; ``None``: it is not too long. Raises
        ``OSError``.
        """
        boundaries = self.lists[table]
        if len(boundaries) <= _MOST:
            return None
        former = boundaries.id
        boundaries.thin(_new_id())
        self._store.replace(table, boundaries)
        return former


def _new_id() -> int:
    return int.from_bytes(secrets.token_bytes(8), "big")
