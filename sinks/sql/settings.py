"""The settings of a SQL mirror."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from pydantic import field_validator

from sinks.port import SinkSettings
from sinks.sql.schema import TableName
from wormhole.config.fields import Size

__all__ = ["DuckDbSettings", "Merge", "SqlSettings", "target_name"]

Merge = Literal["no", "by_source", "global"]

_TEMPLATE: Final = re.compile(r"(?:[^{}]|\{(?:log|database|table)\})+")


class SqlSettings(SinkSettings):
    """``table``: the template of a target's name, with ``{log}``, ``{database}`` (the part of the source's name before
    its first dot, PostgreSQL's schema) and ``{table}``. A dot separates a schema of the target from the table.

    ``soft_delete``: whether a deleted row stays, with ``_wormhole_deleted`` set to true. ``merge``: whether several
    tables of the source may share one target. ``no``: they may not. ``by_source``: the key of the target begins with
    the log and the source's table. ``global``: the tables must not have rows with the same key.
    """

    table: str = "{table}"
    soft_delete: bool = False
    merge: Merge = "no"

    @property
    def verifies(self) -> bool:
        return True

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme == "sqlite" and not (parts.path.startswith("//") and not parts.netloc):
            raise ValueError("must be sqlite:////absolute/file.db")
        if not parts.path.strip("/"):
            raise ValueError("must name a database: SCHEME://USER@HOST:PORT/DATABASE")
        return value

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        if not _TEMPLATE.fullmatch(value) or value.count(".") > 1 or not all(value.split(".")):
            raise ValueError("must be a name, or SCHEMA.NAME, with {log}, {database} and {table}")
        return value


class DuckDbSettings(SqlSettings):
    """``memory``: bytes that the database may use for its work."""

    memory: Size = 1 << 30

    @field_validator("url")
    @classmethod
    def _file(cls, value: str) -> str:
        if urlsplit(value).netloc:
            raise ValueError("must be duckdb:///absolute/file.duckdb")
        return value

    @property
    def path(self) -> Path:
        """The file."""
        return Path(unquote(urlsplit(self.url).path))


def target_name(settings: SqlSettings, log: str, table: str) -> TableName:
    """The target of the source's ``table``."""
    database, _, name = table.partition(".")
    fields = {"log": log, "database": database, "table": name or database}
    parts = [part.format(**fields) for part in settings.table.split(".")]
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])
