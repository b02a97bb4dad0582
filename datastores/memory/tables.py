"""The rows that result from the changes of a memory log: the fake of the port to existing rows, for tests.

It keeps every promise of :class:`~wormhole.ports.table_source.TableSource`. Tests can make it act as real servers do:
:attr:`MemoryTables.visible` shows a commit later than the log does, and :attr:`MemoryTables.on_snapshot` lets a test
commit while a chunk is read.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from datastores.memory.source import MemorySource, NewKey
from wormhole.model.errors import ProtocolError, SourceUnavailable, UnreadableTable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.changes import Change, ChangeEncoder, named_values
from wormhole.ports.table_source import Chunk, ChunkLimits, ScannedTable
from wormhole.wire.rows import decode_key, encode_key

__all__ = ["KeyOrder", "MemoryTables", "TableRows", "key_order"]

KeyOrder = Callable[[tuple[Value, ...]], Any]
"""Returns the value by which keys are sorted."""
TableRows = dict[str, dict[tuple[Value, ...], dict[str, Value]]]
"""Rows by table and key. A row is its columns by name."""

_T = TypeVar("_T")
_Columns = dict[str, Value]
_PORTABLE = frozenset({"int", "uint", "bytes"})
_NO_KEY = Problem("it has no key", "give it a primary key", code="key-missing")


def key_order(key: tuple[Value, ...]) -> tuple[tuple[int, Any], ...]:
    """The default sort value: NULL first, then numbers, text by code points, and bytes."""
    return tuple(map(_ranked, key))


def _ranked(value: Value) -> tuple[int, Any]:
    match value:
        case int() | float() | Decimal():
            return 1, value
        case str():
            return 2, value
        case bytes():
            return 3, value
        case _:
            return 0, 0


@dataclass(slots=True)
class _Table:
    """One table. ``versions``: the versions of each row by key, with the transaction that made each; ``None``: deleted.

    ``ordered``: (sort value, key) of every key that ever existed.
    """

    schemas: list[tuple[int, Schema]] = field(default_factory=list)
    versions: dict[bytes, list[tuple[int, _Columns | None]]] = field(default_factory=dict)
    ordered: list[tuple[Any, bytes]] = field(default_factory=list)
    dropped: bool = False

    def row(self, key: bytes, number: int) -> _Columns | None:
        """The row after transaction ``number``."""
        return _newest(self.versions.get(key, ()), number)

    def schema(self, number: int) -> Schema | None:
        """The schema after transaction ``number``; ``None``: the table did not exist."""
        return _newest(self.schemas, number)


def _newest(versions: Sequence[tuple[int, _T]], number: int) -> _T | None:
    at = _until(versions, number)
    return versions[at - 1][1] if at else None


def _until(versions: Sequence[tuple[int, _T]], number: int) -> int:
    """The number of ``versions`` made by transaction ``number`` and earlier ones."""
    return bisect_right(versions, number, key=lambda version: version[0])


class MemoryTables:
    """The tables of a :class:`~datastores.memory.source.MemorySource`, made before its first commit.

    Thread-safe; implements :class:`~wormhole.ports.table_source.TableSource`. Every version of every row is kept. A
    column that no change set is NULL. A MERGE appends text and bytes and adds numbers; only a read shows the result. A
    value larger than the source's ``max_update_bytes`` is in the table, but in no update.

    ``order``: the sort value of a key. ``visible``: the last marker that a snapshot shows; ``None``: it shows every
    commit. ``on_snapshot``: called by each read between its snapshot and its first row, in the read's thread.
    ``refused``: tables to refuse, with the reason.
    """

    def __init__(self, source: MemorySource, *, order: KeyOrder = key_order) -> None:
        self.visible: Datamarker | None = None
        self.on_snapshot: Callable[[], object] = lambda: None
        self.refused: dict[str, Problem] = {}
        self._source = source
        self._order = order
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._number = 0
        self._interrupted = False
        self._coming: tuple[str, Mapping[tuple[Value, ...], _Columns]] | None = None
        self._fingerprints: dict[str, str] = {}  # the fingerprints last returned to the caller
        self._encoder = source.follow(self)

    # --- called by the source -------------------------------------------------------------------------------------

    def committed(self, number: int, changes: Iterable[Change], encoder: ChangeEncoder) -> None:
        """Apply the changes of the committed transaction ``number``."""
        with self._lock:
            self._number = number
            for change in changes:
                table = self._tables.setdefault(change.table, _Table())
                table.dropped = False
                schema = encoder.schema(change.table)
                if not table.schemas or table.schemas[-1][1] != schema:
                    table.schemas.append((number, schema))
                self._apply(table, change, number)
            if self._coming is not None:
                (name, rows), self._coming = self._coming, None
                table = self._tables[name]
                self._remove(table, list(table.versions), number)
                for values, columns in rows.items():
                    self._put(table, values, columns, number)

    def altered(self, number: int, schema: Schema, new_key: NewKey | None) -> None:
        """Alter a table in transaction ``number``, which is committed next."""
        with self._lock:
            table = self._tables[schema.table]
            table.schemas.append((number, schema))
            for key in list(table.versions) if new_key is not None else ():
                row = table.row(key, number)
                if row is not None and new_key is not None:
                    self._remove(table, [key], number)
                    self._put(table, new_key(decode_key(key)), row, number)

    def restored(self, number: int) -> None:
        """Drop everything after transaction ``number``."""
        with self._lock:
            self._number = number
            for table in self._tables.values():
                del table.schemas[_until(table.schemas, number) :]
                for versions in table.versions.values():
                    del versions[_until(versions, number) :]

    # --- for tests ------------------------------------------------------------------------------------------------

    def drop(self, name: str) -> None:
        """Drop a table. Its next commit creates it again, without rows. The log does not show the drop."""
        with self._lock:
            self._tables[name] = _Table(schemas=self._tables[name].schemas, dropped=True)

    def replace(self, name: str, rows: Mapping[tuple[Value, ...], _Columns]) -> Datamarker:
        """Give the name to another table with these ``rows``, in one statement. The log holds only the statement."""
        self._coming = name, rows
        return self._source.commit((), (name,))

    def all_rows(self, marker: Datamarker | None = None) -> TableRows:
        """Every table after ``marker`` (``None``: now), regardless of what a snapshot shows."""
        with self._lock:
            number = self._number if marker is None else int(marker.delivered)
            return {
                name: {decode_key(key): dict(row) for key, row in self._rows(table, number)}
                for name, table in self._tables.items()
                if not table.dropped and table.schema(number) is not None
            }

    # --- the port -------------------------------------------------------------------------------------------------

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> Sequence[ScannedTable]:
        """See the port. A table in ``refused`` may be hidden: it is listed if ``named`` has it."""
        self._source.latest()
        with self._lock:
            number = self._shown()
            found = [
                self._described(name, table, schema, number)
                for name, table in sorted(self._tables.items())
                if wanted(name) and not table.dropped and (schema := table.schema(number)) is not None
            ] + [
                ScannedTable(name, refused=self.refused[name])
                for name in sorted(named)
                if wanted(name) and name in self.refused and name not in self._tables
            ]
            self._fingerprints.update((one.name, one.fingerprint) for one in found)
            return found

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """See the port. ``limits.seconds`` has no meaning here."""
        number, schema = self._snapshot(table, not_before)
        chunk = Chunk(schema, {}, str(number), None, True)
        size = 0
        with self._lock:
            self._check_interrupted()
            for key, columns in self._rows(self._tables[table], number, after, until):
                if len(chunk.rows) >= limits.rows or size >= limits.bytes:
                    chunk.done = False
                    break
                size += self._add(chunk, key, columns)
                chunk.last = key
        return chunk

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """See the port."""
        number, schema = self._snapshot(table, not_before)
        chunk = Chunk(schema, {}, str(number), None, True)
        with self._lock:
            self._check_interrupted()
            found = self._tables[table]
            for key in sorted(set(keys), key=self._sorted_by):
                columns = found.row(key, number)
                if columns is not None:
                    self._add(chunk, key, columns)
                chunk.last = key
        return chunk

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""
        number, _ = self._snapshot(table, Datamarker(LogPosition(0, 0, 0), "0", LogPosition(0, 0, 0)))
        with self._lock:
            self._check_interrupted()
            found = (key for key, _ in self._rows(self._tables[table], number, after))
            return next(islice(found, rows - 1, None), None)

    def reached(self, high: str, marker: Datamarker) -> bool:
        """See the port."""
        return int(marker.delivered) >= int(high)

    def can_ask(self, table: str, key: bytes) -> bool:
        """See the port."""
        with self._lock:
            schema = self._tables.get(table, _Table()).schema(self._shown())
        try:
            return schema is not None and len(decode_key(key)) == len(schema.key)
        except (DecodeError, ProtocolError):
            return False

    def shard_of(self, table: str, key: bytes) -> str:
        """See the port."""
        return self._encoder.shard_of(table, decode_key(key))

    def interrupt(self) -> None:
        """See the port."""
        with self._lock:
            self._interrupted = True

    def close(self) -> None:
        """See the port."""

    # --- reading, with the lock held except in the first ----------------------------------------------------------

    def _snapshot(self, name: str, not_before: Datamarker) -> tuple[int, Schema]:
        self._source.latest()
        with self._lock:
            self._interrupted = False
            number = self._shown()
            table = self._tables.get(name, _Table(dropped=True))
            schema = table.schema(number)
            if table.dropped or schema is None:
                raise UnreadableTable(
                    f"there is no table {name} any more",
                    hint="nothing, if it was dropped on purpose",
                    code="table-unknown",
                )
            described = self._described(name, table, schema, number)
            if problem := described.refused:
                raise UnreadableTable(
                    f"{name} cannot be read in chunks: {problem.text}", hint=problem.hint, code=problem.code
                )
            if self._fingerprints.get(name, described.fingerprint) != described.fingerprint:
                # The caller's keys are in another order.
                raise SourceUnavailable(f"the key of {name} is another one now", hint="the table begins again")
            if number < int(not_before.delivered):
                raise SourceUnavailable(
                    f"transaction {not_before.delivered} is in the log and not visible yet; {number} is",
                    hint="a retry follows",
                )
        self.on_snapshot()
        return number, schema

    def _check_interrupted(self) -> None:
        if self._interrupted:
            raise SourceUnavailable("the read was interrupted", hint="a retry follows")

    def _shown(self) -> int:
        return self._number if self.visible is None else min(self._number, int(self.visible.delivered))

    def _refusal(self, name: str, schema: Schema) -> Problem:
        return self.refused.get(name, NO_PROBLEM if schema.key else _NO_KEY)

    def _described(self, name: str, table: _Table, schema: Schema, number: int) -> ScannedTable:
        return ScannedTable(
            name,
            sum(1 for _ in self._rows(table, number)),
            self._refusal(name, schema),
            ", ".join(f"{column.name} {column.type}" for column in schema.key),
            self._order is key_order and bool(schema.key) and all(c.type in _PORTABLE for c in schema.key),
            tuple(column.name for column in schema.columns),
        )

    def _sorted_by(self, key: bytes) -> Any:
        return self._order(decode_key(key))

    def _rows(
        self, table: _Table, number: int, after: bytes | None = None, until: bytes | None = None
    ) -> Iterator[tuple[bytes, _Columns]]:
        """Keys above ``after`` up to ``until``, with their rows. A row lacks columns added later."""
        schema = table.schema(number)
        names = [column.name for column in schema.columns] if schema else []
        first = 0 if after is None else bisect_right(table.ordered, self._sorted_by(after), key=lambda one: one[0])
        end = len(table.ordered)
        if until is not None:
            end = bisect_right(table.ordered, self._sorted_by(until), key=lambda one: one[0])
        for _, key in table.ordered[first:end]:
            row = table.row(key, number)
            if row is not None:
                yield key, {name: row.get(name) for name in names}

    def _add(self, chunk: Chunk, key: bytes, columns: _Columns) -> int:
        values = [columns.get(column.name) for column in chunk.schema.columns]
        row = self._encoder.encode_row(Op.READ, decode_key(key), after=values)
        chunk.rows[key] = row
        return len(row)

    # --- applying changes, with the lock held ---------------------------------------------------------------------

    def _apply(self, table: _Table, change: Change, number: int) -> None:
        if change.op is Op.TRUNCATE:
            self._remove(table, list(table.versions), number)
            return
        _, values = named_values(change.key)
        if change.op is Op.DELETE_RANGE:
            low, high = self._order(values), self._order(named_values(change.key_end)[1])
            self._remove(table, [key for order, key in table.ordered if low <= order < high], number)
            return
        if not values:
            return  # a table without a key is refused
        key = encode_key(values)
        if change.op is Op.DELETE:
            self._remove(table, [key], number)
            return
        _, old_values = named_values(change.old_key)
        old_key = encode_key(old_values) if old_values else key
        row = table.row(old_key, number) or {}
        if old_key != key:
            self._remove(table, [old_key], number)
        known = {name: value for name, value in (change.after or {}).items() if value is not UNAVAILABLE}
        if change.op is Op.MERGE:
            known = {name: _merged(row.get(name), operand) for name, operand in known.items()}
        kept = {} if change.op is Op.INSERT else row
        self._put(table, values, kept | known, number)

    def _put(self, table: _Table, values: tuple[Value, ...], columns: _Columns, number: int) -> None:
        key = encode_key(values)
        if key not in table.versions:
            table.versions[key] = []
            insort(table.ordered, (self._order(values), key))
        table.versions[key].append((number, columns))

    @staticmethod
    def _remove(table: _Table, keys: Iterable[bytes], number: int) -> None:
        for key in keys:
            if table.row(key, number) is not None:
                table.versions[key].append((number, None))


def _merged(value: Value, operand: Value) -> Value:
    match value, operand:
        case (bytes() as old, bytes() as more):
            return old + more
        case (str() as old, str() as more):
            return old + more
        case (int() as old, int() as more):
            return old + more
        case _:
            return operand
