"""Binlog streams, built and recorded from real servers, and table maps: any bytes give updates and statuses, or one
DecodeError."""

from __future__ import annotations

import functools
import io
import random
from types import ModuleType
from typing import Any

from datastores.mysql.decode import stops
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.large_event import Body
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.fuzz.record import CORPUS
from tests.fuzz.target import Target
from tests.support import mysql_events as build
from wormhole.model.errors import DecodeError
from wormhole.wire.rows import decode_row

_COLUMNS = [
    *(build.integer("id", 8, unsigned=True), build.varchar("name", 300), build.integer("n", 3), build.single("f")),
    *(build.decimal("price", 12, 3), build.datetime2("at", 3), build.timestamp2("seen", 2), build.time2("took", 6)),
    *(build.blob("data", 2), build.enum("state", "new", "done"), build.set_of("tags", *"abc"), build.bit("bits", 12)),
    *(build.char("code", 6, build.BINARY), build.varchar("old", 20, build.LATIN1), build.json_column("doc")),
    *(build.year("year"), build.date("day"), build.blob("zipped", 2, build.BINARY, type_=140)),
]
_MAP = build.table_map(7, "shop.orders", _COLUMNS, [0])
_LAYOUT = Layout(parse_table_map(_MAP))


def _row(rng: random.Random) -> list[Any]:
    values: list[Any] = [
        *(
            rng.randrange(1 << 64),
            rng.choice(("", "name", "wörld" * 40)),
            rng.randrange(-(1 << 23), 1 << 23),
            rng.random(),
        ),
        *("-123456.789", "2024-02-29 12:34:56.789", (rng.randrange(1 << 32), "25"), "-12:34:56.000001"),
        *(rng.randbytes(rng.choice((0, 5, 300))), rng.randrange(3), rng.randrange(8), rng.randrange(1 << 12)),
        *(b"ab", b"caf\xe9", b"\x0c\x02hi", 2024, "2024-00-31", b"\0plain"),
    ]
    return [None if rng.random() < 0.1 and i else value for i, value in enumerate(values)]


def _make_stream(rng: random.Random) -> bytes:
    """Without checksums, which would turn nearly every mutation into the same error."""
    stream = build.Stream(checksums=False)
    for number in range(1, rng.randrange(2, 4)):
        kind = rng.choice((build.WRITE, build.UPDATE, build.DELETE, 23, 24, 25))
        count = rng.choice((2, 2, 4))
        rows = build.rows(
            7,
            _COLUMNS,
            [_row(rng) for _ in range(count)],
            update=kind in {24, build.UPDATE},
            version=2 if kind >= 30 else 1,
        )
        stream.transaction(number, (build.TABLE_MAP, _MAP), (kind, rows))
        if rng.random() < 0.3:
            stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, number, rng.choice((0, 2))))
            stream.add(build.QUERY, build.query("COMMIT"))
    return stream.packets()


def _decode_stream(module: ModuleType, data: bytes) -> object:
    encoder = module.Encoder(1000, 0, 64)
    encoder.anonymous = encoder.sources.add("uuid/1")
    encoder.add_table(7, _MAP, _LAYOUT, 0, 0)
    seen: list[object] = []
    at = 0
    while at < len(data):
        at = encoder.packets(data, at, len(data), 1 << 20)
        if encoder.status == stops.TABLE:
            table = parse_table_map(encoder.raw[19:])
            encoder.add_table(table.table_id, encoder.raw[19:], Layout(table) if table.has_names else None, 0, 0)
        seen.append((encoder.status, at, encoder.raw))
        if encoder.status not in {stops.OK, stops.EVENT, stops.TABLE}:
            break
    piece = encoder.take()
    return seen, piece.blob, piece.ends.tolist(), list(piece.tx_number), list(piece.tx_offset), encoder.last_checksum


def _observe_stream(value: Any) -> object:
    _, blob, ends, *_ = value
    begin = 0
    for end in ends:
        update = blob[begin:end]
        decode_row(update[1 + next(i for i in range(1, 6) if update[i] < 0x80) :])
        begin = end
    return value


@functools.cache
def _recorded() -> list[list[bytes]]:
    """The transactions of the recorded files that the encoder ends by itself: lists of events from a GTID to an XID."""
    found: list[list[bytes]] = []
    for file in sorted(CORPUS.glob("*.binlog")):
        data, at = file.read_bytes(), 4
        while at < len(data):
            event = data[at : at + int.from_bytes(data[at + 9 : at + 13], "little")]
            at += len(event)
            if event[4] in {build.MARIADB_GTID, 33}:
                found.append([])
            if found:
                found[-1].append(event)
    return [events for events in found if events[-1][4] == build.XID]


def _make_recorded(rng: random.Random) -> bytes:
    """Some transactions of a real server, as packets."""
    chosen = [event for events in rng.choices(_recorded(), k=rng.randrange(1, 4)) for event in events]
    return b"".join((len(e) + 1).to_bytes(3, "little") + bytes((n & 0xFF, 0)) + e for n, e in enumerate(chosen))


def _make_rows(rng: random.Random) -> bytes:
    """The body of a rows event behind the type of the event."""
    kind = rng.choice((build.WRITE, build.UPDATE, build.DELETE, 23, 24, 25))
    update = kind in {24, build.UPDATE}
    rows = [_row(rng) for _ in range(rng.choice((2, 4)))]
    return bytes([kind]) + build.rows(7, _COLUMNS, rows, update=update, version=2 if kind >= 30 else 1)


def _decode_rows(module: ModuleType, data: bytes) -> object:
    """The rows of an event of which 50 bytes are held."""
    kind = data[0] if data and data[0] in {23, 24, 25, 30, 31, 32, 39} else build.WRITE
    encoder = Encoder(1000, held=50)
    encoder.begin(encoder.sources.add("source"), 1, 5)
    encoder.add_table(7, _MAP, _LAYOUT, 0, 0)
    body = Body(io.BytesIO(data[1:]).read, len(data) - 1 if data else 0)
    if module.open_rows(encoder, kind, body) == stops.ROWS:
        stream = module.RowStream(encoder, body)
        while not stream.go(1 << 20):
            pass
    piece = encoder.take()
    return None, piece.blob, piece.ends.tolist()


def _make_map(rng: random.Random) -> bytes:
    chosen = rng.sample(_COLUMNS, rng.randrange(1, len(_COLUMNS)))
    return build.table_map(rng.randrange(1 << 48), "shop.orders", chosen, [0], names=rng.random() < 0.9)


def _decode_map(module: ModuleType, data: bytes) -> str:
    table = module.parse_table_map(data)
    layout = module.Layout(table)
    return repr((table, module.schema_of(table), layout.kinds, layout.metas))


TARGETS = [
    Target(
        "mysql.encoder",
        "datastores.mysql.decode.encoder",
        _decode_stream,
        _make_stream,
        (DecodeError,),
        _observe_stream,
    ),
    Target(
        "mysql.recorded",
        "datastores.mysql.decode.encoder",
        _decode_stream,
        _make_recorded,
        (DecodeError,),
        _observe_stream,
    ),
    Target(
        "mysql.row_stream",
        "datastores.mysql.decode.row_stream",
        _decode_rows,
        _make_rows,
        (DecodeError,),
        _observe_stream,
    ),
    Target("mysql.table_map", "datastores.mysql.decode.table_map", _decode_map, _make_map, (DecodeError,)),
]
