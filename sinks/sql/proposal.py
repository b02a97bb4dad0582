"""Predicts, for ``sink check``, how the sink will define the target of a source table, and what is lost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from sinks.sql.schema import Dialect, Options, Plan, TargetTable, plan, wanted
from sinks.sql.settings import SqlSettings, target_name
from wormhole.model.findings import Finding, Severity
from wormhole.model.schema import Column, Schema, free_names
from wormhole.model.table_definition import Content, TableDefinition

__all__ = ["proposed", "target_of"]

_CHECK: Final = "target_tables"
_GENERIC: Final[Mapping[Content, str]] = {
    Content.INTEGER: "int",
    Content.BOOLEAN: "bool",
    Content.DECIMAL: "decimal",
    Content.FLOAT: "double",
    Content.BYTES: "bytes",
}
"""The generic type by kind of content, as the values arrive. All other content arrives as text."""
_OWN: Final[Mapping[Dialect, Mapping[Content, str]]] = {
    Dialect.POSTGRES: {
        Content.DATE: "date",
        Content.DATETIME: "timestamp",
        Content.MOMENT: "timestamptz",
        Content.JSON: "jsonb",
    },
    Dialect.MYSQL: {Content.DATE: "date", Content.DATETIME: "datetime(6)", Content.JSON: "json"},
    Dialect.MARIADB: {Content.DATE: "date", Content.DATETIME: "datetime(6)", Content.JSON: "json"},
    Dialect.SQLITE: {},
    Dialect.DUCKDB: {
        Content.DATE: "DATE",
        Content.DATETIME: "TIMESTAMP",
        Content.MOMENT: "TIMESTAMPTZ",
        Content.JSON: "JSON",
    },
}
"""Types of columns that an operator may choose in place of text."""


def target_of(definition: TableDefinition, log: str, settings: SqlSettings, dialect: Dialect) -> TargetTable:
    """The table that the sink wants for a table of the log ``log``."""
    types = {column.name: _GENERIC.get(column.content, "text") for column in definition.columns}
    key = tuple(Column(name, types[name]) for name in definition.key)
    others = tuple(Column(name, type_) for name, type_ in types.items() if name not in definition.key)
    options = Options(settings.soft_delete, settings.merge)
    return wanted(Schema(definition.name, key, others), target_name(settings, log, definition.name), dialect, options)


def proposed(
    definition: TableDefinition, target: TargetTable, actual: TargetTable | None, dialect: Dialect
) -> Iterator[Finding]:
    """Findings about the statements that the sink runs before the first row, and about values that are lost.
    ``target``: the result of :func:`target_of`. ``actual``: the existing table; ``None`` without one.
    """
    found, name = plan(target, actual, dialect), str(target.name)
    if found.refused:
        yield Finding(
            _CHECK,
            Severity.PROBLEM,
            f"{definition.name} cannot fill {name}: {found.refused}",
            "the first row of the table halts its flow",
            "; ".join(found.helping),
            "target-refused",
        )
        return
    statements = f"; the sink runs: {'; '.join(found.statements)}" if found.statements else ""
    yield Finding(_CHECK, Severity.OK, f"{definition.name} fills {name}{statements}")
    yield from _limits(definition.name, name, found)
    if actual is None:
        yield from _texts(definition, target, dialect)


def _limits(source: str, name: str, found: Plan) -> Iterator[Finding]:
    for loss in found.losses:
        yield Finding(_CHECK, Severity.WARN, f"{name}: {loss}")
    if found.kept:
        listed = ", ".join(found.kept)
        yield Finding(_CHECK, Severity.OK, f"{name} keeps columns that {source} does not have: {listed}")
    if found.stale:
        yield Finding(
            _CHECK,
            Severity.WARN,
            f"{name} changes",
            "its rows lack the values of new columns",
            "run `wormholectl backfill start` for the application once the sink runs",
        )


def _texts(definition: TableDefinition, target: TargetTable, dialect: Dialect) -> Iterator[Finding]:
    names = free_names([*definition.key, *(c.name for c in definition.columns if c.name not in definition.key)])
    own = {names[c.name]: _OWN[dialect].get(c.content) for c in definition.columns if c.name not in definition.key}
    typed = {column: type_ for column, type_ in own.items() if type_ is not None}
    if typed:
        columns = tuple(replace(column, type=typed.get(column.name, column.type)) for column in target.columns)
        (statement,) = plan(replace(target, columns=columns), None, dialect).statements
        yield Finding(
            _CHECK,
            Severity.WARN,
            f"{target.name}: {', '.join(typed)} {'are' if len(typed) > 1 else 'is'} made as text",
            "dates, times and JSON arrive as text",
            f"make the table yourself if these columns should have types of their own: {statement}",
        )
