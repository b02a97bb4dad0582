"""Quotes names and texts for PostgreSQL's SQL, both for statements that are run and for suggested statements.

A name may hold any character. The user who names a table or role may be another person than the one who runs a
suggestion.
"""

from __future__ import annotations

__all__ = ["quote_identifier", "quote_literal", "sql_name"]


def quote_identifier(name: str) -> str:
    """A name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text, quoted for SQL and the replication commands."""
    return "'" + text.replace("'", "''") + "'"


def sql_name(schema: str, table: str) -> str:
    """A table's name in SQL."""
    return f"{quote_identifier(schema)}.{quote_identifier(table)}"
