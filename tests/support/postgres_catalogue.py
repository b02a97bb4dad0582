"""What PostgreSQL's catalogues answer about a table, for tests without a server."""

from __future__ import annotations

from typing import Any, Final

from datastores.postgres.existing_rows.keys import PLAIN

__all__ = ["answer", "column", "part"]

_BUILT_IN: Final = [f"pg_catalog.{sign}" for sign in PLAIN]


def column(number: int, name: str, **more: Any) -> dict[str, Any]:
    """An integer."""
    return {
        "number": number,
        "name": name,
        "type": 23,
        "built_in": True,
        "cast": "integer",
        "under": None,
        "declared": "integer",
        "base_schema": "",
        "base": "int4",
        "generated": "",
        "labels": None,
    } | more


def part(number: int, **more: Any) -> dict[str, Any]:
    """A part of the key."""
    return {"number": number, "collation": None, "version": None, "operators": _BUILT_IN} | more


def answer(**more: Any) -> dict[str, Any]:
    """A table ``shop.t`` of a key ``n``, a text and a generated column."""
    text = column(3, "v", type=25, cast="text", declared="text", base="text")
    return {
        "number": 16_400,
        "schema": "shop",
        "table": "t",
        "kind": "r",
        "persistence": "p",
        "identity": "d",
        "columns": [column(1, "n"), text, column(4, "g", generated="s")],
        "key": [part(1)],
        "rows": 7,
        "published": True,
        "via_root": True,
        "root": None,
        "filter": None,
        "listed": None,
        "generated": None,
        "usage": True,
        "select": True,
        "row_security": False,
    } | more
