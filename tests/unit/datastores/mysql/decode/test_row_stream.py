"""Rows of events that are not held whole: the same updates as of events that are, whatever the size of what is held."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest

from datastores.mysql.decode import events, stops
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.large_event import Body
from datastores.mysql.decode.row_stream import RowStream, open_rows
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import mysql_events as build
from wormhole.model.errors import DecodeError
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

COLUMNS = [
    *(build.integer("id", 8), build.varchar("name", 300), build.integer("n", 3), build.decimal("price", 12, 3)),
    *(
        build.blob("data", 3),
        build.timestamp2("seen", 2),
        build.json_column("doc"),
        build.varchar("old", 200, build.LATIN1),
    ),
    build.char("code", 6, build.BINARY),
]
MAP = build.table_map(7, "shop.orders", COLUMNS, [0])
DOCUMENT = b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x05\x00a"  # {"a": 5}


def row(rng: random.Random, key: int) -> list[Any]:
    values: list[Any] = [
        *(key, rng.choice(("", "name", "wörld" * 40)), rng.randrange(-(1 << 23), 1 << 23), "-123456.789"),
        *(
            rng.randbytes(rng.choice((0, 5, 300, 3000))),
            (rng.randrange(1 << 32), "25"),
            DOCUMENT,
            b"caf\xe9" * 40,
            b"ab",
        ),
    ]
    return [None if rng.random() < 0.1 and i else value for i, value in enumerate(values)]


def encoder_of(held: int, most: int = 1 << 20, columns: list[build.Col] = COLUMNS, body: bytes = MAP) -> Encoder:
    encoder = Encoder(most, held=held)
    encoder.add_table(7, body, Layout(parse_table_map(body)), 0, 0)
    encoder.begin(encoder.sources.add("source"), 1, 5)
    return encoder


def header(kind: int, size: int) -> bytes:
    return bytes(4) + bytes([kind]) + bytes(4) + (19 + size).to_bytes(4, "little") + bytes(6)


def streamed(
    kind: int, data: bytes, *, held: int = 64, most: int = 1 << 20, piece: int = 1 << 62, **options: Any
) -> bytes:
    """The updates of an event whose body is ``data``, taken in pieces of about ``piece`` bytes."""
    encoder = encoder_of(held, most, **options)
    source = io.BytesIO(data)
    body = Body(lambda size: source.read(min(size, 100)), len(data))
    encoder.large(header(kind, len(data)) + bytes(4), 19 + len(data), -1)
    assert open_rows(encoder, kind, body) == stops.ROWS
    stream = RowStream(encoder, body)
    blob = b""
    while not stream.go(piece):
        if encoder.rows.updates.used >= piece:
            blob += encoder.take().blob
    return blob + encoder.take().blob


def whole(kind: int, data: bytes, most: int = 1 << 20) -> bytes:
    encoder = encoder_of(0, most)
    event = header(kind, len(data)) + data
    assert encoder.event(event, 0, len(event)) == stops.OK
    return encoder.take().blob


@pytest.mark.parametrize("most", [1 << 20, 4000])
@pytest.mark.parametrize("kind", [23, 24, 25, build.WRITE, build.UPDATE, build.DELETE])
def test_the_same_updates_whatever_is_held(kind: int, most: int) -> None:
    rng = random.Random(kind)
    for held in (1, 64, 700, 5000):
        rows = [row(rng, n) for n in range(12)]
        if kind in {24, build.UPDATE}:
            rows = [values for n in range(6) for values in (row(rng, n), row(rng, n + n % 2))]
        data = build.rows(7, COLUMNS, rows, update=kind in {24, build.UPDATE}, version=2 if kind >= 30 else 1)
        for piece in (1, 3000, 1 << 30):
            assert streamed(kind, data, held=held, most=most, piece=piece) == whole(kind, data, most)


def test_changes_of_documents_in_rows_that_no_stretch_holds() -> None:
    columns = [build.integer("id", 4), build.json_column("doc"), build.blob("data", 3)]
    body = build.table_map(7, "shop.orders", columns, [0])
    before = build.image(columns, [1, DOCUMENT, b"x" * 500])
    diff = b"\0\x03$.a" + bytes([3]) + b"\x05\x07\x00"
    after = b"\1" + b"\1" + build.image(columns, [1, diff, b"y" * 500])
    head = (7).to_bytes(6, "little") + b"\1\0\2\0\3\7\7"
    blob = streamed(events.PARTIAL_UPDATE_ROWS, head + 2 * (before + after), columns=columns, body=body)
    row = {"after": (1, '{"a": 7}', b"y" * 500), "before": (1, '{"a": 5}', b"x" * 500)}
    assert blob == 2 * entry(encode_row(Op.UPDATE, (1,), **row))  # type: ignore[arg-type]


def test_a_value_over_the_bound_is_passed_over_and_the_key_behind_it_kept() -> None:
    columns = [build.blob("data", 3), build.varchar("id", 50), build.blob("more", 3)]
    body = build.table_map(7, "shop.orders", columns, [1])
    rows: list[list[Any]] = [
        *([b"x" * 5000, "a", b""], [b"", "b", b"y"], [b"x" * 900, "c", b"y" * 900], [None, "d", b"x" * 1001]),
        [b"x", "e", b"x" * 990],
    ]
    blob = streamed(build.WRITE, build.rows(7, columns, rows), most=1000, columns=columns, body=body)
    assert blob == b"".join(
        entry(encode_row(Op.INSERT, (values[1],), after=values))
        if values[1] == "b"
        else entry(encode_row(Op.INSERT, (values[1],), too_large=True))
        for values in rows
    )
    rows = [[b"x" * 600, "a", b""], [b"y" * 600, "b", b""]]  # each fits, and both do not
    blob = streamed(build.UPDATE, build.rows(7, columns, rows, update=True), most=1000, columns=columns, body=body)
    assert blob == entry(encode_row(Op.UPDATE, ("b",), old_key=("a",), too_large=True))


@pytest.mark.parametrize("cut", [1, 40, 700, 3000])
def test_a_row_that_is_cut(cut: int) -> None:
    data = build.rows(7, COLUMNS, [[1, "n", 5, "1.5", b"x" * 3000, (1, "25"), DOCUMENT, b"o", b"ab"]])
    with pytest.raises(DecodeError, match=r"WRITE_ROWS event .* shop\.orders"):
        streamed(build.WRITE, data[:-cut])


def test_rows_before_the_fault_are_encoded() -> None:
    rng = random.Random(1)
    rows = [row(rng, n) for n in range(5)]
    data = build.rows(7, COLUMNS, rows)
    encoder = encoder_of(64)
    body = Body(io.BytesIO(data[:-1]).read, len(data) - 1)
    open_rows(encoder, build.WRITE, body)
    stream = RowStream(encoder, body)
    with pytest.raises(DecodeError):
        while not stream.go(1 << 30):
            pass
    assert encoder.take().blob == whole(build.WRITE, build.rows(7, COLUMNS, rows[:-1]))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "table id is cut"),
        ((9).to_bytes(6, "little") + b"\1\0", "no table map said what table 9 is"),
        ((7).to_bytes(6, "little") + b"\1\0\1\0", "extra data of 1 bytes"),
        ((7).to_bytes(6, "little") + b"\1\0\2\0", "number of columns is missing"),
        ((7).to_bytes(6, "little") + b"\1\0\2\0\2\3", "its rows have 2 columns"),
        ((7).to_bytes(6, "little") + b"\1\0\2\0\x09\3", "bits of its present columns are cut"),
    ],
)
def test_what_comes_before_the_rows(head: bytes, words: str) -> None:
    encoder = encoder_of(64)
    encoder.large(header(build.WRITE, len(head)) + bytes(4), 19 + len(head), -1)
    with pytest.raises(DecodeError, match=words):
        open_rows(encoder, build.WRITE, Body(io.BytesIO(head).read, len(head)))


def test_the_end_of_a_statement_and_rows_that_nobody_wants() -> None:
    encoder = encoder_of(64)
    last = b"\xff\xff\xff\0\0\0\1\0\2\0\0"
    assert open_rows(encoder, build.WRITE, Body(io.BytesIO(last).read, len(last))) == stops.OK
    encoder.suppress = True
    assert open_rows(encoder, build.WRITE, Body(io.BytesIO(last).read, len(last))) == stops.OK
