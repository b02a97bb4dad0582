"""The lines that a subscriber process writes, one for each thing that it is told, and their reading.

A line is written with one ``write(2)`` before the callback returns, so it survives ``kill -9``; a line that the kill
cut in two has no line end, and its callback did not return.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.system.harness.truth import Content


@dataclass(slots=True)
class Received:
    """``on_update`` was called. ``sequence`` and ``index``: from the update's id; ``place``: text of its position."""

    at: float
    shard: str
    epoch: int
    sequence: int
    index: int
    ends: bool
    place: str
    committed_at: str
    replayed: bool
    content: Content


@dataclass(slots=True)
class Marker:
    """``on_datamarker`` was called."""

    at: float
    shard: str
    epoch: int
    order: str
    delivered: int


@dataclass(slots=True)
class Assigned:
    """A shard came, to begin after the marker ``delivered``."""

    at: float
    shard: str
    epoch: int
    order: str
    delivered: int
    publisher: str


@dataclass(slots=True)
class Revoked:
    """A shard went."""

    at: float
    shard: str
    epoch: int
    cause: str


@dataclass(slots=True)
class Loss:
    """``on_data_loss`` was called."""

    at: float
    shard: str
    epoch: int
    kind: str
    first: str
    last: str
    decision: str


# What `delivered` says: RocksDB's number, the GTIDs of one server that had one writer: `uuid:1-17` and `0-1-17`, or of
# two MariaDB servers that replicate each other, and PostgreSQL's timeline and LSN: `1:0/16B3748`.
_DELIVERED = re.compile(
    r"(?P<rocksdb>\d*)|[0-9a-f-]{36}:(?P<first>1)(-(?P<mysql>\d+))?|0-[12]-(?P<mariadb>\d+)|"
    r"\d+:(?P<high>[0-9A-F]+)/(?P<low>[0-9A-F]+)"
)

Entry = Received | Marker | Assigned | Revoked | Loss


def line_of(*fields: object) -> bytes:
    """A line; fields hold neither tabs nor line ends."""
    return ("\t".join(map(str, fields)) + "\n").encode()


def parse(line: str) -> Entry:
    """Inverse of what ``subscriber`` writes."""
    kind, at, shard, epoch, *rest = line.rstrip("\n").split("\t")
    head = (float(at), shard, int(epoch))
    match kind:
        case "U":
            sequence, index, ends, place, committed, replayed, *content = rest
            return Received(
                *head, int(sequence), int(index), ends == "1", place, committed, replayed == "1", Content(*content)
            )
        case "M":
            return Marker(*head, rest[0], number_of(rest[1]))
        case "A":
            return Assigned(*head, rest[0], number_of(rest[1]), rest[2])
        case "R":
            return Revoked(*head, rest[0])
        case "L":
            return Loss(*head, *rest)
        case _:
            raise AssertionError(f"a subscriber wrote {line!r}")


def number_of(delivered: str) -> int:
    """The number that a logical position ends with; of PostgreSQL the LSN."""
    found = _DELIVERED.fullmatch(delivered)
    assert found is not None, f"{delivered!r} is not everything up to one number"
    if found["high"]:
        return int(found["high"], 16) << 32 | int(found["low"], 16)
    return int(found["mysql"] or found["mariadb"] or found["first"] or found["rocksdb"] or 0)


class Lines:
    """Follows a growing file by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> Iterator[str]:
        """Lines since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rpartition(b"\n")[0]
        if whole:
            self._offset += len(whole) + 1
            yield from whole.decode().split("\n")
