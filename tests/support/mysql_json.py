"""Writes MySQL's binary JSON, and the text that MySQL shows for it: an opinion of its own about the format.

A document is made of ``None``, ``bool``, ``int``, ``float``, ``str``, ``list``, ``dict`` and `Opaque`.
"""

from __future__ import annotations

import base64
import json
import struct
import textwrap
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias


@dataclass(frozen=True)
class Opaque:
    """A value of a column type, as stored; ``shown`` is its text where that is not base64."""

    column_type: int
    data: bytes
    shown: str | None = None


Document: TypeAlias = "bool | int | float | str | Opaque | list[Document] | dict[str, Document] | None"


def _length(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def _scalar(value: Document) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        for kind, form in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")):
            try:
                return kind, struct.pack(form, value)
            except struct.error:
                continue
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, _length(len(value.encode())) + value.encode()
    assert isinstance(value, Opaque)
    return 15, bytes([value.column_type]) + _length(len(value.data)) + value.data


def _ordered(value: dict[str, Document]) -> list[tuple[bytes, Document]]:
    return sorted(((k.encode(), v) for k, v in value.items()), key=lambda item: (len(item[0]), item[0]))


def _container(value: list[Document] | dict[str, Document], large: bool) -> tuple[int, bytes]:
    width, form = (4, "<I") if large else (2, "<H")
    keys = [key for key, _ in _ordered(value)] if isinstance(value, dict) else []
    values = [member for _, member in _ordered(value)] if isinstance(value, dict) else value
    header = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    key_entries = value_entries = body = b""
    for key in keys:
        key_entries += struct.pack(form + "H", header + len(body), len(key))
        body += key
    for member in values:
        kind, data = _value(member, large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            value_entries += bytes([kind]) + data.ljust(width, b"\xff" if data[-1] > 127 and kind in (5, 7) else b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack(form, header + len(body))
            body += data
    head = struct.pack(f"<2{form[1]}", len(values), header + len(body))
    return large + (0 if isinstance(value, dict) else 2), head + key_entries + value_entries + body


def _value(value: Document, large: bool) -> tuple[int, bytes]:
    if not isinstance(value, list | dict):
        return _scalar(value)
    try:
        return _container(value, large)
    except struct.error:
        return _container(value, True)


def binary(value: Document, large: bool = False) -> bytes:
    """The document as stored. ``large``: with the offsets of large containers, wherever they are."""
    kind, data = _value(value, large)
    return bytes([kind]) + data


def _number(value: float) -> str:
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    word = "".join(map(str, digits))
    point = len(word) + exponent
    if value == 0:
        shown = "0.0"
    elif -14 <= point <= 15 or (0 < point < len(word)):
        shown = f"{abs(Decimal(repr(value))):f}"
        shown = shown if "." in shown else shown + ".0"
    else:
        shown = (word[0] + "." + word[1:]).rstrip(".") + f"e{point - 1}"
    return "-" * sign + shown


def text(value: Document) -> str:
    """What SELECT shows."""
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text(k.decode())}: {text(v)}' for k, v in _ordered(value))}}}"
    if isinstance(value, Opaque):
        if value.shown is not None:
            return value.shown
        lines = textwrap.wrap(base64.b64encode(value.data).decode(), 76)
        return json.dumps(f"base64:type{value.column_type}:" + "\n".join(lines))
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _packed(data: bytes) -> bytes:
    return bytes([len(data)]) + data if len(data) < 251 else b"\xfc" + struct.pack("<H", len(data)) + data


def diff(operation: int, path: str, *value: Document) -> bytes:
    """One change: 0 replace, 1 insert, 2 remove (which has no value)."""
    return bytes([operation]) + _packed(path.encode()) + b"".join(_packed(binary(v)) for v in value)
