"""The kinds of the SQL mirror, one for each database."""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.port import Guarantee, Sink, SinkKind
from sinks.sql.settings import DuckDbSettings, SqlSettings
from wormhole.model.errors import UsageError

__all__ = ["DUCKDB", "MYSQL", "POSTGRES", "SQLITE"]


class SqlKind(SinkKind[SqlSettings]):
    """See the port."""

    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    settings = SqlSettings

    def open(self, name: str, settings: SqlSettings) -> Sink:
        from sinks.sql.sink import SqlSink

        return SqlSink(settings)


class _Postgres(SqlKind):
    title = "PostgreSQL"
    form = "postgresql://USER@HOST:PORT/DATABASE"
    requirement = "wormhole-pubsub[cli,postgres]"


class _MySql(SqlKind):
    title = "MySQL and MariaDB"
    form = "mysql://USER@HOST:PORT/DATABASE"
    requirement = "wormhole-pubsub[cli,mysql,sqlalchemy]"


class _FileKind(SqlKind):
    def open(self, name: str, settings: SqlSettings) -> Sink:
        if settings.password_file is not None:
            raise UsageError(f"sink {name} has no use for password_file", hint="remove the key")
        return super().open(name, settings)


class _Sqlite(_FileKind):
    title = "SQLite"
    form = "sqlite:////absolute/file.db"
    requirement = "wormhole-pubsub[cli,sqlalchemy]"


class _DuckDb(_FileKind):
    title = "DuckDB"
    form = "duckdb:///absolute/file.duckdb"
    requirement = "wormhole-pubsub[duckdb]"
    settings = DuckDbSettings


DUCKDB: Final = _DuckDb()
POSTGRES: Final = _Postgres()
MYSQL: Final = _MySql()
SQLITE: Final = _Sqlite()
