"""Messages of pgoutput as a walsender sends them, built by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

__all__ = [
    "BOOL",
    "BYTEA",
    "EPOCH_US",
    "FLOAT4",
    "FLOAT8",
    "INT4",
    "INT8",
    "NUMERIC",
    "TEXT",
    "UNCHANGED",
    "Cell",
    "begin",
    "commit",
    "delete",
    "insert",
    "log_data",
    "message",
    "origin",
    "relation",
    "row",
    "truncate",
    "type_name",
    "update",
]

BOOL, BYTEA, INT8, INT4, TEXT, FLOAT4, FLOAT8, NUMERIC = 16, 17, 20, 23, 25, 700, 701, 1700
EPOCH_US: Final = 946_684_800_000_000
"""What the log's times begin with, in microseconds since 1970."""


class _Unchanged:
    """A TOAST value that the log does not hold."""


UNCHANGED: Final = _Unchanged()
Cell = bytes | str | None | _Unchanged


def log_data(content: bytes, lsn: int = 0x1_0000_0010, sent_us: int = 0) -> bytes:
    """A message of pgoutput as a walsender sends it."""
    return struct.pack(">cQQq", b"w", lsn, lsn, sent_us) + content


def begin(commit_lsn: int, at_us: int = 0, xid: int = 7) -> bytes:
    """``at_us``: since 2000."""
    return log_data(struct.pack(">cQqI", b"B", commit_lsn, at_us, xid))


def commit(commit_lsn: int, end: int, at_us: int = 0) -> bytes:
    """``end``: the place behind it."""
    return log_data(struct.pack(">cBQQq", b"C", 0, commit_lsn, end, at_us))


def relation(
    number: int,
    name: str,
    columns: Sequence[tuple[str, int]],
    key: Sequence[int] = (0,),
    identity: str = "d",
) -> bytes:
    """``name``: schema.table; ``columns``: name and type; ``key``: positions of those that are flagged."""
    schema, _, table = name.partition(".")
    head = (
        b"R" + struct.pack(">I", number) + f"{schema}\0{table}\0{identity}".encode() + struct.pack(">h", len(columns))
    )
    parts = [
        bytes([c in key]) + column.encode() + b"\0" + struct.pack(">Ii", kind, -1)
        for c, (column, kind) in enumerate(columns)
    ]
    return log_data(head + b"".join(parts))


def type_name(number: int, schema: str, name: str) -> bytes:
    """A Type message."""
    return log_data(b"Y" + struct.pack(">I", number) + f"{schema}\0{name}\0".encode())


def origin(name: str) -> bytes:
    """An Origin message."""
    return log_data(b"O" + bytes(8) + name.encode() + b"\0")


def row(cells: Sequence[Cell]) -> bytes:
    """A tuple."""
    out = struct.pack(">H", len(cells))
    for cell in cells:
        if cell is None:
            out += b"n"
        elif isinstance(cell, _Unchanged):
            out += b"u"
        else:
            raw = cell.encode() if isinstance(cell, str) else cell
            out += b"t" + struct.pack(">I", len(raw)) + raw
    return out


def insert(number: int, cells: Sequence[Cell]) -> bytes:
    """An Insert message."""
    return log_data(b"I" + struct.pack(">I", number) + b"N" + row(cells))


def update(number: int, cells: Sequence[Cell], old: Sequence[Cell] | None = None, form: bytes = b"O") -> bytes:
    """An Update message; ``form``: of the old tuple, O or K."""
    before = b"" if old is None else form + row(old)
    return log_data(b"U" + struct.pack(">I", number) + before + b"N" + row(cells))


def delete(number: int, old: Sequence[Cell], form: bytes = b"K") -> bytes:
    """A Delete message."""
    return log_data(b"D" + struct.pack(">I", number) + form + row(old))


def truncate(*numbers: int, options: int = 0) -> bytes:
    """A Truncate message."""
    return log_data(b"T" + struct.pack(f">IB{len(numbers)}I", len(numbers), options, *numbers))


def message(prefix: str, content: bytes, lsn: int, *, transactional: bool = True, sent_us: int = 0) -> bytes:
    """A Message message."""
    head = struct.pack(">cBQ", b"M", transactional, lsn)
    return log_data(head + prefix.encode() + b"\0" + struct.pack(">I", len(content)) + content, lsn, sent_us)
