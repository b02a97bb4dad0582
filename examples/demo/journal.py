"""What was committed and what was received, as lines of text: written by the processes, read by the demo.

A line is complete or it does not count: a process that is killed amid a write leaves a torn last line, and what it
reported was not acknowledged either. One ``write`` per batch puts the lines into the system's hands, where ``kill -9``
cannot reach them. Times are nanoseconds of the monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Commit", "Journal", "Receipt", "Tail", "digest"]


def digest(value: bytes | None) -> str:
    """What stands for a value; ``-`` for none (a delete)."""
    return "-" if value is None else hashlib.blake2b(value, digest_size=8).hexdigest()


@dataclass(slots=True, frozen=True)
class Commit:
    """One change that the store confirmed. ``transaction`` counts them from 0; ``scheduled_ns``: when it was due;
    ``committed_ns``: when the store had it."""

    serial: int
    transaction: int
    table: str
    key: str
    digest: str
    scheduled_ns: int
    committed_ns: int

    def line(self) -> str:
        return (
            f"{self.serial}\t{self.transaction}\t{self.table}\t{self.key}\t{self.digest}"
            f"\t{self.scheduled_ns}\t{self.committed_ns}\n"
        )

    @classmethod
    def parse(cls, line: str) -> Self:
        serial, transaction, table, key, hashed, scheduled, committed = line.split("\t")
        return cls(int(serial), int(transaction), table, key, hashed, int(scheduled), int(committed))


@dataclass(slots=True, frozen=True)
class Receipt:
    """One update that a subscriber's callback got. ``serial`` 0: a delete, which carries no value."""

    shard: str
    epoch: int
    update_id: str
    table: str
    key: str
    serial: int
    digest: str
    received_ns: int

    def line(self) -> str:
        return (
            f"{self.shard}\t{self.epoch}\t{self.update_id}\t{self.table}\t{self.key}\t{self.serial}\t{self.digest}"
            f"\t{self.received_ns}\n"
        )

    @classmethod
    def parse(cls, line: str) -> Self:
        shard, epoch, update_id, table, key, serial, hashed, received = line.split("\t")
        return cls(shard, int(epoch), update_id, table, key, int(serial), hashed, int(received))


class Journal:
    """Appends lines to a file; each call of :meth:`write` is one ``write`` of the system."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, lines: list[str]) -> None:
        """Append complete lines."""
        data = memoryview("".join(lines).encode())
        while data:
            data = data[os.write(self._file, data) :]


class Tail:
    """Reads a file that another process appends to, complete lines only; the file may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0

    def lines(self) -> list[str]:
        """The lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._place += end
        return data[:end].decode().splitlines()
