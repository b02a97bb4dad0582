"""A buffer for large values, which grows in place and is filled without a second copy."""

from __future__ import annotations

from typing import Final

__all__ = ["copy_into", "grow"]

_ZEROS: Final = bytes(1 << 16)


def grow(out: bytearray, size: int) -> int:
    """Make ``out`` at least ``size`` bytes long, in place. Returns its length in bytes."""
    while len(out) < size:
        out += _ZEROS
    return len(out)


def copy_into(out: bytearray, at: int, source: bytes | bytearray, start: int, end: int) -> None:
    """Copy ``source[start:end]`` into ``out`` at offset ``at``.

    Assigning a slice would make two intermediate copies."""
    with memoryview(out) as to, memoryview(source) as of:
        to[at : at + end - start] = of[start:end]
