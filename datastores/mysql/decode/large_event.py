"""Events that are too large for memory: a header, and a body that is read once, in order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from datastores.mysql.decode.events import HEADER
from wormhole.model.errors import DecodeError

__all__ = ["Body", "LargeEvent", "with_length"]

_PIECE: Final = 256 << 10
_LENGTH_AT: Final = 9


class Body:
    """The unread part of an event. ``left``: its size in bytes.

    ``read`` returns at most the requested number of bytes, and none at the end. Raises :class:`DecodeError` if the
    bytes end early.
    bytes end early.
    """

    def __init__(self, read: Callable[[int], bytes], left: int) -> None:
        self.left = left
        self._read = read
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes; none at the end."""
        size = min(size, self.left)
        if not size:
            return b""
        if self._ahead:
            piece, self._ahead = self._ahead[:size], self._ahead[size:]
        else:
            piece = self._read(size)
            if not piece:
                raise DecodeError(f"the data end {self.left} bytes before the event does")
        self.left -= len(piece)
        return piece

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes, or the rest if it is shorter."""
        size = min(size, self.left)
        piece = self.read(size)
        if len(piece) == size:
            return piece
        parts = [piece]
        missing = size - len(piece)
        while missing:
            parts.append(self.read(min(missing, _PIECE)))
            missing -= len(parts[-1])
        return b"".join(parts)

    def back(self, data: bytes) -> None:
        """Put back the bytes read last, so that they are read again."""
        self._ahead = data + self._ahead
        self.left += len(data)

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes."""
        while size > 0:
            size -= len(self.read(min(size, _PIECE)))


@dataclass(slots=True)
class LargeEvent:
    """``body``: the event between its ``header`` and its checksum."""

    header: bytes
    body: Body


def with_length(header: bytes, body: int) -> bytes:
    """The header with the length of an event with ``body`` bytes after it."""
    return header[:_LENGTH_AT] + struct.pack("<I", (HEADER + body) & 0xFFFFFFFF) + header[_LENGTH_AT + 4 :]
