"""Reads the definitions of existing tables from a database's catalogue.

Every query has ``%s`` for its values. ``run`` returns the rows of one query.
"""

from __future__ import annotations

from typing import Final

from sinks.sql.schema.catalogue.duckdb import read_duckdb
from sinks.sql.schema.catalogue.mysql import read_mysql
from sinks.sql.schema.catalogue.postgres import read_postgres
from sinks.sql.schema.catalogue.run import Run
from sinks.sql.schema.catalogue.sqlite import read_sqlite
from sinks.sql.schema.dialect import Dialect, TableName
from sinks.sql.schema.table import TargetTable

__all__ = ["Run", "actual"]

_READERS: Final = {
    Dialect.POSTGRES: read_postgres,
    Dialect.MYSQL: read_mysql,
    Dialect.MARIADB: read_mysql,
    Dialect.SQLITE: read_sqlite,
    Dialect.DUCKDB: read_duckdb,
}


def actual(run: Run, name: TableName, dialect: Dialect) -> TargetTable | None:
    """The table of this name; ``None`` if there is none.

    Raises :class:`~wormhole.model.errors.TargetRefused` if an object that is not a table has the name.
    """
    return _READERS[dialect](run, name)
