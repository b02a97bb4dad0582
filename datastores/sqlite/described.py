"""Reads the definitions of a database's tables, from which models are generated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from datastores.sqlite.database import connect, snapshot, understood
from datastores.sqlite.tables import Table, load_tables
from datastores.sqlite.url import Address
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition

__all__ = ["describe"]

_BY_TYPE: Final = {
    "int": Content.INTEGER,
    "double": Content.FLOAT,
    "decimal": Content.DECIMAL,
    "bytes": Content.BYTES,
    "text": Content.TEXT,
}


def describe(address: Address, wanted: Callable[[str], bool]) -> list[TableDefinition]:
    """The definitions of the ``wanted`` tables. Raises :class:`~wormhole.model.errors.WormholeError`."""
    with understood(address.path), closing(connect(address.path)) as connection, snapshot(connection):
        return [_described(table) for name, table in load_tables(connection).items() if wanted(name)]


def _described(table: Table) -> TableDefinition:
    required = {*table.required, *(() if table.nullable else table.key_columns)}
    columns = tuple(
        ColumnDefinition(column.name, _BY_TYPE[column.type], column.name not in required)
        for column in table.schema.columns
    )
    return TableDefinition(table.name, table.key_columns, columns)
