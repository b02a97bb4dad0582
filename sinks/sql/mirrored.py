"""Writes the rows of one source table to its target table, and reads them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sinks.sql.changes import Clear, Move, Names, Range, Rows, Step, Write
from sinks.sql.database import DELETED, GENERATION, SHARD, Data, Database, Own, Scope
from sinks.sql.failures import RowRefused
from sinks.sql.schema import TargetColumn, TargetTable, reader, unchanged, writer
from sinks.sql.settings import Merge
from subscriber_sdk import Key, Value
from subscriber_sdk.verify.comparing import canonical
from wormhole.model.schema import Schema, free_names

__all__ = ["Mirrored", "Place"]

_PORTION: Final = 1000  # keys that are read at one time
_Convert = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Place:
    """The origin of rows. ``table``: the name of the source's table."""

    log: str
    shard: str
    table: str

    def own(self, merge: Merge) -> Own:
        """The sink's own columns with the same values in every row of this table and log."""
        match merge:
            case "no":
                return {}
            case "by_source":
                return {"_wormhole_log": self.log, "_wormhole_table": self.table}
            case "global":
                return {"_wormhole_table": self.table}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the target. ``write`` and ``read`` convert values; ``None``: values need no conversion.
    ``unchanged``: the types of values that ``write`` does not change.
    """

    target: TargetColumn
    write: _Convert
    unchanged: frozenset[type | None]
    read: _Convert

    def written(self, values: Sequence[Value], table: TargetTable) -> Sequence[Any]:
        """The values for the driver. Raises :class:`~sinks.sql.failures.RowRefused`."""
        if self.write is None or self.unchanged.issuperset(map(type, values)):
            return values
        try:
            return list(map(self.write, values))
        except ValueError as error:
            raise RowRefused(f"{table.name} cannot hold a value of column {self.target.name}: {error}") from None

    def value(self, found: Any) -> Value:
        """The value of an update, from the value ``found`` in a row of the target."""
        value: Value = found if self.read is None else self.read(found)
        return value


class Mirrored:
    """One target table, as one shard writes it.

    ``schema``: the schema of the source's rows; ``None`` before the first update of the table, when rows of the target
    can only be read or removed. ``table``: the present definition of the target.
    """

    def __init__(
        self, database: Database, table: TargetTable, place: Place, schema: Schema | None, merge: Merge, *, soft: bool
    ) -> None:
        self.place = place
        self._database = database
        self._table = table
        self._soft = soft
        self._source = place.own(merge)
        self._own_rows = {SHARD: place.shard, **self._source}
        self._live = [database.equal({DELETED: False})] if soft else []
        if schema is None:
            keys = {name: "" for name in table.key if name not in self._source}
            self._columns = {name: self._column(name, "", key=True) for name in keys}
        else:
            keys = {column.name: column.type for column in schema.key}
            types = keys | {column.name: column.type for column in schema.columns}
            names = free_names(types)
            self._columns = {name: self._column(names[name], type_, key=name in keys) for name, type_ in types.items()}
        self._key = [self._columns[name] for name in keys]
        self._values = {name: column for name, column in self._columns.items() if name not in keys}

    @property
    def _key_columns(self) -> list[TargetColumn]:
        return [column.target for column in self._key]

    def _column(self, name: str, generic: str, *, key: bool) -> _Column:
        found = self._table.column(name)
        assert found is not None
        dialect = self._database.dialect
        same = frozenset({type(None), unchanged(generic, found, dialect)})
        return _Column(found, writer(generic, found, dialect, key=key), same, reader(generic, found, dialect))

    # --- writing ---

    def apply(self, connection: Any, step: Step, generation: int) -> int:
        """Apply one step. Returns the number of partial updates whose row is missing. Raises the driver's errors, and
        :class:`~sinks.sql.failures.RowRefused`.
        """
        match step:
            case Write():
                return self._write(connection, step, generation)
            case Clear():
                self._remove(connection, generation, [self._database.equal(self._own_rows)])
            case Range():
                self._remove(connection, generation, [self._database.equal(self._own_rows), self._between(step)])
            case Move():
                return self._move(connection, step, generation)
        return 0

    def _write(self, connection: Any, write: Write, generation: int) -> int:
        database, table, absent = self._database, self._table, 0
        if write.deletes:
            self._delete(connection, self._keys(write.deletes), generation, self._database.equal(self._source))
        own = {**self._stamp(generation), **self._source}
        for groups, new in ((write.upserts, write.new), (write.appends, True)):
            for names, rows in groups.items():
                columns, data = self._data(names, rows)
                database.upsert(connection, table, columns, data, own, new=new)
        for names, rows in write.patches.items():
            columns, data = self._data(names, rows)
            scope = Scope.all([database.equal(self._source), *self._live])
            absent += len(data[0]) - database.patch(connection, table, columns, data, self._stamp(generation), scope)
        return absent

    def _stamp(self, generation: int) -> Own:
        """The values of the sink's own columns, including the column of ``soft_delete`` if the target has it."""
        deleted = {} if self._table.column(DELETED) is None else {DELETED: False}
        return {SHARD: self.place.shard, GENERATION: generation, **deleted}

    def _keys(self, keys: Sequence[Key]) -> Data:
        """The keys as columns."""
        return self._written(list(zip(*keys, strict=True)))

    def _written(self, keys: Data) -> list[Sequence[Any]]:
        return [column.written(values, self._table) for column, values in zip(self._key, keys, strict=True)]

    def _data(self, names: Names, rows: Rows) -> tuple[list[TargetColumn], Data]:
        """The columns of the target, the key's columns first, and their values."""
        columns, data = self._key_columns, self._written(rows.keys)
        for name, values in zip(names, rows.values, strict=True):
            column = self._values.get(name)
            if column is not None:
                columns.append(column.target)
                data.append(column.written(values, self._table))
        return columns, data

    def _delete(self, connection: Any, keys: Data, generation: int, scope: Scope) -> None:
        database, table, columns = self._database, self._table, self._key_columns
        if self._soft:
            own = {DELETED: True, GENERATION: generation}
            database.patch(connection, table, columns, keys, own, Scope.all([scope, *self._live]))
        else:
            database.delete(connection, table, columns, keys, scope)

    def _remove(self, connection: Any, generation: int, scopes: Sequence[Scope]) -> None:
        database, scope, name = (
            self._database,
            Scope.all([*scopes, *self._live]),
            self._database.named(self._table.name),
        )
        if self._soft:
            own = {DELETED: True, GENERATION: generation}
            sql = f"UPDATE {name} SET {database.assigned(own)} WHERE {scope.text}"  # noqa: S608
            database.run(connection, sql, [*own.values(), *scope.values])
        else:
            database.run(connection, f"DELETE FROM {name} WHERE {scope.text}", scope.values)  # noqa: S608

    def _between(self, step: Range) -> Scope:
        names = ", ".join(self._database.quoted(column.target.name) for column in self._key)
        marks = ", ".join(["%s"] * len(self._key))
        ends = [value for end in (step.begin, step.end) for (value,) in self._keys([end])]
        return Scope(f"({names}) >= ({marks}) AND ({names}) < ({marks})", tuple(ends))

    def _move(self, connection: Any, step: Move, generation: int) -> int:
        database = self._database
        columns, data = self._data(step.columns, Rows.of([(step.new, step.values)]))
        if self._soft:  # a row with the new key may exist that is marked as deleted
            deleted = Scope.all([database.equal(self._source), database.equal({DELETED: True})])
            database.delete(connection, self._table, self._key_columns, self._keys([step.new]), deleted)
        own = {
            **{column.name: value for column, (value,) in zip(columns, data, strict=True)},
            **self._stamp(generation),
        }
        scope = Scope.all([database.equal(self._source), database.equal(self._named_key(step.old)), *self._live])
        sql = f"UPDATE {database.named(self._table.name)} SET {database.assigned(own)} WHERE {scope.text}"  # noqa: S608
        return 1 - database.change(connection, sql, [*own.values(), *scope.values])

    def _named_key(self, key: Key) -> dict[str, Any]:
        return {column.target.name: value for column, (value,) in zip(self._key, self._keys([key]), strict=True)}

    # --- what a backfill did not deliver ---

    def remove_single(self, connection: Any, keys: Sequence[Key], generation: int) -> None:
        """Remove the rows with these keys that were not received in this generation."""
        scope = Scope.all([self._database.equal(self._own_rows), self._older(generation)])
        self._delete(connection, self._keys(keys), generation, scope)

    def remove_older(self, connection: Any, except_keys: Sequence[Key], generation: int) -> None:
        """Remove the shard's rows that were not received in this generation, except those with ``except_keys``."""
        if except_keys and self._key:
            own = {GENERATION: generation}
            source = self._database.equal(self._source)
            self._database.patch(connection, self._table, self._key_columns, self._keys(except_keys), own, source)
        self._remove(connection, generation, [self._database.equal(self._own_rows), self._older(generation)])

    def _older(self, generation: int) -> Scope:
        return Scope(f"{self._database.quoted(GENERATION)} < %s", (generation,))

    # --- reading ---

    def rows(self, connection: Any, keys: Sequence[Key]) -> dict[Key, Mapping[str, Value]]:
        """The rows with these keys, with values as updates have them."""
        asked = {canonical(key): key for key in keys}
        wanted = [*self._key, *self._values.values()]
        columns = [column.target for column in wanted]
        scope = Scope.all([self._database.equal(self._source), *self._live])
        count = len(self._key)
        found: dict[Key, Mapping[str, Value]] = {}
        for row in self._database.rows(connection, self._table, columns[:count], self._keys(keys), columns, scope):
            values = [column.value(value) for column, value in zip(wanted, row, strict=True)]
            key = asked.get(canonical(tuple(values[:count])))
            if key is not None:
                found[key] = dict(zip(self._values, values[count:], strict=True))
        return found

    def keys(self, connection: Any) -> Iterator[Key]:
        """Every key of the shard's rows, in the database's order."""
        database, names = self._database, [column.target.name for column in self._key]
        listed = ", ".join(map(database.quoted, names))
        last: tuple[Any, ...] | None = None
        while True:
            after = [] if last is None else [database.above(names, last)]
            scope = Scope.all([database.equal(self._own_rows), *self._live, *after])
            sql = f"SELECT {listed} FROM {database.named(self._table.name)} WHERE {scope.text} ORDER BY {listed} "  # noqa: S608
            found = database.run(connection, f"{sql} LIMIT {_PORTION}", scope.values)
            if not found:
                return
            for row in found:
                yield tuple(column.value(value) for column, value in zip(self._key, row, strict=True))
            last = found[-1]
