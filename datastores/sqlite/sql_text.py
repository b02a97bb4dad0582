"""Quotes names and texts for SQLite's SQL. A name may hold any character."""

from __future__ import annotations

__all__ = ["quote_literal", "quoted"]


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
