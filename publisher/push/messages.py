"""Combines frames into gRPC messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Messages"]


class Messages:
    """Combines frames into messages of at most ``most`` bytes, because a subscriber refuses larger messages. ``bytes``:
    the size of all messages.

    The pieces of a message are joined only when the message is taken. Flows share bodies, so copies of bodies must not
    stay in memory for a subscriber that does not read.
    """

    __slots__ = ("_done", "_most", "_pieces", "_size", "bytes")

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = 0
        self._done: list[list[bytes | memoryview]] = []
        self._pieces: list[bytes | memoryview] = []
        self._size = 0

    def add(self, *frame: bytes | memoryview) -> None:
        """Add a frame, given in pieces. A frame is never divided between messages."""
        size = sum(map(len, frame))
        if self._pieces and self._size + size > self._most:
            self._finish()
        self._pieces.extend(frame)
        self._size += size
        self.bytes += size

    def take(self) -> Iterator[bytes]:
        """Take all messages. Each is joined when the iterator reaches it."""
        if self._pieces:
            self._finish()
        self._done.reverse()
        while self._done:
            yield b"".join(self._done.pop())

    def _finish(self) -> None:
        self._done.append(self._pieces)
        self._pieces = []
        self._size = 0
