"""Writes and checks bytes of protobuf messages without protobuf's library. Hot: compiled where possible."""

from __future__ import annotations

from typing import Final

from datastores.common.encode.buffer import copy_into

__all__ = ["copy_bytes", "is_ascii", "put_varint", "valid_utf8", "varint_size"]

_SLICED: Final = 1 << 16
"""The most bytes for which an intermediate copy costs little."""
_COPIED: Final = 256 if __file__.endswith(".py") else _SLICED
"""The most bytes for which a loop is faster than a slice, which allocates an object."""


def varint_size(n: int) -> int:
    """The bytes that ``n`` takes as a varint."""
    size = 1
    while n > 0x7F:
        n >>= 7
        size += 1
    return size


def put_varint(out: bytearray, at: int, n: int) -> int:
    """Write ``n`` as a varint. Returns the offset after it. The caller has made room."""
    o = out
    while n > 0x7F:
        o[at] = n & 0x7F | 0x80
        n >>= 7
        at += 1
    o[at] = n
    return at + 1


def copy_bytes(out: bytearray, at: int, source: bytes | bytearray, start: int, end: int) -> int:
    """Write ``source[start:end]``. Returns the offset after it. The caller has made room."""
    size = end - start
    if size <= _COPIED:
        o = out
        p = source
        for i in range(size):
            o[at + i] = p[start + i]
    elif size <= _SLICED:
        out[at : at + size] = source[start:end]
    else:
        copy_into(out, at, source, start, end)
    return at + size


def is_ascii(data: bytes, at: int, end: int) -> bool:
    """Whether every byte is at most 0x7F."""
    while end - at > _SLICED:
        if not data[at : at + _SLICED].isascii():
            return False
        at += _SLICED
    if end - at > _COPIED:
        return data[at:end].isascii()
    p = data
    bits = 0
    for i in range(at, end):
        bits |= p[i]
    return bits < 0x80


def valid_utf8(data: bytes, at: int, end: int) -> bool:
    """Whether the bytes are valid UTF-8 for protobuf: no overlong forms, no surrogates, nothing above U+10FFFF."""
    p = data
    while at < end:
        first = p[at]
        at += 1
        if first < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if more > end - at or not low <= p[at] <= high:
            return False
        for i in range(at + 1, at + more):
            if p[i] & 0xC0 != 0x80:
                return False
        at += more
    return True
