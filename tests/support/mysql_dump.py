"""A binlog dump without a server: what it would send, handed out in pieces, to the parts that read it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from datastores.mysql.decode import events
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.history.delivered import delivered_of
from datastores.mysql.log.dump import Dump
from datastores.mysql.log.prepared_xa import Prepared
from datastores.mysql.log.spool import Spool
from datastores.mysql.log.tables import Tables
from datastores.mysql.log.walk import LogWalk, Step
from datastores.mysql.server.catalog import Catalog
from tests.support import mysql_events as build
from wormhole.model.sharding import Sharding

TORN = (
    "binlog truncated in the middle of event; consider out of disk space on master; the first event "
    "'binlog.000003' at 4"
)
"""What MariaDB answers where a file ends in the middle of an event."""

COLUMNS = [build.integer("id", 4), build.varchar("name", 100)]


def format_description(stream: build.Stream, *, server: str = "8.4.0") -> None:
    """Add the event with which a file begins."""
    lengths = bytearray(200)
    for kind, size in events._POST_HEADERS.items():
        lengths[kind - 1] = size
    body = struct.pack("<H50sIB", 4, server.encode(), 0, 19) + bytes(lengths) + bytes([stream.checksums])
    stream.add(events.FORMAT_DESCRIPTION, body)


def rotate(stream: build.Stream, name: str, position: int, *, artificial: bool = True) -> None:
    """Add the event that names the file to go on with."""
    body = struct.pack("<Q", position) + name.encode()
    if artificial:
        stream.add(events.ROTATE, body, flags=events.ARTIFICIAL, place=0, timestamp=0)
    else:
        stream.add(events.ROTATE, body)


def beginning(name: str = "binlog.000003", position: int = 4) -> build.Stream:
    """What a server sends before the events of a file."""
    stream = build.Stream(True)
    rotate(stream, name, position)
    format_description(stream)
    return stream


def refuse(text: str, code: int = 1236) -> bytes:
    """The packet with which the server ends a dump."""
    payload = b"\xff" + struct.pack("<H", code) + b"#HY000" + text.encode()
    return struct.pack("<I", len(payload)) + payload


class ScriptedDump:
    """Implements what a walk uses of :class:`~datastores.mysql.log.dump.Dump`. At the end it fails with
    ``error``, if there is one."""

    def __init__(self, pieces: Sequence[bytes], error: Exception | None = None) -> None:
        self.data = b""
        self.at = 0
        self.checksums = True
        self.inside = False
        self.closed = False
        self._pieces = list(pieces)
        self.error = error

    @property
    def arrived(self) -> int:
        return len(self.data) - self.at

    def more(self, need: int, wait_s: float) -> bool:
        if not self._pieces:
            if self.error is not None:
                raise self.error
            return False
        self.data, self.at = self.data[self.at :] + self._pieces.pop(0), 0
        while self._pieces and len(self.data) < need:
            self.data += self._pieces.pop(0)
        return len(self.data) >= need

    def restart(self, data: bytes) -> None:
        """Another dump, from another place."""
        self.data, self.at, self._pieces = b"", 0, [data]

    def feed(self, data: bytes) -> None:
        """The server sends more."""
        self._pieces.append(data)

    def refused(self, payload: bytes) -> Exception:
        return Dump.refused(payload)

    def close(self) -> None:
        self.closed = True


class Scripted:
    """A walk over what a server would send, from the beginning of file 3 on unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        stream: build.Stream,
        *,
        sharding: Sharding | None = None,
        mariadb: bool = False,
        piece: int = 1 << 20,
        file: int = 3,
        offset: int = 4,
        delivered: str = "",
        max_update_bytes: int = 1 << 20,
        held: int = 0,
        skipped: frozenset[str] = frozenset(),
    ) -> None:
        data = stream.packets()
        self.dump = ScriptedDump([data[i : i + piece] for i in range(0, len(data), piece)])
        self.encoder = Encoder(max_update_bytes, sharding.count if sharding else 0, held=held)
        self.encoder.file_offset = offset
        self.tables = Tables(
            "log", sharding or Sharding("log"), skipped, catalog=Catalog(folder / "tables.jsonl"), mariadb=mariadb
        )
        self.prepared = Prepared(folder, 1 << 20, held=self.encoder.held)
        self.spool = Spool(folder, self.encoder.ignores)
        self.delivered = delivered_of(delivered, mariadb=mariadb)
        self.seen: list[tuple[int, int, str]] = []
        self.next_files: dict[int, tuple[str, build.Stream]] = {}  # by number of the file before
        self.walk = LogWalk(
            cast(Dump, self.dump),
            self.encoder,
            self.tables,
            self.prepared,
            self.spool,
            self.delivered,
            incarnation=1,
            file=file,
            server="server",
            mariadb=mariadb,
            check_file=lambda *told: self.seen.append(told),
            next_file=self._next_file,
        )

    def _next_file(self, number: int) -> str | None:
        if number not in self.next_files:
            return None
        name, stream = self.next_files.pop(number)
        self.dump.restart(stream.packets())
        return name


def table(name: str = "shop.t", *, names: bool = True, table_id: int = 7) -> tuple[int, bytes]:
    """The table map of a table with a key and a name."""
    return build.TABLE_MAP, build.table_map(table_id, name, COLUMNS, (0,), names=names)


def insert(*ids: int, table_id: int = 7) -> tuple[int, bytes]:
    """A rows event that inserts a row for each id."""
    return build.WRITE, build.rows(table_id, COLUMNS, [(n, f"n{n}") for n in ids])


def xa_prepare(gtrid: bytes, *, one_phase: bool = False) -> bytes:
    """The body of the event that ends the first phase."""
    return struct.pack("<BIII", one_phase, 1, len(gtrid), 0) + gtrid


def go(scripted: Scripted, max_bytes: int = 1 << 20) -> list[int]:
    """Step until the end of what is there; what each step came to but progress."""
    steps = []
    while (step := scripted.walk.step(max_bytes, 0.0)) != Step.END:
        steps.append(step)
    return [step for step in steps if step != Step.PROGRESS]


def walked(folder: Path, stream: build.Stream, **options: Any) -> Scripted:
    """A walk that went to the end of what is there."""
    scripted = Scripted(folder, stream, **options)
    go(scripted)
    return scripted
