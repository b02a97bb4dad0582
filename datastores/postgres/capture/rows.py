"""Converts recorded changes to messages of pgoutput, which the log's encoder reads. Pure.

A row is the text of a composite value: ``(1,"two words",,"")``. Its values have the same text as in pgoutput. The
transaction's number takes the place of its commit's LSN. A layout's number takes the place of a table's number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from datastores.postgres.decode.encodings import Encoding

__all__ = ["begin", "change", "commit", "described", "fields", "truncate"]

_EPOCH_US: Final = 946_684_800_000_000
_HEAD: Final = b"w" + bytes(24)
_BEGIN: Final = Struct(">cQqI")
_COMMIT: Final = Struct(">cBQQq")
_TRUNCATE: Final = Struct(">cIBI")
_COUNT: Final = Struct(">H")
_SIZE: Final = Struct(">I")
_COLUMN: Final = Struct(">Ii")
_LOWER_HALF: Final = (1 << 32) - 1

# A value is quoted if it is empty or has a space or one of `"\(),`. Within quotes, `"` and `\` are doubled.
_VALUE: Final = re.compile(rb'(?:"((?:[^"\\]++|""|\\\\)*)"|([^",()\\]*))(?:,|\)\Z)', re.DOTALL)

_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def fields(line: bytes) -> list[bytes | None]:
    """The values of one line of ``COPY ... TO STDOUT``."""
    values = line.rstrip(b"\n").split(b"\t")
    if b"\\" not in line:
        return [*values]
    return [None if value == b"\\N" else _ESCAPED.sub(_unescaped, value) for value in values]


def _unescaped(found: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(found[1], found[1])


def _values(text: bytes) -> list[bytes | None]:
    """The values of a composite value's text; ``None``: NULL."""
    if b'"' not in text:
        return [value or None for value in text[1:-1].split(b",")]
    found = _VALUE.finditer(text, 1)
    return [_single(one[1]) if one[1] is not None else one[2] or None for one in found]


def _single(text: bytes) -> bytes:
    return text.replace(b'""', b'"').replace(rb"\\", b"\\")


def _tuple(text: bytes, left_out: Sequence[int]) -> bytes:
    """The tuple of a row. ``left_out``: the positions of the columns that are not delivered."""
    values = _values(text)
    kept = [value for at, value in enumerate(values) if at not in left_out] if left_out else values
    cells = (b"n" if value is None else b"t" + _SIZE.pack(len(value)) + value for value in kept)
    return _COUNT.pack(len(kept)) + b"".join(cells)


def begin(number: int, at_us: int, xid: int) -> bytes:
    """The Begin message of a transaction. ``at_us``: its time, in microseconds since 1970."""
    return _HEAD + _BEGIN.pack(b"B", number, at_us - _EPOCH_US, xid & _LOWER_HALF)


def commit(number: int, place: int, at_us: int) -> bytes:
    """The Commit message of a transaction. ``place``: the place after it."""
    return _HEAD + _COMMIT.pack(b"C", 0, number, place, at_us - _EPOCH_US)


def change(op: bytes, layout: int, old: bytes | None, new: bytes | None, left_out: Sequence[int]) -> bytes:
    """The message for a row's change. ``op``: I, U or D."""
    parts = [_HEAD, op, _SIZE.pack(layout)]
    if old is not None:
        parts += [b"O", _tuple(old, left_out)]
    if new is not None:
        parts += [b"N", _tuple(new, left_out)]
    return b"".join(parts)


def truncate(layout: int) -> bytes:
    """The message that a table was truncated."""
    return _HEAD + _TRUNCATE.pack(b"T", 1, 0, layout)


def described(layout: int, table: Mapping[str, Any], encoding: Encoding) -> tuple[list[bytes], tuple[int, ...]]:
    """The messages that describe a table, and the positions of its generated columns, which are not delivered."""
    columns: Sequence[tuple[str, int, Sequence[str] | None, bool, bool]] = table["columns"]
    left_out = tuple(at for at, (*_, generated) in enumerate(columns) if generated)
    # A key with a generated column is not used, because the column is not delivered.
    keyed = not any(in_key and generated for *_, in_key, generated in columns)
    messages, parts = [], []
    for name, kind, base, in_key, generated in columns:
        if generated:
            continue
        if base is not None:
            messages.append(_HEAD + b"Y" + _SIZE.pack(kind) + b"".join(_text(one, encoding) for one in base))
        parts.append(bytes([keyed and in_key]) + _text(name, encoding) + _COLUMN.pack(kind, -1))
    head = b"R" + _SIZE.pack(layout) + _text(table["schema"], encoding) + _text(table["table"], encoding) + b"d"
    return [*messages, _HEAD + head + _COUNT.pack(len(parts)) + b"".join(parts)], left_out


def _text(name: str, encoding: Encoding) -> bytes:
    return encoding.to_server(name) + b"\0"
