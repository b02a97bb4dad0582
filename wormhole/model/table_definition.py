"""A table as its datastore describes it: the input for a model of its rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum

__all__ = ["ColumnDefinition", "Content", "TableDefinition"]


class Content(Enum):
    """The meaning of a column's values. An update holds the values of several meanings as text."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    DATETIME = "datetime"
    """A day and a time without a time zone."""
    MOMENT = "moment"
    """A point in time. Its text is in UTC, with or without a time zone in it."""
    DURATION = "duration"
    JSON = "json"
    ENUM = "enum"
    """One of the column's members."""
    SET = "set"
    """Any of the column's members, with commas between them."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column. ``members``: the members of an ENUM or SET."""

    name: str
    content: Content
    nullable: bool
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table. ``name``: its name in updates; ``key``: names of the key's columns."""

    name: str
    key: tuple[str, ...]
    columns: tuple[ColumnDefinition, ...]

    @property
    def fingerprint(self) -> str:
        """A fingerprint of everything from which a model is made. It changes only if the model would change."""
        columns = [[c.name, c.content.value, c.nullable, c.members] for c in self.columns]
        return hashlib.sha256(json.dumps([self.name, self.key, columns]).encode()).hexdigest()[:16]
