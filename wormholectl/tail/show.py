"""Formats one update as a line for people or as a JSON object for programs. Pure.

``docs/cli.md`` is the manual of the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from wormhole.formats.json_values import listed_as_json, row_as_json, time_as_json
from wormhole.model.loss import LogGap
from wormhole.model.position import LogPosition
from wormhole.model.values import Op, Unavailable, Value
from wormhole.wire.update import Update
from wormholectl.show.printer import SCHEMA, Piece

__all__ = [
    "gap_as_json",
    "gap_as_line",
    "short",
    "update_as_json",
    "update_as_line",
]

_WIDTH: Final = 60
_COLOURS: Final = {
    Op.INSERT: "green",
    Op.UPSERT: "green",
    Op.READ: "green",
    Op.UPDATE: "yellow",
    Op.MERGE: "yellow",
    Op.DELETE: "red",
    Op.DELETE_RANGE: "bold red",
    Op.TRUNCATE: "bold red",
}
_WIDEST: Final = max(len(op.value) for op in Op)


def update_as_json(update: Update, native: str) -> dict[str, Any]:
    """An update with all its data from the log. ``native``: its place as the datastore's tools write it, or empty."""
    transaction = update.transaction
    return {
        "schema": SCHEMA,
        "type": "update",
        "id": update.id,
        "op": update.op.value,
        "table": update.table,
        "key": listed_as_json(update.key),
        "old_key": listed_as_json(update.old_key),
        "key_end": listed_as_json(update.key_end),
        "before": row_as_json(update.before),
        "after": row_as_json(update.after),
        "too_large": update.too_large,
        "entered": update.entered,
        "left": update.left,
        "committed_at": time_as_json(transaction.committed_at),
        "position": str(transaction.position),
        "native_position": native or None,
        "transaction": transaction.id,
        "ends_transaction": update.ends_transaction,
    }


def gap_as_json(gap: LogGap, begin: LogPosition, native: str) -> dict[str, Any]:
    """The missing log before ``begin``. ``native``: that place in the form of the datastore's tools, or empty."""
    return {
        "schema": SCHEMA,
        "type": "gap",
        "kind": gap.kind.value,
        "first_missing": gap.first_missing,
        "last_missing": gap.last_missing,
        "message": gap.message,
        "position": str(begin),
        "native_position": native or None,
    }


def gap_as_line(gap: LogGap, place: str) -> list[Piece]:
    """Missing log as a line for people. ``place``: where the log continues, as text."""
    missing = f" {gap.first_missing}-{gap.last_missing}" if gap.first_missing else ""
    return [(f"--- missing ({gap.kind.value}){missing} before {place}: {gap.message}", "bold red")]


def short(value: Value, width: int = _WIDTH) -> str:
    """A value in about ``width`` characters at most: as text if all characters are printable, otherwise hexadecimal."""
    match value:
        case None:
            return "NULL"
        case Unavailable():
            return "(not in the log)"
        case bytes():
            return _short_bytes(value, width)
        case str():
            return _cut(value, width) if value.isprintable() else _cut(ascii(value), width)
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case _:
            pairs = (f"{short(name, width // 4)}={short(content, width // 4)}" for name, content in value.items())
            return _cut("{" + ", ".join(pairs) + "}", width)


def _short_bytes(value: bytes, width: int) -> str:
    # A cut may split a character, so up to three invalid bytes at the end are ignored.
    head = value[: 4 * width]
    for spare in range(4) if len(head) < len(value) else (0,):
        try:
            text = head[: len(head) - spare].decode()
        except UnicodeDecodeError:
            continue
        if text.isprintable():
            return text if len(head) == len(value) and len(text) <= width else f"{text[:width]}... ({len(value)} bytes)"
        break
    shown = value[: width // 2]
    return f"0x{shown.hex()}" + (f"... ({len(value)} bytes)" if len(shown) < len(value) else "")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[:width]}... ({len(text)} characters)"


def _columns(values: Mapping[str, Value]) -> str:
    if list(values) == ["value"]:
        return short(values["value"])
    return ", ".join(f"{_cut(name, 30)}={short(value, 30)}" for name, value in values.items())


def update_as_line(update: Update) -> list[Piece]:
    """An update in one line: commit time, operation, table, key, value."""
    time = update.committed_at
    shown = "-" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    op = update.op
    pieces: list[Piece] = [
        (f"{shown:<23}  ", "dim"),
        (f"{op.value:<{_WIDEST}}  ", _COLOURS[op]),
        (f"{short(update.table)}  ", "cyan"),
        (", ".join(short(value) for value in update.key), "bold"),
    ]
    if update.key_end:
        pieces.append((" .. " + ", ".join(short(value) for value in update.key_end), "bold"))
    if update.old_key:
        pieces.append((" (was " + ", ".join(short(value) for value in update.old_key) + ")", "dim"))
    if update.left:
        pieces.append((" (left what the filter selects)", "yellow"))
    elif update.entered:
        pieces.append((" (entered what the filter selects)", "yellow"))
    if update.too_large:
        pieces.append((" (too large: the value was left out)", "yellow"))
    elif update.after is not None:
        pieces.append((f" = {_columns(update.after)}", ""))
    return pieces
