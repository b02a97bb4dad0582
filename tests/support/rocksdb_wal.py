"""WAL files for tests: written by hand, fragment by fragment, and read without a publisher around the reader."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from google_crc32c import value as crc32c

from datastores.rocksdb.log.reader import RocksReader
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Value
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row, op_of, values_of

BLOCK = 32768


# --- writing ------------------------------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    """A varint, as a straightforward reference."""
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def string(data: bytes) -> bytes:
    """Length and bytes."""
    return varint(len(data)) + data


def fragment(kind: int, payload: bytes, log_number: int | None = None) -> bytes:
    """One fragment; with ``log_number`` it has the long header."""
    tail = bytes([kind]) + (b"" if log_number is None else struct.pack("<I", log_number & 0xFFFFFFFF)) + payload
    crc = crc32c(tail)
    masked = ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IH", masked, len(payload)) + tail


class WalWriter:
    """Frames records like RocksDB does; ``data`` is the file so far. ``log_number``: recyclable."""

    def __init__(self, log_number: int | None = None) -> None:
        self.data = bytearray()
        self.log_number = log_number
        self.header = 7 if log_number is None else 11

    def add(self, payload: bytes) -> tuple[int, int]:
        """Append a record; returns its place: begin and end."""
        begin = -1
        first = True
        rest = memoryview(payload)
        while True:
            left = BLOCK - len(self.data) % BLOCK
            if left < self.header:
                self.data += bytes(left)
                left = BLOCK
            if begin < 0:
                begin = len(self.data)
            piece, rest = bytes(rest[: left - self.header]), rest[left - self.header :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            self.data += fragment(kind + (0 if self.log_number is None else 4), piece, self.log_number)
            first = False
            if not rest:
                return begin, len(self.data)

    def meta(self, kind: int, payload: bytes) -> None:
        """A record without data."""
        long_header = kind in {11, 131}
        self.data += fragment(kind, payload, self.log_number if long_header else None)


def batch(sequence: int, entries: Iterable[bytes], count: int | None = None) -> bytes:
    """A write batch; ``count`` defaults to the number of entries."""
    entries = list(entries)
    return struct.pack("<QI", sequence, len(entries) if count is None else count) + b"".join(entries)


def put(key: bytes, value: bytes, family: int | None = None) -> bytes:
    """A value entry."""
    return (b"\x01" if family is None else b"\x05" + varint(family)) + string(key) + string(value)


def delete(key: bytes, family: int | None = None) -> bytes:
    """A deletion entry."""
    return (b"\x00" if family is None else b"\x04" + varint(family)) + string(key)


# --- reading ------------------------------------------------------------------------------------------------------


class DirectoryFiles:
    """The WAL files of a folder, live; nothing is pinned."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reached = (-1, 0)
        self.waits = 0
        self.written = threading.Event()

    def path(self, number: int) -> Path | None:
        path = self.folder / f"{number:06d}.log"
        return path if path.exists() else None

    def newer(self, number: int) -> int | None:
        return min((n for path in self.folder.glob("*.log") if (n := int(path.stem)) > number), default=None)

    def wait(self, seconds: float) -> None:
        self.waits += 1
        if self.written.wait(seconds):
            self.written.clear()


@dataclass
class Names:
    """A catalogue that knows what it is told."""

    names: dict[int, str] = field(default_factory=lambda: {0: "default"})
    sizes: dict[int, int] = field(default_factory=dict)

    def name(self, column_family: int) -> str | None:
        return self.names.get(column_family)

    def timestamp_size(self, column_family: int) -> int | None:
        return self.sizes.get(column_family)


class OneTime:
    """Every transaction was committed at the same time."""

    def committed_at(self, position: LogPosition, live: bool) -> int:
        return 1_700_000_000_000_000


@dataclass
class Seen:
    """One update as a subscriber would see it."""

    op: str
    table: str
    key: tuple[Value, ...]
    after: tuple[Value, ...]
    key_end: tuple[Value, ...]
    transaction: str
    index: int
    shard: str
    too_large: bool = False


def place(file: int, offset: int) -> LogPosition:
    return LogPosition(1, file, offset)


def marker(file: int, offset: int, delivered: str = "", read_from: tuple[int, int] | None = None) -> Datamarker:
    order = place(file, offset)
    return Datamarker(order, delivered, order if read_from is None else place(*read_from))


def open_reader(
    folder: Path,
    start: Datamarker | None = None,
    *,
    names: Names | None = None,
    sharding: Sharding | None = None,
    max_update_bytes: int = 64 << 20,
    files: DirectoryFiles | None = None,
    times: OneTime | None = None,
) -> RocksReader:
    """A reader over a folder, from its oldest file unless told otherwise."""
    files = files or DirectoryFiles(folder)
    first = files.newer(-1) or 0
    history: Any = SimpleNamespace(
        incarnation=1, source_id="src", files=files, catalogue=names or Names(), times=times or OneTime()
    )
    return RocksReader(
        history,
        start or marker(first, 0),
        log="db",
        sharding=sharding or Sharding("log"),
        max_update_bytes=max_update_bytes,
    )


def segments(reader: RocksReader, max_bytes: int = 1 << 18, wait_s: float = 0.0) -> Iterator[Segment]:
    """Everything that is there; checks what every segment promises."""
    previous: Segment | None = None
    while (segment := reader.read(max_bytes, wait_s)) is not None:
        if previous is not None:
            assert segment.begin == previous.end
        assert segment.end >= segment.begin
        if segment.marker is not None:
            assert segment.marker.order == segment.end
        previous = segment
        yield segment


def updates_of(found: Iterable[Segment]) -> list[Seen]:
    """The updates in log order per shard, read through the wire form of each run's body."""
    result: list[Seen] = []
    for segment in found:
        for shard, run in segment.runs.items():
            body = build_body(run, 1)
            assert body is not None
            parsed = parse_body(body.data)
            schemas = {schema.id: schema for schema in run.schemas}
            assert [run.blob[run.ends[i - 1] if i else 0 : end] for i, end in enumerate(run.ends)] == [
                b"\x0a" + varint(len(update)) + update for update in parsed.updates
            ]
            for i, update in enumerate(parsed.updates):
                row = decode_row(update)
                tx = parsed.transaction_of(i)
                result.append(
                    Seen(
                        op_of(row).value,
                        schemas[parsed.schema_id_of(i)].table,
                        values_of(row.key),
                        values_of(row.after),
                        values_of(row.key_end),
                        parsed.transaction_id(tx),
                        parsed.index_of(i),
                        shard,
                        row.too_large,
                    )
                )
    return result


def gaps_of(found: Iterable[Segment]) -> list[LogGap]:
    """The gaps told."""
    return [segment.gap for segment in found if segment.gap is not None]
