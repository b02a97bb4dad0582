"""A log of MySQL or MariaDB that is made to exhaust its reader: what is held in memory is bounded, and the work is
linear.

Every test here was an attack that succeeded: it took memory by the size of one event, by what it inflates to or by its
rows.
"""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

from datastores.mysql.decode import events
from datastores.mysql.log import dump as dump_module
from datastores.mysql.log.dump import Dump, FromFile
from datastores.mysql.log.walk import LogWalk, Step
from tests.support import mysql_events as build
from tests.support.mysql_dump import Scripted, format_description, insert, rotate, table, xa_prepare
from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

MIB = 1 << 20
BOUND = MIB
"""``max_update_bytes`` here."""
HELD = 2 * BOUND + 8 * MIB
"""What a reader may take: twice the largest update, and a constant."""

COLUMNS = [build.integer("id", 4), build.blob("data", 4)]
MAP = (build.TABLE_MAP, build.table_map(7, "shop.t", COLUMNS, (0,)))


class Repeated:
    """Pieces of a stream, made when they are asked for, so that the test itself holds none."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._next: list[bytes] = []

    def __bool__(self) -> bool:
        if not self._next:
            self._next.extend(piece for _, piece in zip(range(1), self._pieces, strict=False))
        return bool(self._next)

    def pop(self, _: int) -> bytes:
        assert self
        return self._next.pop()


def beginning() -> build.Stream:
    stream = build.Stream()
    rotate(stream, "binlog.000003", 4)
    format_description(stream)
    return stream


Make = Callable[..., Scripted]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Make]:
    """Makes a walk over a stream that comes in small pieces."""
    made: list[Scripted] = []

    def make(stream: build.Stream, max_update_bytes: int = BOUND, **options: Any) -> Scripted:
        made.append(Scripted(tmp_path, stream, piece=128 << 10, max_update_bytes=max_update_bytes, **options))
        return made[-1]

    yield make
    for each in made:
        each.spool.close()
        each.prepared.close()


def read(of: Scripted) -> Iterator[bytes]:
    """The updates, in pieces of about 256 KiB."""
    while (step := of.walk.step(256 << 10, 0.0)) != Step.END:
        if step == Step.FULL:
            yield of.encoder.take().blob
    yield of.encoder.take().blob


def peak_of(of: Scripted, sizes: list[int]) -> int:
    """Bytes at most that reading took; ``sizes`` gets those of the pieces."""
    tracemalloc.start()
    try:
        sizes.extend(map(len, read(of)))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def large(key: int, size: int) -> bytes:
    """The updates of a row that is too large."""
    if size > BOUND:
        return entry(encode_row(Op.INSERT, (key,), too_large=True))
    return entry(encode_row(Op.INSERT, (key,), after=(key, bytes(size))))


def inner(kind: int, body: bytes, size: int = 0) -> bytes:
    """An event without checksum; ``size``: bytes that follow."""
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body) + size, 0, 0) + body


def row_of(key: int, size: int) -> tuple[bytes, bytes]:
    """What stands before the rows of an event, and a row up to its value of ``size`` bytes."""
    return build.rows(7, COLUMNS, [[key, b""]])[:-9], b"\0" + struct.pack("<iI", key, size)


def payload_bomb(size: int, rows: int) -> bytes:
    """A transaction payload of a rows event with ``rows`` values of ``size`` zeros, and one small row behind them."""
    head, _ = row_of(0, 0)
    small = row_of(rows, 1)[1] + b"x"
    made = zstandard.ZstdCompressor().compressobj()
    parts = [
        made.compress(inner(build.QUERY, build.query("BEGIN"))),
        made.compress(inner(*MAP)),
        made.compress(inner(build.WRITE, head, rows * (size + 9) + len(small))),
    ]
    for key in range(rows):
        parts.append(made.compress(row_of(key, size)[1]))
        parts.extend(made.compress(bytes(min(MIB, size - at))) for at in range(0, size, MIB))
    parts.append(made.compress(small + inner(build.XID, bytes(8))))
    data = b"".join(parts) + made.flush()
    return b"\2\1\0" + b"\1\x09\xfe" + len(data).to_bytes(8, "little") + b"\0" + data


@pytest.mark.parametrize("rows", [1, 64])
def test_a_payload_of_mysql_that_inflates_to_a_multiple(scripted: Make, rows: int) -> None:
    size = 256 * MIB // rows
    stream = beginning()
    stream.add(build.GTID, build.gtid(build.UUID, 1))
    stream.add(events.TRANSACTION_PAYLOAD, payload_bomb(size, rows))
    assert len(stream.packets()) < 64 << 10
    of, sizes = scripted(stream), list[int]()
    assert peak_of(of, sizes) < HELD
    assert of.encoder.rows.too_large == rows
    assert sum(sizes) == sum(len(large(key, size)) for key in range(rows)) + len(
        entry(encode_row(Op.INSERT, (rows,), after=(rows, b"x")))
    )
    assert of.encoder.last_number == 1, "the transaction is delivered to its end"


def test_a_compressed_event_of_mariadb_that_inflates_to_a_multiple(scripted: Make) -> None:
    size = 256 * MIB
    head, row = row_of(1, size)
    made = zlib.compressobj()
    packed = made.compress(row) + b"".join(made.compress(bytes(MIB)) for _ in range(size // MIB)) + made.flush()
    stream = beginning()
    stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 1, events.FL_TRANSACTIONAL))
    stream.add(*MAP)
    stream.add(events.WRITE_ROWS_COMPRESSED, head + b"\x84" + (size + len(row)).to_bytes(4, "big") + packed)
    stream.add(build.XID, bytes(8))
    of, sizes = scripted(stream, mariadb=True), list[int]()
    assert peak_of(of, sizes) < HELD
    assert sum(sizes) == len(large(1, size))


def test_a_statement_that_inflates_to_a_multiple(scripted: Make) -> None:
    size = 128 * MIB
    text = zlib.compressobj()
    packed = text.compress(b"CREATE PROCEDURE p() SELECT '") + b"".join(
        text.compress(b"x" * MIB) for _ in range(size // MIB)
    )
    packed += text.flush()
    stream = beginning()
    stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 1, events.FL_STANDALONE))
    stream.add(events.QUERY_COMPRESSED, build.query("") + b"\x84" + (size + 29).to_bytes(4, "big") + packed)
    of = scripted(stream, mariadb=True)
    assert peak_of(of, []) < HELD + 8 * MIB
    assert (of.encoder.last_number, of.walk.broken) == (1, {})


def rows_event(key: int, size: int, stream: build.Stream) -> Iterator[bytes]:
    """The packets of an event with a value of ``size`` zeros, made one by one."""
    head, row = row_of(key, size)
    length = 19 + len(head) + len(row) + size + 4
    stream.offset += length
    first = struct.pack("<IBIIIH", 0, build.WRITE, 1, length, stream.offset & 0xFFFFFFFF, 0) + head + row
    crc = zlib.crc32(first)
    for _ in range(size // MIB):
        crc = zlib.crc32(bytes(MIB), crc)

    def payload() -> Iterator[bytes]:
        yield b"\0" + first
        for _ in range(size // MIB):
            yield bytes(MIB)
        yield struct.pack("<I", crc)

    left, total = 0, length + 1
    full = False
    for part in payload():
        while part:
            if not left:
                left = min(total, 0xFFFFFF)
                full = left == 0xFFFFFF
                total -= left
                yield left.to_bytes(3, "little") + b"\1"
            yield part[:left]
            part, left = part[left:], left - len(part[:left])
    if full and not total:
        yield bytes(4)


def transaction_of(stream: build.Stream, number: int, key: int, size: int) -> Iterator[bytes]:
    """The packets of a transaction with one row of ``size`` bytes."""
    for kind, body in ((build.GTID, build.gtid(build.UUID, number)), (build.QUERY, build.query("BEGIN")), MAP):
        yield build.packet(stream.add(kind, body))
    yield from rows_event(key, size, stream)
    yield build.packet(stream.add(build.XID, bytes(8)))


@pytest.mark.parametrize("suppress_it", [False, True])
def test_an_event_larger_than_what_is_held(scripted: Make, suppress_it: bool) -> None:
    size = 64 * MIB
    stream = beginning()
    of = scripted(stream)
    cast(Any, of.dump)._pieces = Repeated(chain([stream.packets()], transaction_of(stream, 1, 5, size)))
    of.encoder.suppress = suppress_it
    sizes: list[int] = []
    assert peak_of(of, sizes) < HELD
    assert sum(sizes) == (0 if suppress_it else len(large(5, size)))
    assert (of.encoder.last_number, of.walk.place.offset) == (1, stream.offset)


def test_a_row_of_just_the_largest_size_arrives_whole(scripted: Make) -> None:
    bound = 24 * MIB
    size = 24 * MIB - 4096
    value = bytes(size)
    stream = beginning()
    stream.transaction(1, MAP, (build.WRITE, build.rows(7, COLUMNS, [[5, value]])))
    of = scripted(stream, bound)
    stream.events.clear()
    expected = zlib.crc32(entry(encode_row(Op.INSERT, (5,), after=(5, value))))
    del value
    tracemalloc.start()
    try:
        crc = 0
        for piece in read(of):
            crc = zlib.crc32(piece, crc)
            del piece
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert crc == expected
    assert peak < 2 * bound + 8 * MIB


def test_nothing_of_an_event_with_a_wrong_checksum_is_handed_on(scripted: Make) -> None:
    stream = beginning()
    stream.transaction(1, MAP, (build.WRITE, build.rows(7, COLUMNS, [[n, bytes(MIB)] for n in range(3)])))
    event = stream.events[-2]
    stream.events[-2] = event[:-5] + bytes([event[-5] ^ 1]) + event[-4:]
    of = scripted(stream)
    with pytest.raises(DecodeError, match="its checksum does not match"):
        list(read(of))
    assert of.encoder.rows.updates.count == 0
    assert not of.walk.verified


def test_a_transaction_that_ends_in_a_large_event_is_dropped(scripted: Make) -> None:
    """The server died while it wrote: the next file follows, and what came of the event counts for nothing."""
    stream = beginning()
    stream.transaction(1, MAP, (build.WRITE, build.rows(7, COLUMNS, [[1, bytes(3 * MIB)]])))
    whole = stream.packets()
    of = scripted(stream)
    cast(Any, of.dump)._pieces = [whole[: len(whole) - 100]]
    assert b"".join(read(of)) == b""
    assert of.walk.arrived > 3 * MIB - 200


def test_rows_that_take_more_room_than_they_have_bytes(scripted: Make) -> None:
    """A column that is not there takes three bytes of an update and none of the log."""
    columns = [build.integer(f"c{n}", 1) for n in range(4000)]
    absent = [1, *[build.ABSENT] * 3999]
    body = build.rows(7, columns, [absent] * 400)
    assert len(body) < 2 << 10
    stream = beginning()
    stream.transaction(1, (build.TABLE_MAP, build.table_map(7, "shop.t", columns, (0,))), (build.WRITE, body))
    sizes = [len(piece) for piece in read(scripted(stream))]
    assert sum(sizes) > 400 * 12_000
    assert max(sizes) < 1.5 * MIB


def test_a_prepared_transaction_of_large_events(scripted: Make) -> None:
    stream = beginning()
    stream.add(build.GTID, build.gtid(build.UUID, 1))
    stream.add(build.QUERY, build.query("XA START 'a'"))
    stream.add(*MAP)
    stream.add(build.WRITE, build.rows(7, COLUMNS, [[1, bytes(12 * MIB)], [2, b"x"]]))
    stream.add(build.QUERY, build.query("XA END 'a'"))
    stream.add(events.XA_PREPARE, xa_prepare(b"a"))
    stream.add(build.GTID, build.gtid(build.UUID, 2))
    stream.add(build.QUERY, build.query("XA COMMIT 'a'"))
    of = scripted(stream)
    of.prepared._budget = 64 * MIB
    sizes: list[int] = []
    assert peak_of(of, sizes) < HELD
    assert sum(sizes) == len(large(1, 12 * MIB)) + len(large(2, 1))


def test_a_long_statement_whose_end_is_not_read(scripted: Make) -> None:
    """What a DROP of more than 4 MiB removes behind its beginning cannot be known: no shard passes it in silence."""
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    stream.add(build.GTID, build.gtid(build.UUID, 2))
    stream.add(build.QUERY, build.query("DROP TABLE " + f"{'nobody' * 30}, " * (1 << 15) + "t"))
    stream.add(build.GTID, build.gtid(build.UUID, 3))
    stream.add(build.QUERY, build.query(f"CREATE PROCEDURE p() SELECT '{'x' * 6 * MIB}'"))
    of = scripted(stream, sharding=Sharding("table"))
    list(read(of))
    assert set(of.walk.broken) == {"log.shop.t"}
    assert "whose name cannot be read" in str(of.walk.broken["log.shop.t"])
    assert of.encoder.last_number == 3


def test_a_statement_of_very_many_names(scripted: Make) -> None:
    stream = beginning()
    stream.add(build.GTID, build.gtid(build.UUID, 1))
    stream.add(build.QUERY, build.query("DROP TABLE " + "a," * 400_000 + "b"))
    of = scripted(stream)
    assert sum(map(len, read(of))) == 4 * (1 << 16), "a barrier for each name that is read"


@pytest.mark.parametrize("kind", [build.GTID, build.XID, events.XA_PREPARE, events.ROTATE])
def test_an_event_of_a_type_that_is_never_that_large(scripted: Make, kind: int) -> None:
    stream = beginning()
    stream.add(kind, bytes(2 * MIB))
    of = scripted(stream)
    with pytest.raises(DecodeError, match="events of this type are not that large"):
        list(read(of))


def test_a_large_event_without_a_reader_is_not_stored(scripted: Make, tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, (events.ROWS_QUERY, bytes(8 * MIB)), table(), insert(1))
    of = scripted(stream)
    assert b"".join(read(of)) == entry(encode_row(Op.INSERT, (1,), after=(1, "n1")))
    assert not list(tmp_path.glob("tmp*"))


class Pair:
    """A dump over a socket, and how many bytes it copied to make what it has in hand."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        connection: Any = _Connection(ours)
        self.dump = Dump(connection, FromFile("binlog.000003", 4), server_id=1, mariadb=False)
        self.copied = 0
        more = self.dump.more

        def counted(need: int, wait_s: float) -> bool:
            before = self.dump.data
            found = more(need, wait_s)
            if self.dump.data is not before:
                self.copied += len(self.dump.data)
            return found

        self.dump.more = counted  # type: ignore[method-assign]


class _Connection:
    """What a dump uses of the driver's connection."""

    def __init__(self, ours: socket.socket) -> None:
        self._sock = ours

    def bound(self, *_: object) -> None: ...

    def cursor(self) -> _Connection:
        return self

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, arguments: tuple[object, ...] = ()) -> None: ...

    def fetchone(self) -> dict[str, str]:
        return {"checksum": "CRC32"}

    def _execute_command(self, command: int, payload: bytes) -> None: ...

    def _read_ok_packet(self) -> None: ...

    def _force_close(self) -> None:
        self._sock.close()


def over(pair: Pair, of: Scripted) -> LogWalk:
    """A walk like that of ``of``, over the pair's dump."""
    of.walk._dump = pair.dump
    return of.walk


@pytest.mark.parametrize("one_by_one", [False, True])
def test_an_event_of_many_packets_is_copied_a_fixed_number_of_times(scripted: Make, one_by_one: bool) -> None:
    """64 MiB in five packets were copied 256 MiB: each packet that came had all before it copied once more."""
    size = 64 * MIB
    stream = beginning()
    of, pair = scripted(stream), Pair()
    data = stream.packets()
    walk = over(pair, of)

    def send() -> None:
        with suppress(OSError):
            pair.server.sendall(data)
            for piece in transaction_of(stream, 1, 5, size):
                pair.server.sendall(piece)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        of.encoder.suppress = one_by_one
        while of.encoder.last_number != 1:
            if one_by_one:
                walk.one_packet()
            else:
                walk.step(MIB, 0.1)
    finally:
        sending.join()
        pair.server.close()
        pair.dump.close()
    assert pair.copied < 1.5 * size
    assert walk.place.offset == stream.offset


def test_a_server_that_drips_a_large_event(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of an event that is received by parts are no whole events: it is not waited for longer than silence."""
    monkeypatch.setattr(dump_module, "_SILENT_BEATS", 0.05)
    stream = beginning()
    of, pair = scripted(stream), Pair()
    walk, ended = over(pair, of), threading.Event()

    def drip() -> None:
        with suppress(OSError):
            pair.server.sendall((0xFFFFFF).to_bytes(3, "little") + b"\1\0" + stream.events[0][:9])
            pair.server.sendall((32 * MIB).to_bytes(4, "little") + bytes(6))
            while not ended.wait(0.001):
                pair.server.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        with pytest.raises(SourceUnavailable, match="no whole event came"):
            for _ in range(500):
                walk.step(MIB, 0.02)
    finally:
        ended.set()
        dripping.join()
        pair.dump.close()
        pair.server.close()
