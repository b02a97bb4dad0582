"""The database port for DuckDB: a file that only one process can have open."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow

from sinks.sql.arrays import Arrays
from sinks.sql.database import Columns, Data, Own
from sinks.sql.schema import Dialect, TargetColumn, TargetTable
from subscriber_sdk.transactional import sql
from subscriber_sdk.transactional.sql import Values
from subscriber_sdk.transactional.store import Session, Store
from wormhole.model.errors import TargetRefused, TargetUnavailable

__all__ = ["DuckDb"]

_DIALECT: Final = replace(
    sql.SQLITE,
    name="DuckDB",
    engine="SELECT 'DuckDB' FROM duckdb_tables() "
    "WHERE database_name = current_database() AND table_name = 'wormhole_marker'",
    engines=frozenset({"DuckDB"}),
    connected=(),
)
_NAMED: Final = re.compile(r":([a-z]+)\b")
_MARKS: Final = re.compile(r"%([s%])")
_TIMEOUT_S: Final = 20.0
_THREADS: Final = 2
_MAGIC: Final = slice(8, 12)
_LEFT_OUT: Final = 1000  # after a plain INSERT failed, this many changes use the slower upsert
_ROWS: Final = "_wormhole_rows"


class _Session:
    """One connection. DuckDB lacks the savepoints with which other sessions notice that a statement ended the
    transaction. They are not needed here, because no statement of the sink does that.

    ``ended``: called once, after the connection was closed.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, ended: Callable[[], None]) -> None:
        self._cursor = cursor
        self._ended: Callable[[], None] | None = ended
        self._failed = False

    @property
    def connection(self) -> _Session:
        return self

    @property
    def usable(self) -> bool:
        return self._ended is not None

    @property
    def failed(self) -> bool:
        return self._failed

    def in_use(self) -> AbstractContextManager[object]:
        return nullcontext()

    def rows(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Run a statement. Returns its rows; for a change, one row with the number of changed rows."""
        try:
            found: list[tuple[Any, ...]] = self._cursor.execute(statement, values).fetchall()
        except duckdb.Error:
            self._failed = True
            raise
        return found

    def register(self, rows: pyarrow.Table) -> None:
        """Make the rows available to statements as a table."""
        self._cursor.register(_ROWS, rows)

    async def begin(self) -> None:
        self._failed = False
        self._cursor.begin()

    async def execute(self, statement: str, values: Values) -> int:
        if statement in (sql.MARK, sql.UNMARK):
            return 0
        found = self._named(statement, values)
        return int(found[0][0]) if found else 0

    async def row(self, statement: str, values: Values) -> Sequence[Any] | None:
        found = self._named(statement, values)
        return found[0] if found else None

    async def commit(self) -> None:
        self._cursor.commit()

    async def rollback(self) -> None:
        try:
            self._cursor.rollback()
        except duckdb.TransactionException:  # there is none
            pass

    async def close(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._cursor.close()
            ended()

    def _named(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        used = {name: values[name] for name in _NAMED.findall(statement)}
        return self.rows(_NAMED.sub(r"$\1", statement), used)


class _Store(Store[_Session]):
    """Holds the file open while there are connections, and closes it after the last, for another process to take."""

    blocking = True
    dialect = _DIALECT

    def __init__(self, path: Path, memory: int) -> None:
        super().__init__(_TIMEOUT_S)
        self._path = path
        self._options: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory // 1024}KiB",
            "threads": _THREADS,
            "autoinstall_known_extensions": False,  # nothing is fetched from the internet
        }
        self._guard = threading.Lock()
        self._file: duckdb.DuckDBPyConnection | None = None
        self._open = 0

    async def connect(self) -> Session[_Session]:
        with self._guard:
            if self._file is None:
                self._file = self._opened()
            cursor = self._file.cursor()
            self._open += 1
        return _Session(cursor, self._ended)

    def _ended(self) -> None:
        with self._guard:
            self._open -= 1
            if self._open == 0 and self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if not self._is_ours():
            raise TargetRefused(f"{self._path} is no file of DuckDB's", hint="give the sink another file")
        try:
            return duckdb.connect(str(self._path), config=self._options)
        except duckdb.Error as error:
            said = str(error)
            if "Conflicting lock" in said:
                raise TargetUnavailable(
                    f"{self._path} is open in another process: one process fills a DuckDB file, and no other one reads "
                    "it meanwhile"
                ) from error
            if "Permission denied" in said:
                raise TargetRefused(
                    f"this account may not write {self._path}",
                    code="account-lacks-rights",
                    hint="give it write access to the file and its folder",
                ) from error
            raise TargetUnavailable(f"{self._path} cannot be opened: {said}") from error

    def _is_ours(self) -> bool:
        """Whether the file is DuckDB's, or missing. For any other file DuckDB would search for an extension, even on
        the internet."""
        try:
            with self._path.open("rb") as file:
                start = file.read(_MAGIC.stop)
        except OSError:
            return True  # the file is missing, or DuckDB reports why it cannot be read
        return not start or start[_MAGIC] == b"DUCK"


class DuckDb(Arrays):
    """The database in one file. ``memory``: the most bytes that DuckDB may use for its work."""

    dialect = Dialect.DUCKDB
    _from = f" FROM {_ROWS}"
    sink_table = (
        "CREATE TABLE IF NOT EXISTS wormhole_sink (target BLOB PRIMARY KEY, name VARCHAR NOT NULL, "
        "owner VARCHAR NOT NULL, source VARCHAR NOT NULL)"
    )

    def __init__(self, path: Path, memory: int) -> None:
        super().__init__()
        self.store = _Store(path, memory)

    def run(self, connection: _Session, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return connection.rows(_marked(sql), list(values))

    def change(self, connection: _Session, sql: str, values: Sequence[Any] = ()) -> int:
        ((changed,),) = connection.rows(_marked(sql), list(values))
        return int(changed)

    def upsert(
        self, connection: _Session, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool
    ) -> None:
        """Try a plain INSERT for new rows, which takes half the time of an upsert. If it fails, the transaction
        ends."""
        name = str(table.name)
        if not (new and table.key and self._tries(name)):
            super().upsert(connection, table, columns, data, own, new=new)
            return
        try:
            super().upsert(connection, replace(table, key=()), columns, data, own, new=new)
        except duckdb.ConstraintException:
            self._left_out[name] = _LEFT_OUT
            raise TargetUnavailable(f"{name}: some new rows may be there; they are delivered again") from None

    def _column(self, column: TargetColumn, place: int) -> str:
        return f"c{place}::{column.type}"

    def _given(self, connection: _Session, columns: Columns, data: Data) -> list[Any]:
        connection.register(pyarrow.table(list(map(_arrow, data)), [f"c{place}" for place in range(len(data))]))
        return []


def _arrow(values: Sequence[Any]) -> pyarrow.Array[Any]:
    """The values of one column as an Arrow array. DuckDB converts text to the column's type as it converts a
    literal."""
    types = set(map(type, values)) - {type(None)}
    if types and types <= {str, bytes, float, bool}:
        return pyarrow.array(values)
    if types == {int}:
        try:
            return pyarrow.array(values, pyarrow.int64())
        except OverflowError:
            pass
    return pyarrow.array(
        [None if value is None else f"{value:f}" if types == {Decimal} else str(value) for value in values],
        pyarrow.string(),
    )


def _marked(sql: str) -> str:
    """The statement with the driver's parameter marks."""
    return _MARKS.sub(lambda mark: "?" if mark[1] == "s" else "%", sql)
