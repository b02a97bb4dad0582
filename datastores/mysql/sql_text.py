"""Quotes names and texts for the SQL of MySQL and MariaDB, both for statements that are run and for suggested ones.

A name may hold any character. The user who names a table or account may be another person than the one who runs a
suggestion.
"""

from __future__ import annotations

__all__ = ["account_name", "literal", "quoted", "sql_name"]


def quoted(name: str) -> str:
    """An identifier, quoted for SQL."""
    return f"`{name.replace('`', '``')}`"


def sql_name(database: str, table: str) -> str:
    """A table's name in SQL."""
    return f"{quoted(database)}.{quoted(table)}"


def literal(text: str) -> str:
    """A text as an SQL literal that is valid whether or not the server treats a backslash as an escape character."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def account_name(user: str, host: str) -> str:
    """An account's name in SQL."""
    return f"{literal(user)}@{literal(host)}"
