"""Names and texts as SQL of PostgreSQL takes them: in statements that are run, and in those that are suggested.

A name may hold any character, and the user who names a table or a role need not be the one who runs a suggestion.
"""

from __future__ import annotations

__all__ = ["quote_identifier", "quote_literal", "sql_name"]


def quote_identifier(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text as SQL and the replication commands take it."""
    return "'" + text.replace("'", "''") + "'"


def sql_name(schema: str, table: str) -> str:
    """A table's name in SQL."""
    return f"{quote_identifier(schema)}.{quote_identifier(table)}"
