"""A file for bytes that do not fit into memory. It has no name, so it is deleted when the process ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from datastores.mysql.decode.large_event import Body
from wormhole.model.errors import SourceUnavailable

__all__ = ["ScratchFile"]


class ScratchFile:
    """A file in ``folder``, created at the first write. ``end``: its size in bytes."""

    def __init__(self, folder: Path) -> None:
        self.end = 0
        self._folder = folder
        self._file: IO[bytes] | None = None

    def append(self, pieces: Iterable[bytes | memoryview], what: str) -> None:
        """Write at the end, which advances after a complete write.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if the write fails. ``what``: the action that then
        fails, for the message."""
        at = self.end
        try:
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - until it is closed
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    written = os.pwrite(self._file.fileno(), rest, at)
                    rest = rest[written:]
                    at += written
        except OSError as error:
            raise SourceUnavailable(
                f"{what} in {self._folder}: {error.strerror}", hint="make space there", code="file-unwritable"
            ) from error
        self.end = at

    def read(self, size: int, at: int) -> bytes:
        """Up to ``size`` bytes from ``at`` on."""
        return b"" if self._file is None else os.pread(self._file.fileno(), size, at)

    def body(self, at: int, size: int) -> Body:
        """A reader that reads ``size`` bytes from ``at`` on once."""

        def read(most: int) -> bytes:
            nonlocal at
            piece = self.read(most, at)
            at += len(piece)
            return piece

        return Body(read, size)

    def clear(self) -> None:
        """Discard the content. The file can then be written again."""
        if self._file is not None:
            self._file.truncate(0)
        self.end = 0

    def close(self) -> None:
        """Delete the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
