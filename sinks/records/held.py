"""Buffers the records of one shard until their transaction is complete.

A store that cannot roll back must not receive a part of a transaction that the source database then rolls back. Records
stay in memory within a budget that all shards share. Beyond the budget they are written to a temporary file.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from sinks.records.record import Record
from wormhole.model.errors import TargetRefused
from wormhole.model.units import format_size

__all__ = ["Budget", "Held"]

_HEAD: Final = struct.Struct("<6i?")  # lengths of a record's six parts, -1 without a value; ``everywhere``
_PORTION: Final = 1 << 20


class Budget:
    """The bytes that the shards of one sink may buffer together: first ``memory``, then ``disk``. ``folder``: the place
    of the temporary files; ``None``: the system's folder.
    """

    def __init__(self, memory: int, disk: int, folder: Path | None = None) -> None:
        self.memory = memory
        self.disk = disk
        self.folder = folder
        self.in_memory = 0
        self.on_disk = 0

    def used(self) -> Mapping[str, int]:
        """The bytes that are buffered now in memory and on disk."""
        return {"memory": self.in_memory, "file": self.on_disk}


class Held:
    """The buffer of one shard, in order. Its file has no name, and disappears with the process."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._records: list[Record] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._file_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._records) or self._file is not None

    @property
    def overfull(self) -> bool:
        """Whether :meth:`spill` has to be called before the next record is added: this shard uses more memory than is
        left for all shards. So one shard uses at most half of the memory budget.
        """
        return self._bytes > self._budget.memory - self._budget.in_memory

    def add(self, records: Sequence[Record]) -> None:
        """Add records. Does no I/O."""
        self._records += records
        size = sum([record.size for record in records])
        self._bytes += size
        self._budget.in_memory += size

    def spill(self) -> None:
        """Write the records in memory to the file. Blocks.

        Raises :class:`~wormhole.model.errors.TargetRefused` if the file would exceed the budget, or cannot be written.
        The buffer is empty after such an error.
        """
        parts: list[bytes] = []
        for record in self._records:
            fields = [text.encode() for text in (record.id, record.update_id, record.table)]
            fields += [record.key, record.old_key, record.value or b""]
            lengths = [len(field) for field in fields]
            if record.value is None:
                lengths[-1] = -1
            parts += [_HEAD.pack(*lengths, record.everywhere), *fields]
        data = b"".join(parts)
        if self._budget.on_disk + len(data) > self._budget.disk:
            self.clear()
            raise TargetRefused(
                f"transactions that are not complete hold more than {format_size(self._budget.disk)}",
                hint="raise hold_disk of the sink, or write smaller transactions",
            )
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._budget.folder)  # noqa: SIM115 - closed by clear()
            self._file.write(data)
        except OSError as error:
            self.clear()
            raise TargetRefused(
                f"a transaction cannot be held in {self._budget.folder or tempfile.gettempdir()}: {error.strerror}",
                hint="make room there, or name another folder with hold_folder",
            ) from error
        self._file_bytes += len(data)
        self._budget.on_disk += len(data)
        self._forget_memory()

    def take(self) -> list[Record]:
        """Remove and return all records in memory, in order."""
        records = self._records
        self._forget_memory()
        return records

    def portions(self) -> Iterator[list[Record]]:
        """Yield all records in order, about a MiB at a time. They stay in the buffer. Blocks if there is a file."""
        portion: list[Record] = []
        size = 0
        for record in self._all():
            portion.append(record)
            size += record.size
            if size >= _PORTION:
                yield portion
                portion, size = [], 0
        if portion:
            yield portion

    @property
    def in_file(self) -> bool:
        """Whether :meth:`portions` blocks."""
        return self._file is not None

    def clear(self) -> None:
        """Forget everything."""
        self._forget_memory()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._budget.on_disk -= self._file_bytes
        self._file_bytes = 0

    def _forget_memory(self) -> None:
        self._records = []
        self._budget.in_memory -= self._bytes
        self._bytes = 0

    def _all(self) -> Iterator[Record]:
        if self._file is not None:
            self._file.seek(0)
            while head := self._file.read(_HEAD.size):
                *lengths, last, everywhere = _HEAD.unpack(head)
                id_, update_id, table, key, old_key = (self._file.read(length) for length in lengths)
                value = None if last < 0 else self._file.read(last)
                yield Record(id_.decode(), update_id.decode(), table.decode(), key, value, old_key, everywhere)
        yield from self._records
