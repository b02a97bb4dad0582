"""Reads the tables that a server has now, and how it compares their names."""

from __future__ import annotations

from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.decode.name_folding import fold_newest
from datastores.mysql.server.bounded_connection import MOST_LISTING_BYTES
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import query, reading_answers

__all__ = ["OWN_DATABASES", "look", "show_all"]

OWN_DATABASES: Final = ("mysql", "information_schema", "performance_schema", "sys")
"""The server's own databases, which hold no application's data."""
# A join is avoided, because MariaDB would open every table's files again for it.
_TABLES: Final = (
    "SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name FROM information_schema.TABLES "
    "WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND TABLE_SCHEMA NOT IN (%s, %s, %s, %s)"
)
# Without a primary key the server logs the first unique index without NULL or a prefix as the key, and marks its
# columns. So the name of an index does not identify the key. TABLE_CONSTRAINTS hides tables from an account that may
# only SELECT from them.
_KEYED: Final = (
    "SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, COLUMN_NAME AS part FROM information_schema.COLUMNS "
    "WHERE COLUMN_KEY = 'PRI' AND TABLE_SCHEMA NOT IN (%s, %s, %s, %s)"
)
_WITHIN_S: Final = 60.0  # seconds; a server with many tables opens each of them
# MariaDB ignores a comment with a version of MySQL. Before 8.0.30 there are no such keys.
_SHOW: Final = "SET SESSION sql_mode = '' /*!80030 , SESSION show_gipk_in_create_table_and_information_schema = ON */"
_FOLDS: Final = "SELECT @@GLOBAL.lower_case_table_names AS folds"


def show_all(connection: Connection[Any]) -> None:
    """Make the session show tables in the server's own form, with MySQL's generated invisible primary keys.

    These keys are in the log, but a server may hide them. Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    query(connection, _SHOW)


def look(connection: Connection[Any], catalog: Catalog) -> list[tuple[str, str, bool]]:
    """Add the server's tables to ``catalog``. Returns database, table, and whether the table has a key in the log.

    An account without ``SELECT`` on a table cannot see it. Raises :class:`~wormhole.model.errors.SourceUnavailable`.
    """
    with reading_answers("the server's tables"):
        show_all(connection)
        folds = int(query(connection, _FOLDS)[0]["folds"]) != 0
        rows = query(connection, _TABLES, OWN_DATABASES, within_s=_WITHIN_S, most_bytes=MOST_LISTING_BYTES)
        keys = query(connection, _KEYED, OWN_DATABASES, within_s=_WITHIN_S, most_bytes=MOST_LISTING_BYTES)
        tables = [(str(row["db"]), str(row["name"])) for row in rows]
        columns: dict[tuple[str, str], list[str]] = {}
        for row in keys:
            columns.setdefault((str(row["db"]), str(row["name"])), []).append(fold_newest(str(row["part"])))
    found = [(*name, name in columns) for name in tables]
    catalog.present(found, folds=folds, keys={name: tuple(parts) for name, parts in columns.items()})
    return found
