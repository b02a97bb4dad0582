"""Names and texts as SQL of MySQL and MariaDB takes them: in statements that are run, and in those that are suggested.

A name may hold any character, and the user who names a table or an account need not be the one who runs a suggestion.
"""

from __future__ import annotations

__all__ = ["account_name", "literal", "quoted", "sql_name"]


def quoted(name: str) -> str:
    """An identifier."""
    return f"`{name.replace('`', '``')}`"


def sql_name(database: str, table: str) -> str:
    """A table's name."""
    return f"{quoted(database)}.{quoted(table)}"


def literal(text: str) -> str:
    """A text, whether or not the server takes a backslash for itself."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def account_name(user: str, host: str) -> str:
    """An account."""
    return f"{literal(user)}@{literal(host)}"
