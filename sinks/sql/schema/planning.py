"""Plans the DDL that turns an existing table into the table that a sink wants, or finds why this fails. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sinks.sql.schema.dialect import Dialect, quoted
from sinks.sql.schema.fitting import Outcome, fit
from sinks.sql.schema.table import TargetColumn, TargetTable, definition, native_type

__all__ = ["Plan", "plan"]

_LONGEST_NAME: Final = {Dialect.POSTGRES: 63, Dialect.MYSQL: 64, Dialect.MARIADB: 64}
"""The longest name: bytes in PostgreSQL, which truncates a longer name without an error, and characters in MySQL."""
_OWN: Final = "_wormhole_"
_IGNORING_CASE: Final = frozenset(set(Dialect) - {Dialect.POSTGRES})
"""The dialects in which `a` and `A` are the same column."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``statements``: DDL, which runs in one transaction if the database can roll DDL back. ``losses``: the values that
    existing columns refuse or change, one sentence each. ``kept``: columns that the source does not have. ``stale``:
    whether existing rows may lack values, because a source logs no rows for such a change. They need a backfill.

    ``refused``: why the table cannot be used; empty if it can. ``helping``: statements that an operator may run to make
    the table usable.
    """

    statements: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    stale: bool = False
    refused: str = ""
    helping: tuple[str, ...] = ()


def plan(target: TargetTable, actual: TargetTable | None, dialect: Dialect) -> Plan:
    """The plan that turns ``actual`` (``None``: there is no such table) into ``target``. Columns of ``actual`` may have
    any order, and ``actual`` may have additional columns.
    """
    problem = _name_problem(target, dialect)
    if problem:
        return Plan(refused=problem)
    if actual is None:
        return Plan(statements=(_create(target, dialect),))
    return _Planning(target, actual, dialect).plan()


@dataclass(slots=True)
class _Planning:
    target: TargetTable
    actual: TargetTable
    dialect: Dialect
    adding: list[TargetColumn] = field(default_factory=list)
    widening: list[tuple[TargetColumn, TargetColumn]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    helping: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        here = {_folded(column.name, self.dialect): column for column in self.actual.columns}
        for column in self.target.columns:
            found = here.pop(_folded(column.name, self.dialect), None)
            if found is None:
                self.adding.append(column)
            else:
                self._compare(column, found)
        for left in here.values():
            self._left(left)
        self._compare_keys()
        for obstacle in self.actual.obstacles:
            self._refuse(obstacle.what, obstacle.remedy)
        kept = tuple(here[name].name for name in here)
        if self.refused:
            return Plan((), tuple(self.losses), kept, False, "; ".join(self.refused), tuple(self.helping))
        statements = [*self._additions(), *self._widenings()]
        stale = bool(self.widening) or any(not column.name.startswith(_OWN) for column in self.adding)
        return Plan(tuple(statements), tuple(self.losses), kept, stale)

    def _compare(self, column: TargetColumn, found: TargetColumn) -> None:
        is_key = column.name in self.target.key
        if found.problem:
            self._refuse(f"column {found.name} {found.problem}", *self._drop(found))
            return
        answer = fit(column.generic, found, self.dialect, key=is_key)
        match answer.outcome:
            case Outcome.REFUSES | Outcome.LOSES if column.name.startswith(_OWN):
                pass
            case Outcome.REFUSES:
                self.losses.append(f"column {found.name} ({found.type}) refuses: {answer.limit}")
            case Outcome.LOSES:
                self.losses.append(f"column {found.name} ({found.type}) loses: {answer.limit}")
            case Outcome.WIDENS if not (is_key and self.dialect in (Dialect.SQLITE, Dialect.DUCKDB)):
                self.widening.append((column, found))
            case Outcome.WIDENS | Outcome.IMPOSSIBLE:
                why = answer.limit or f"values of type {column.generic} do not fit"
                self._refuse(f"column {found.name} is {found.type}: {why}", *self._retype(column, found, is_key))
        if not found.nullable and column.nullable:
            self.losses.append(f"column {found.name} ({found.type} NOT NULL) refuses: NULL")

    def _left(self, left: TargetColumn) -> None:
        """Keep a column that the source does not have, or refuse the table if rows cannot be inserted without it."""
        if not left.nullable and not left.default and not left.problem:
            self._refuse(
                f"column {left.name} is NOT NULL without a default, and the source does not have it",
                *self._nullable(left),
            )

    def _compare_keys(self) -> None:
        if not self.target.key:
            self._compare_without_key()
            return
        wanted = {_folded(name, self.dialect) for name in self.target.key}
        if {_folded(name, self.dialect) for name in self.actual.key} != wanted:
            shown = ", ".join(self.actual.key) or "none"
            self._refuse(f"its key is {shown}, and the source's is {', '.join(self.target.key)}", *self._rekey())
            return
        for columns, drop in self.actual.unique:
            # With any other unique index an upsert could replace a wrong row, or fail while rows exchange values.
            if {_folded(name, self.dialect) for name in columns} != wanted:
                self._refuse(f"it has a unique index on {', '.join(columns)}", drop)

    def _compare_without_key(self) -> None:
        """Refuse unique indexes for a source without a key, because its rows may be equal."""
        names = {_folded(column.name, self.dialect) for column in self.target.columns}
        for columns, drop in {self.actual.key: self._rekey(), **{c: [drop] for c, drop in self.actual.unique}}.items():
            # A name in parentheses means an expression of the index, which may use any columns.
            if columns and all(name.startswith("(") or _folded(name, self.dialect) in names for name in columns):
                self._refuse(f"it has a unique index on {', '.join(columns)}, and the source's rows have no key", *drop)

    def _refuse(self, why: str, *helping: str) -> None:
        self.refused.append(why)
        self.helping.extend(helping)

    def _alter(self, changes: Sequence[str]) -> list[str]:
        """The statements for these changes: one statement if the dialect allows several changes in it."""
        if not changes:
            return []
        table = self.target.name.quoted(self.dialect)
        if self.dialect in (Dialect.SQLITE, Dialect.DUCKDB):
            return [f"ALTER TABLE {table} {change}" for change in changes]
        return [f"ALTER TABLE {table} {', '.join(changes)}"]

    def _additions(self) -> list[str]:
        return self._alter([f"ADD COLUMN {definition(column, self.dialect)}" for column in self.adding])

    def _widenings(self) -> list[str]:
        if self.dialect is Dialect.SQLITE:
            return [statement for pair in self.widening for statement in self._rebuilt(*pair)]
        return self._alter([self._widened(*pair) for pair in self.widening])

    def _widened(self, column: TargetColumn, found: TargetColumn) -> str:
        name = quoted(found.name, self.dialect)
        to_bytes = column.generic == "bytes"
        match self.dialect:
            case Dialect.POSTGRES:
                using = f"convert_to({name}, 'UTF8')" if to_bytes else f"{name}::{column.cast}"
                return f"ALTER COLUMN {name} TYPE {column.type} USING {using}"
            case Dialect.DUCKDB:
                using = f" USING encode({name})" if to_bytes else ""
                return f"ALTER COLUMN {name} TYPE {column.type}{using}"
        return f"MODIFY COLUMN {definition(column, self.dialect)}"

    def _rebuilt(self, column: TargetColumn, found: TargetColumn) -> Iterable[str]:
        """Make the column anew with its new type, because SQLite cannot change the type of a column."""
        name, before = quoted(found.name, self.dialect), quoted(f"_wormhole_was_{found.name}", self.dialect)
        table = self.target.name.quoted(self.dialect)
        yield f"ALTER TABLE {table} RENAME COLUMN {name} TO {before}"
        yield f"ALTER TABLE {table} ADD COLUMN {definition(column, self.dialect)}"
        yield f"UPDATE {table} SET {name} = CAST({before} AS {column.type})"  # noqa: S608 - names are quoted
        yield f"ALTER TABLE {table} DROP COLUMN {before}"

    def _retype(self, column: TargetColumn, found: TargetColumn, is_key: bool) -> list[str]:
        type_ = native_type(column.generic, self.dialect)
        name = quoted(found.name, self.dialect)
        table = self.target.name.quoted(self.dialect)
        if is_key:
            return [f"DROP TABLE {table}"]
        if self.dialect is Dialect.POSTGRES:
            return self._alter([f"ALTER COLUMN {name} TYPE {type_} USING {name}::text::{column.cast}"])
        return self._alter([f"DROP COLUMN {name}"])

    def _drop(self, found: TargetColumn) -> list[str]:
        return self._alter([f"DROP COLUMN {quoted(found.name, self.dialect)}"])

    def _nullable(self, left: TargetColumn) -> list[str]:
        name = quoted(left.name, self.dialect)
        match self.dialect:
            case Dialect.POSTGRES | Dialect.DUCKDB:
                return self._alter([f"ALTER COLUMN {name} DROP NOT NULL"])
            case Dialect.SQLITE:
                return self._alter([f"DROP COLUMN {name}"])
        return self._alter([f"MODIFY COLUMN {name} {left.type} NULL"])

    def _rekey(self) -> list[str]:
        columns = ", ".join(quoted(name, self.dialect) for name in self.target.key)
        new = [f"ADD PRIMARY KEY ({columns})"] if columns else []
        if self.dialect in (Dialect.SQLITE, Dialect.DUCKDB):
            return [f"DROP TABLE {self.target.name.quoted(self.dialect)}"]
        if not self.actual.key_name:
            return self._alter(new)
        if self.dialect is Dialect.POSTGRES:
            return self._alter([f"DROP CONSTRAINT {quoted(self.actual.key_name, self.dialect)}", *new])
        return self._alter(["DROP PRIMARY KEY", *new])


def _create(target: TargetTable, dialect: Dialect) -> str:
    lines = [definition(column, dialect) for column in target.columns]
    if target.key:
        lines.append(f"PRIMARY KEY ({', '.join(quoted(name, dialect) for name in target.key)})")
    body = ",\n    ".join(lines)
    engine = " ENGINE = InnoDB" if dialect.is_mysql else ""
    return f"CREATE TABLE {target.name.quoted(dialect)} (\n    {body}\n){engine}"


def _name_problem(target: TargetTable, dialect: Dialect) -> str:
    """Why the dialect cannot have these names; empty if it can."""
    longest = _LONGEST_NAME.get(dialect)
    names = [target.name.table, *(column.name for column in target.columns)]
    for name in names if longest else ():
        size = len(name.encode()) if dialect is Dialect.POSTGRES else len(name)
        if longest is not None and size > longest:
            return f"the name {name} is longer than the {longest} that {dialect.value} has"
    return ""


def _folded(name: str, dialect: Dialect) -> str:
    return name.lower() if dialect in _IGNORING_CASE else name
