"""Combines frames into gRPC messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Messages"]


class Messages:
    """Combines frames into messages of at most ``most`` bytes, because a subscriber refuses larger ones. ``bytes``: of
    all messages.

    The pieces of a message are joined only when it is taken. Bodies are shared, and copies of them must not wait for a
    subscriber that does not read.
    """

    __slots__ = ("_done", "_most", "_pieces", "_size", "bytes")

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = 0
        self._done: list[list[bytes | memoryview]] = []
        self._pieces: list[bytes | memoryview] = []
        self._size = 0

    def add(self, *frame: bytes | memoryview) -> None:
        """The next frame, in pieces; it is not cut."""
        size = sum(map(len, frame))
        if self._pieces and self._size + size > self._most:
            self._finish()
        self._pieces.extend(frame)
        self._size += size
        self.bytes += size

    def take(self) -> Iterator[bytes]:
        """All messages, each joined when it is asked for."""
        if self._pieces:
            self._finish()
        self._done.reverse()
        while self._done:
            yield b"".join(self._done.pop())

    def _finish(self) -> None:
        self._done.append(self._pieces)
        self._pieces = []
        self._size = 0
