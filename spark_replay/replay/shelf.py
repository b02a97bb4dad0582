"""A buffer for numbered bytes that arrive in any order. It keeps a limited size in memory, and the rest in a file."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from operator import itemgetter
from typing import IO, Final

import pyarrow as pa

__all__ = ["SHELF_BYTES", "Shelf"]

About = tuple[str, ...]

SHELF_BYTES: Final = 64 << 20
"""Bytes that a shelf keeps in memory."""
_ALIGNED: Final = 64  # the alignment of Arrow's buffers


class Shelf:
    """Stores what Spark's shuffle delivers to one task.

    The file has no name, so the system deletes it when the process ends. It is in a folder of ``spark.local.dir``, as
    Spark's own files.
    """

    def __init__(self, most: int | None = None) -> None:
        """``most``: bytes in memory."""
        self._most = SHELF_BYTES if most is None else most
        self.bytes = 0
        """How many bytes are stored."""
        self._memory: list[tuple[int, About, bytes]] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._places: list[tuple[int, About, int, int]] = []  # offset and size in the file

    def put(self, number: int, about: About, data: bytes) -> None:
        """Store bytes with a small object ``about`` them. Raises ``OSError`` if the disk does not accept them."""
        self._memory.append((number, about, data))
        self._held += len(data)
        self.bytes += len(data)
        if self._held > self._most:
            self._spill()

    def __iter__(self) -> Iterator[tuple[int, About, pa.Buffer]]:
        """All bytes by number, then by arrival. :meth:`put` must not be called any more."""
        if self._file is None:
            for number, about, data in sorted(self._memory, key=itemgetter(0)):
                yield number, about, pa.py_buffer(data)
            return
        self._spill()
        with self._file as file:  # the mapping stays as long as it is referenced
            file.flush()
            whole = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for number, about, offset, size in sorted(self._places, key=itemgetter(0)):
            yield number, about, whole.slice(offset, size)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115 - closed once it is mapped
        for number, about, data in self._memory:
            self._file.write(bytes(-self._file.tell() % _ALIGNED))
            self._places.append((number, about, self._file.tell(), len(data)))
            self._file.write(data)
        self._memory.clear()
        self._held = 0


def _folder() -> str | None:
    """One of Spark's folders, chosen by the process; ``None``: without Spark the system's."""
    folders = [one for one in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if one]
    return folders[os.getpid() % len(folders)] if folders else None
