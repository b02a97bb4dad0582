"""Writes the records of all shards to standard output."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from sinks.jsonlines.failures import target_error
from sinks.jsonlines.files import lines_of
from sinks.records import Record, RecordWriter
from sinks.records.threads import in_thread
from subscriber_sdk import Datamarker

__all__ = ["OutputWriter"]

_CANNOT_SYNC: Final = {errno.EINVAL, errno.ENOTSUP, errno.EROFS}  # the errors of fsync for a pipe or a terminal


class OutputWriter(RecordWriter):
    """The writer of standard output. ``file``: the file descriptor."""

    keeps = True

    def __init__(self, file: int) -> None:
        self._file = file
        self._lock = asyncio.Lock()

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Write the documents. Documents of two shards are never mixed within a line."""
        async with self._lock:
            await self._call(_write_all, self._file, lines_of(records))

    async def marked(self, marker: Datamarker) -> None:
        """Make the written documents durable if the output is a file."""
        await self._call(_sync, self._file)

    async def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            await in_thread(function, *arguments)  # waits for a cancelled call, which may be in the middle of a line
        except OSError as error:
            raise target_error("standard output", error) from error


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _sync(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
