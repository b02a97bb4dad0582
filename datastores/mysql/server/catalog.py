"""Keeps the tables that a log's subscribers may know. ``DROP DATABASE`` names no table, but is reported for each table.

A table enters the catalog when a reader meets it in the log, when a statement creates it, or if the server has it when
a reader is opened. The catalog is on disk before anything read after that place is returned. So after a crash it is
complete for every datamarker of this publisher. Names of dropped tables are kept, because another flow may be further
behind in the log. A barrier for a table that does not exist changes nothing.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from datastores.mysql.decode.name_folding import fold, fold_newest
from wormhole.model.errors import SourceUnavailable
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["MOST", "Catalog", "Keys"]

_log = logging.getLogger(__name__)

MOST: Final = 100_000
"""The most names kept of tables that the server no longer has; twice as many for a short time. The names of all tables
that it has are kept."""

_KEYED, _KEYLESS = 1, 2

Table = tuple[str, str]
Keys = Mapping[Table, tuple[str, ...]]
"""The folded names of the columns of each table's key, by table."""
_NONE: Final[Keys] = MappingProxyType({})


class Catalog:
    """The catalog, shared by all readers of a source. Thread-safe.

    ``path``: a file with a line of JSON for each table, in the order in which they became known. ``folds``: whether the
    server ignores case in names (``lower_case_table_names`` is not 0). ``listed_keys``: the keys in the server's last
    answer. Equal answers are one object, because readers keep it.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.folds = False
        self.listed_keys = _NONE
        self._path = path
        self._most = most
        self._lock = threading.Lock()
        self._tables: dict[Table, int] = {}
        self._folded: dict[Table, Table] = {}
        self._unsaved: dict[Table, None] = {}
        self._forgotten = 0
        self._there: set[Table] = set()  # the tables in the server's last answer
        for table, keys in _read(path):
            self._add(table, keys)
        self._unsaved.clear()
        self._whole = False  # whether the file was rewritten without lines that a crash cut

    @property
    def problem(self) -> Problem:
        """The present problem, for an operator; empty: none."""
        if not self._forgotten:
            return NO_PROBLEM
        return Problem(
            f"the names of {self._forgotten} dropped tables were forgotten, because {self._path} holds at most "
            f"{self._most} of them: a flow that is still before their DROP DATABASE gets no TRUNCATE of them",
            "let lagging flows catch up; the publisher's next start clears this",
            code="log-kept-short",
        )

    def present(self, tables: Iterable[tuple[str, str, bool | None]], *, folds: bool, keys: Keys = _NONE) -> None:
        """Record the server's tables, and save the catalog. ``tables``: database, table, and whether it has a primary
        key, if known. ``keys``: see ``listed_keys``."""
        with self._lock:
            self.folds = folds
            if keys != self.listed_keys:
                self.listed_keys = keys
            self._folded = {_folded(table): table for table in self._tables} if folds else {}
            there = set()
            for database, table, keyed in tables:
                there.add((database, table))
                self._add((database, table), _keys(keyed))
            self._there = there
            self._forget()
        self.save()

    def note(self, database: str, table: str, keyed: bool | None = None) -> None:
        """Record a table that is in the log or that a statement created. :meth:`save` makes it durable."""
        with self._lock:
            self._add((database, table), _keys(keyed))
            if len(self._tables) > len(self._there) + 2 * self._most:
                self._forget()

    def save(self) -> None:
        """Make the recorded tables durable. Raises :class:`SourceUnavailable` if the disk fails."""
        if not self._unsaved and self._whole:
            return
        with self._lock:
            try:
                if self._whole:
                    self._write(self._path, "a", self._unsaved)
                else:
                    temporary = self._path.with_suffix(".new")
                    self._write(temporary, "w", self._tables)
                    temporary.replace(self._path)
            except OSError as error:
                self._whole = False
                raise SourceUnavailable(
                    f"{self._path} cannot be written: {error.strerror}",
                    hint="make space in the publisher's state_dir",
                    code="file-unwritable",
                ) from error
            self._whole = True
            self._unsaved.clear()

    def of_database(self, database: str) -> list[str]:
        """The database's tables, as the log spells them, in the order in which they became known."""
        wanted = fold(database) if self.folds else database
        with self._lock:
            return [name for (of, name) in self._tables if (fold(of) if self.folds else of) == wanted]

    def all(self) -> list[Table]:
        """Every table."""
        with self._lock:
            return list(self._tables)

    def spelled(self, database: str, table: str, *, exists: bool = True) -> Table:
        """The table's name as the log spells it, which is the name that subscribers know.

        ``exists``: the server has had such a table. If no known table has the name, a known name may differ in the case
        of a letter that only newer servers fold.
        """
        name = database, table
        if not self.folds or name in self._tables:
            return name
        with self._lock:
            found = self._folded.get(_folded(name), name)
        return found if exists or tuple(map(fold, found)) == tuple(map(fold, name)) else name

    def keys(self, database: str, table: str) -> tuple[bool, bool]:
        """Whether the table may have had a primary key, and whether it was ever without one."""
        keys = self._tables.get((database, table), 0)
        return keys != _KEYLESS, bool(keys & _KEYLESS)

    # --- inside, with the lock held ----------------------------------------------------------------------------

    def _add(self, table: Table, keys: int) -> None:
        before = self._tables.get(table)
        if before is None or before | keys != before:
            self._tables[table] = (before or 0) | keys
            self._unsaved[table] = None
            if self.folds:
                self._folded.setdefault(_folded(table), table)

    def _forget(self) -> None:
        gone = [table for table in self._tables if table not in self._there]
        for table in gone[: max(0, len(gone) - self._most)]:
            del self._tables[table]
            self._unsaved.pop(table, None)
            if self._folded.get(_folded(table)) == table:
                del self._folded[_folded(table)]
            self._forgotten += 1
            self._whole = False

    def _write(self, path: Path, mode: str, tables: Iterable[Table]) -> None:
        with path.open(mode, encoding="ascii") as file:
            file.writelines(json.dumps([*table, self._tables[table]]) + "\n" for table in tables)
            file.flush()
            os.fsync(file.fileno())


def _keys(keyed: bool | None) -> int:
    return 0 if keyed is None else _KEYED if keyed else _KEYLESS


def _folded(table: Table) -> Table:
    return fold_newest(table[0]), fold_newest(table[1])


def _read(path: Path) -> Iterator[tuple[Table, int]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.splitlines():
        try:
            database, table, keys = json.loads(line)
            yield (str(database), str(table)), int(keys)
        except (ValueError, TypeError):  # a crash cut the line before anything read after it was returned
            _log.warning("%s has a line that cannot be read, which is left out: %r", path, line[:80])
