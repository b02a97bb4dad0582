"""Writes the records of each shard into files of its own, in a folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sinks.jsonlines.failures import target_error
from sinks.jsonlines.shard_file import FileGone, ShardFile, finish_left, stem_of
from sinks.records import Record, RecordWriter
from sinks.records.threads import in_thread
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice
from wormhole.model.errors import TargetRefused, TargetUnavailable

__all__ = ["FilesWriter", "lines_of"]

log = logging.getLogger("sinks")
_T = TypeVar("_T")


def lines_of(records: Sequence[Record]) -> bytes:
    """The documents of the records, one per line. A tombstone has no document."""
    return b"".join(b"%s\n" % record.value for record in records if record.value is not None)


@dataclass(slots=True)
class _Shard:
    """The file of one shard. ``number``: the number of the next file. ``aged``: the timer that finishes an old file."""

    stem: str
    epoch: int = 0
    number: int = 1
    file: ShardFile | None = None
    aged: asyncio.TimerHandle | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class FilesWriter(RecordWriter):
    """The writer of files. A file is finished when it is larger than ``size`` bytes or older than ``seconds``, and when
    its epoch ends.
    """

    def __init__(self, folder: Path, size: int, seconds: float) -> None:
        self._folder = folder
        self._size = size
        self._seconds = seconds
        self._shards: dict[str, _Shard] = {}
        self._cleaned = False
        self._finishing: set[asyncio.Task[None]] = set()

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Begin the files of an epoch, and finish the files that dead processes left."""
        shard = self._shards.setdefault(notice.shard, _Shard(stem_of(notice.shard)))
        async with shard.lock:
            await self._finish(shard)
            shard.epoch, shard.number = notice.epoch, 1
            torn = await self._call(shard, finish_left, self._folder, shard.stem if self._cleaned else "")
        self._cleaned = True
        if torn:
            log.info("%s: cut an incomplete document off %d files that a process left", self._folder, torn)
        return None

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Append the documents to the shard's file. They are durable after :meth:`marked`."""
        lines = lines_of(records)
        if not lines:
            return
        state = self._shards[shard]
        async with state.lock:
            file = state.file
            if file is None:
                begin = (self._folder, state.stem, state.epoch, state.number)
                file = state.file = await self._call(state, ShardFile, *begin)
                state.number = file.number + 1
                state.aged = asyncio.get_running_loop().call_later(self._seconds, self._age, state, file)
            await self._call(state, file.write, lines)
            if file.size >= self._size:
                await self._finish(state)

    async def marked(self, marker: Datamarker) -> None:
        """Make all written documents durable."""
        shard = self._shards[marker.shard]
        async with shard.lock:
            if shard.file is not None:
                await self._call(shard, shard.file.sync)

    async def revoked(self, shard: str) -> None:
        """Finish the shard's file."""
        state = self._shards.pop(shard, None)
        if state is not None:
            await self._finish_or_log(state)

    async def close(self) -> None:
        """Finish every file."""
        for shard in list(self._shards):
            await self.revoked(shard)

    def _age(self, shard: _Shard, file: ShardFile) -> None:
        task = asyncio.get_running_loop().create_task(self._finish_or_log(shard, file))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish_or_log(self, shard: _Shard, only: ShardFile | None = None) -> None:
        """Finish the shard's file. ``only``: do nothing if the shard has another file by now."""
        async with shard.lock:
            if only is not None and shard.file is not only:
                return
            try:
                await self._finish(shard)
            except (TargetUnavailable, TargetRefused) as error:
                log.warning("%s: the last file of a shard is left open: %s", self._folder, error)

    async def _finish(self, shard: _Shard) -> None:
        if shard.file is not None:
            await self._call(shard, shard.file.finish)
            self._drop(shard)

    async def _call(self, shard: _Shard, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call ``function`` in a thread. After an error the shard's file is abandoned."""
        try:
            return await in_thread(function, *arguments)
        except asyncio.CancelledError:
            self._drop(shard)
            raise
        except FileGone as gone:
            self._drop(shard)
            raise TargetUnavailable(
                f"a file of {self._folder} is gone that the sink had not finished",
                hint="leave files whose names end in .open in the folder; the sink begins another one by itself",
            ) from gone
        except OSError as error:
            self._drop(shard)
            raise target_error(str(self._folder), error) from error

    @staticmethod
    def _drop(shard: _Shard) -> None:
        if shard.aged is not None:
            shard.aged.cancel()
            shard.aged = None
        if shard.file is not None:
            shard.file.abandon()
            shard.file = None
