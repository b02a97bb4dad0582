"""Frames put together to gRPC messages: pure."""

from __future__ import annotations

__all__ = ["Messages"]


class Messages:
    """Frames put together to messages of at most ``most`` bytes (a subscriber refuses larger ones)."""

    __slots__ = ("_done", "_most", "_pieces", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._done: list[bytes] = []
        self._pieces: list[bytes | memoryview] = []
        self._size = 0

    def add(self, *frame: bytes | memoryview) -> None:
        """The next frame, in pieces; it is not cut."""
        size = sum(map(len, frame))
        if self._pieces and self._size + size > self._most:
            self._finish()
        self._pieces.extend(frame)
        self._size += size

    def take(self) -> list[bytes]:
        """All messages."""
        if self._pieces:
            self._finish()
        return self._done

    def _finish(self) -> None:
        self._done.append(b"".join(self._pieces))
        self._pieces.clear()
        self._size = 0
