"""Rows events as updates, held whole or read as a stream, in both forms."""

from __future__ import annotations

import io
import random
import struct
import zlib
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from datastores.common.encode.piece import HASHED
from datastores.mysql.decode import events, stops
from datastores.mysql.decode.columns import Columns
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.large_event import Body
from datastores.mysql.decode.row_stream import RowStream, open_rows
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import mysql_events as build
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import decode_row, encode_row, entry, values_of
from wormhole.wire.v1 import update_pb2

# --- rows ---


rows = hot_module("datastores.mysql.decode.rows")

COLUMNS = [build.integer("id", 4), build.varchar("name"), build.blob("data", 3)]
A, B = build.ABSENT, UNAVAILABLE
INSERT, UPDATE, DELETE = 1, 2, 3


def table(module: ModuleType, columns: list[build.Col], key: list[int], shard: int = 0) -> Any:
    body = build.table_map(1, "shop.orders", columns, key)
    return module.Table(body, Layout(parse_table_map(body)), 3, shard)


def encoded(
    module: ModuleType,
    op: int,
    images: list[Any],
    *,
    key: tuple[int, ...] = (0,),
    columns: list[build.Col] = COLUMNS,
    **options: Any,
) -> Any:
    made = module.Rows(options.pop("most", 1 << 20), options.pop("shards", 0), 64)
    known = table(module, columns, list(key), options.pop("shard", 5))
    body = build.rows(1, columns, images, update=op == UPDATE, **options)[8:]
    made.event(b"#" + body, 1, 1 + len(body), known, op, options.get("version", 2) == 2, False)
    return made


def updates(made: Any) -> list[bytes]:
    ends = [0, *made.updates.ends[: made.updates.count]]
    data = bytes(made.updates.out)
    return [data[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("version", [1, 2])
def test_inserts_and_deletes(rows: ModuleType, version: int) -> None:
    images: list[list[Any]] = [[1, "a", b"x"], [2, None, b"y" * 300], [-3, "", None]]
    made = encoded(rows, INSERT, images, version=version)
    assert updates(made) == [entry(encode_row(Op.INSERT, (i[0],), after=i)) for i in images]
    assert made.updates.shards[:3].tolist() == [5, 5, 5]
    assert made.updates.schemas[:3].tolist() == [3, 3, 3]
    made = encoded(rows, DELETE, images, version=version, extra=b"" if version == 1 else b"\0\5more.")
    assert updates(made) == [entry(encode_row(Op.DELETE, (i[0],), before=i)) for i in images]


@pytest.mark.parametrize("hash_", [1 << 63, None, build.ABSENT])
def test_a_hidden_column_is_passed_over(rows: ModuleType, hash_: Any) -> None:
    columns = [COLUMNS[0], build.integer("DB_ROW_HASH_1", 8, unsigned=True), *COLUMNS[1:]]
    map_ = parse_table_map(build.table_map(1, "shop.orders", columns, [0]))
    hidden = tuple(replace(column, hidden=column.name.startswith("DB")) for column in map_.columns)
    known = rows.Table(b"map", Layout(replace(map_, columns=hidden)), 3, 5)
    made = rows.Rows(1 << 20, 0, 64)
    images = [[1, hash_, "a", b"x"], [2, hash_, "b", None]]
    body = build.rows(1, columns, images, update=True)[8:]
    made.event(body, 0, len(body), known, UPDATE, True, False)
    assert updates(made) == [
        entry(encode_row(Op.UPDATE, (2,), after=(2, "b", None), before=(1, "a", b"x"), old_key=(1,)))
    ]
    if hash_ == 1 << 63:
        cut = len(build.rows(1, columns[:2], [[1, hash_]], update=False)) - 12
        with pytest.raises(DecodeError, match="DB_ROW_HASH_1"):
            made.event(body, 0, cut, known, UPDATE, True, False)


@pytest.mark.parametrize(
    ("before", "after", "key", "new", "old", "old_key"),
    [
        # MINIMAL: the key before, what changed after.
        ([1, A, A], [A, "b", A], (1,), (1, "b", B), (1, B, B), ()),
        ([1, A, A], [2, A, A], (2,), (2, B, B), (1, B, B), (1,)),
        # NOBLOB: all but the blobs that did not change.
        ([1, "a", A], [1, "b", A], (1,), (1, "b", B), (1, "a", B), ()),
        # What the image after the change does not have was not changed.
        ([1, "a", None], [A, A, b"new"], (1,), (1, "a", b"new"), (1, "a", None), ()),
    ],
)
def test_updates_with_poorer_images(
    rows: ModuleType, before: Any, after: Any, key: Any, new: Any, old: Any, old_key: Any
) -> None:
    made = encoded(rows, UPDATE, [before, after])
    assert updates(made) == [entry(encode_row(Op.UPDATE, key, after=new, before=old, old_key=old_key))]


def test_inserts_and_deletes_with_poorer_images(rows: ModuleType) -> None:
    made = encoded(rows, INSERT, [[1, A, b"x"], [2, A, None]])
    assert updates(made) == [
        entry(encode_row(Op.INSERT, (1,), after=(1, B, b"x"))),
        entry(encode_row(Op.INSERT, (2,), after=(2, B, None))),
    ]
    made = encoded(rows, DELETE, [[1, A, A]])
    assert updates(made) == [entry(encode_row(Op.DELETE, (1,), before=(1, B, B)))]
    made = encoded(rows, INSERT, [[A, A, A]])  # all defaults: a row of no bytes
    assert updates(made) == [entry(encode_row(Op.INSERT, (B,), after=(B, B, B)))]


def test_only_a_table_with_a_key_can_be_split(rows: ModuleType) -> None:
    with pytest.raises(ValueError, match="without a primary key"):
        table(rows, COLUMNS, [], HASHED)
    with pytest.raises(ValueError, match="max_update_bytes"):
        rows.Rows(0, 0, 64)


def test_truncates_going_back_and_dropping_what_was_taken(rows: ModuleType) -> None:
    made = encoded(rows, INSERT, [[i, "n", b"d" * i] for i in range(2000)])
    made.updates.truncate(7, 9)
    all_of_them = updates(made)
    assert all_of_them[-1] == entry(encode_row(Op.TRUNCATE, ()))
    assert (made.updates.schemas[2000], made.updates.shards[2000]) == (7, 9)
    made.updates.back(1999)
    assert updates(made) == all_of_them[:1999]
    made.updates.drop(1500)
    assert updates(made) == all_of_them[1500:1999]
    assert made.updates.schemas[:499].tolist() == [3] * 499
    made.updates.drop(0)
    assert made.updates.count == 499
    made.updates.drop(499)
    assert (made.updates.count, made.updates.used) == (0, 0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "extra data"),
        (b"\1\0", "extra data of 1 bytes"),
        (b"\x09\0", "extra data of 9 bytes"),
        (b"\2\0", "number of columns is missing"),
        (b"\2\0\xff", "cut or out of range"),
        (b"\2\0\xfc\1", "cut or out of range"),
        (b"\2\0\4\x0f", "rows have 4 columns, its table map has 3"),
        (b"\2\0\3", "present columns are cut"),
        (b"\2\0\3\0\1", "follow rows that have none"),
        (b"\2\0\3\7", "null bits"),
    ],
)
def test_what_is_broken_is_named_and_leaves_nothing(rows: ModuleType, body: bytes, text: str) -> None:
    made = rows.Rows(1 << 20, 0, 64)
    with pytest.raises(DecodeError, match=text) as raised:
        made.event(body, 0, len(body), table(rows, COLUMNS, [0]), INSERT, True, False)
    assert "shop.orders" in str(raised.value)
    assert (made.updates.count, made.updates.used) == (0, 0)


def test_every_cut_is_refused_or_ends_between_rows(rows: ModuleType) -> None:
    images = [[1, "a", b"x"], [1, "b", b"y"], [2, "c", b"z"], [2, "d", None]]
    body = build.rows(1, COLUMNS, images, update=True)[8:]
    known = table(rows, COLUMNS, [0])
    ends = []
    for cut in range(len(body)):
        made = rows.Rows(1 << 20, 0, 64)
        try:
            made.event(body, 0, cut, known, UPDATE, True, False)
        except DecodeError:
            assert (made.updates.count, made.updates.used) == (0, 0)
        else:
            ends.append(made.updates.count)
    assert ends == [1]
    with pytest.raises(ValueError, match="out of range"):
        rows.Rows(1, 0, 64).event(body, 0, len(body) + 1, known, UPDATE, True, False)


def test_an_event_that_breaks_in_its_second_row_leaves_earlier_events_alone(rows: ModuleType) -> None:
    made = encoded(rows, INSERT, [[1, "a", b"x"]])
    body = build.rows(1, COLUMNS, [[2, "a", b"x"], [3, "b", b"y"]])[8:]
    with pytest.raises(DecodeError):
        made.event(body, 0, len(body) - 1, table(rows, COLUMNS, [0]), INSERT, True, False)
    assert updates(made) == [entry(encode_row(Op.INSERT, (1,), after=(1, "a", b"x")))]


# --- row image: cells of every type as the wire's values, and every break, in both forms ---


cells = hot_module("datastores.mysql.decode.row_image")


def plan(*columns: build.Col) -> Columns:
    return Columns(Layout(parse_table_map(build.table_map(1, "shop.orders", columns))))


def read(
    module: ModuleType, columns: list[build.Col], values: list[Any], limit: int = 1 << 20, room: bytes = b""
) -> Any:
    """The image's values, and the image."""
    image = module.Image(limit)
    present = [value is not build.ABSENT for value in values]
    data = room + build.image(columns, values)
    end = image.read(data, len(room), len(data), plan(*columns), build.bitmap(present), sum(present), 0x1A, None)
    assert end == len(data)
    return values_of(decode_row(bytes(image.out[: image.used])).after), image


INT8, BIG = build.integer("a", 8), build.integer("a", 8, unsigned=True)
UTF8, LATIN1, BYTES = build.varchar("a"), build.varchar("a", 100, 8), build.varchar("a", 100, 63)
GEOMETRY = build.blob("a", 4, 0, type_=255)
CASES: dict[str, tuple[build.Col, Any, Any]] = {
    **{
        f"int{size}": (build.integer("a", size), -(1 << 8 * size - 1), -(1 << 8 * size - 1)) for size in (1, 2, 3, 4, 8)
    },
    **{
        f"most{size}": (build.integer("a", size), (1 << 8 * size - 1) - 1, (1 << 8 * size - 1) - 1)
        for size in (1, 2, 3, 4, 8)
    },
    **{
        f"uint{size}": (build.integer("a", size, unsigned=True), (1 << 8 * size) - 1, (1 << 8 * size) - 1)
        for size in (1, 2, 3, 4, 8)
    },
    "zero": (INT8, 0, 0),
    "unsigned at the sign": (BIG, 1 << 63, 1 << 63),
    "unsigned below the sign": (BIG, (1 << 63) - 1, (1 << 63) - 1),
    "double": (build.double("a"), -0.1, -0.1),
    "single": (build.single("a"), 3.14, 3.14),
    "decimal": (build.decimal("a", 10, 2), "-12.30", "-12.30"),
    "bit": (build.bit("a", 64), (1 << 64) - 1, (1 << 64) - 1),
    "bit of ten": (build.bit("a", 10), 513, 513),
    "year": (build.year("a"), 2155, 2155),
    "no year": (build.year("a"), 0, 0),
    "date": (build.date("a"), "2024-02-29", "2024-02-29"),
    "partial date": (build.date("a"), "2024-00-00", "2024-00-00"),
    "datetime": (build.datetime2("a", 3), "2024-02-29 12:34:56.789", "2024-02-29 12:34:56.789"),
    "timestamp": (build.timestamp2("a", 6), (1709210096, "000001"), "2024-02-29 12:34:56.000001"),
    "time": (build.time2("a", 2), "-838:59:58.99", "-838:59:58.99"),
    "old time": (build.old_time("a"), "-838:59:59", "-838:59:59"),
    "old datetime": (build.old_datetime("a"), "2024-02-29 12:34:56", "2024-02-29 12:34:56"),
    "old timestamp": (build.old_timestamp("a"), 1709210096, "2024-02-29 12:34:56"),
    "text": (UTF8, "wörld €𝄞", "wörld €𝄞"),
    "empty text": (UTF8, "", ""),
    "long text": (build.varchar("a", 2000), "x" * 1999, "x" * 1999),
    "long text of two bytes": (build.varchar("a", 2000), "ä" * 700, "ä" * 700),
    "no utf-8": (UTF8, b"a\xff", b"a\xff"),
    "overlong": (UTF8, b"\xc0\xaf", b"\xc0\xaf"),
    "surrogate": (UTF8, b"\xed\xa0\x80", b"\xed\xa0\x80"),
    "too high": (UTF8, b"\xf4\x90\x80\x80", b"\xf4\x90\x80\x80"),
    "cut": (UTF8, b"\xe2\x82", b"\xe2\x82"),
    "broken inside": (UTF8, b"\xf0\x9d\x41\x9e", b"\xf0\x9d\x41\x9e"),
    "latin1": (LATIN1, b"caf\xe9 \x80\x81", "café €\x81"),
    "latin1 in ascii": (LATIN1, b"cafe", "cafe"),
    "gbk": (build.varchar("a", 100, 28, "gbk"), "中文", "中文"),
    "gbk that is none": (build.varchar("a", 100, 28), b"a\xff", "a?"),
    "utf16": (build.varchar("a", 100, 54, "utf-16-be"), "ab中", "ab中"),
    "bytes": (BYTES, b"\0\xff\0", b"\0\xff\0"),
    "char": (build.char("a", 10), "abc  ", "abc"),
    "long char": (build.char("a", 1020), "y" * 1000, "y" * 1000),
    "binary": (build.char("a", 5, build.BINARY), b"a\0b\0\0", b"a\0b\0\0"),
    "binary of zeros": (build.char("a", 5, build.BINARY), bytes(5), bytes(5)),
    "blob": (build.blob("a", 3), b"\xff" * 300, b"\xff" * 300),
    "text blob": (build.blob("a", 2, 45), "tëxt", "tëxt"),
    "geometry": (GEOMETRY, bytes(25), bytes(25)),
    "vector": (build.blob("a", 4, 63, type_=242), bytes(8), bytes(8)),
    "enum": (build.enum("a", "small", "größe"), 2, "größe"),
    "enum error": (build.enum("a", "small"), 0, ""),
    "set": (build.set_of("a", *(f"m{i}" for i in range(64))), 1 << 63 | 1, "m0,m63"),
    "empty set": (build.set_of("a", "x"), 0, ""),
    "json null": (build.json_column("a"), b"", "null"),
    "json": (build.json_column("a"), b"\x0c\x02hi", '"hi"'),
    "compressed": (build.blob("a", 2, 63, type_=140), b"\x81\x05" + zlib.compress(b"hello"), b"hello"),
    "compressed text": (build.blob("a", 2, 8, type_=140), b"\0caf\xe9", "café"),
    "compressed no utf-8": (build.blob("a", 2, 45, type_=140), b"\0\xff", b"\xff"),
    "null": (INT8, None, None),
    "absent": (INT8, build.ABSENT, UNAVAILABLE),
}


@pytest.mark.parametrize("name", CASES)
def test_each_type_between_others(cells: ModuleType, name: str) -> None:
    column, stored, value = CASES[name]
    columns = [build.integer("x", 1), column, build.varchar("y")]
    for room in (b"", b"#" * 7):
        values, image = read(cells, columns, [1, stored, "end"], room=room)
        expected = value if "decimal" not in name else values[1]
        assert values == (1, expected, "end")
        if "decimal" in name:
            assert str(values[1]) == value
        assert type(values[1]) is type(expected)
        assert (image.absent, image.too_large) == (int(name == "absent"), False)


def test_kinds_on_the_wire_are_those_of_encode_row(cells: ModuleType) -> None:
    columns = [INT8, BIG, BIG, build.double("d"), UTF8, BYTES, INT8, INT8]
    _, image = read(cells, columns, [-5, 7, 1 << 63, 1.5, "text", b"bytes", None, build.ABSENT])
    row = update_pb2.Update.FromString(
        encode_row(Op.INSERT, (), after=(-5, 7, 1 << 63, 1.5, "text", b"bytes", None, UNAVAILABLE))
    )
    row.ClearField("op")
    assert bytes(image.out[: image.used]) == row.SerializeToString()
    starts = list(image.starts)[: len(columns) + 1]
    assert starts[-1] == image.used
    assert bytes(image.present)[: len(columns)] == bytes([1, 1, 1, 1, 1, 1, 1, 0])
    _, bits = read(cells, [build.bit("a", 8)], [3])
    assert update_pb2.Update.FromString(bytes(bits.out[: bits.used])).after[0].WhichOneof("kind") == "uint"


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 255, 256, 257, 5000, 16383, 16384, 70_000])
def test_sizes_at_the_edges_of_varints_and_copies(cells: ModuleType, size: int) -> None:
    column = build.blob("a", 3)
    value = bytes(i % 251 for i in range(size))
    assert read(cells, [column], [value])[0] == (value,)
    text = build.blob("a", 3, build.UTF8MB4)
    assert read(cells, [text], ["z" * size])[0] == ("z" * size,)


def test_a_value_over_the_limit_is_left_out(cells: ModuleType) -> None:
    for column, value in (
        (build.blob("a", 2), bytes(101)),
        (build.json_column("a"), bytes(101)),
        (build.blob("a", 2, 63, type_=140), bytes(102)),
        (build.char("a", 101, build.BINARY), b""),
    ):
        values, image = read(cells, [INT8, column, UTF8], [1, value, "x"], limit=100)
        assert values == (1, UNAVAILABLE, "x")
        assert image.too_large


def test_many_columns_and_null_bits(cells: ModuleType) -> None:
    columns = [build.integer(f"c{i}", 2) for i in range(300)]
    values = [None if i % 3 == 0 else build.ABSENT if i % 7 == 0 else i for i in range(300)]
    expected = tuple(UNAVAILABLE if value is build.ABSENT else value for value in values)
    got, image = read(cells, columns, values)
    assert got == expected
    assert image.absent == sum(value is build.ABSENT for value in values)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1] not in {None, build.ABSENT}])
def test_every_cut_is_refused_by_name(cells: ModuleType, name: str) -> None:
    column, stored, _ = CASES[name]
    data = build.image([column], [stored])
    columns = plan(column)
    for cut in {*range(min(len(data), 12)), len(data) - 1}:
        with pytest.raises(DecodeError, match=r"shop\.orders"):
            cells.Image(1 << 20).read(data[:cut], 0, cut, columns, b"\1", 1, 0x1A, None)
        with pytest.raises(DecodeError, match=r"shop\.orders"):  # more bytes are there, and not the row's
            cells.Image(1 << 20).read(data + bytes(99), 0, cut, columns, b"\1", 1, 0x1A, None)


@pytest.mark.parametrize(
    ("column", "raw", "text"),
    [
        (build.blob("price", 9), b"", r"column price \(BLOB\): this type"),
        (build.enum("e", "x"), b"\2", "no member 2"),
        (build.set_of("s", "x"), b"\2", "has 1 members and the value is 0x2"),
        (build.date("d"), b"\xff\xff\xff", "0xffffff is no value"),
        (build.char("c", 2, build.BINARY), b"\3abc", "longer than the column"),
        (build.blob("z", 1, 63, type_=140), b"\2\x81\x05", "compressed value is broken"),
        (build.json_column("j"), b"\1\0\0\0\x77", r"column j \(JSON\)"),
    ],
)
def test_what_is_no_value_is_named(cells: ModuleType, column: build.Col, raw: bytes, text: str) -> None:
    data = b"\0" + raw
    with pytest.raises(DecodeError, match=text):
        cells.Image(100).read(data, 0, len(data), plan(column), b"\1", 1, 0x1A, None)


def test_places_out_of_range_are_the_callers_mistake(cells: ModuleType) -> None:
    image, columns = cells.Image(100), plan(INT8)
    for at, end, bits in ((-1, 5, b"\1"), (3, 2, b"\1"), (0, 10, b"\1"), (0, 9, b"")):
        with pytest.raises(ValueError, match="out of range"):
            image.read(bytes(9), at, end, columns, bits, 1, 0x1A, None)


def test_changes_of_json_documents(cells: ModuleType) -> None:
    columns = [build.json_column("j"), build.json_column("k"), INT8]
    document = b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x05\x00a"  # {"a": 5}
    diff = b"\0\x03$.a" + bytes([3]) + b"\x05\x07\x00"
    before, after = cells.Image(1000), cells.Image(1000)
    first = build.image(columns, [document, None, 1])
    second = b"\1" + b"\1" + build.image(columns, [diff, b"\x05\x01\x00", 2])
    data = first + second
    at = before.read(data, 0, len(data), plan(*columns), b"\7", 3, 0x22, None)
    assert values_of(decode_row(bytes(before.out[: before.used])).before) == ('{"a": 5}', None, 1)
    assert after.read(data, at, len(data), plan(*columns), b"\7", 3, 0x1A, before, data) == len(data)
    assert values_of(decode_row(bytes(after.out[: after.used])).after) == ('{"a": 7}', "1", 2)
    # The document before is not in the image: what the change made of it is not known.
    data = build.image(columns, [build.ABSENT, None, 1]) + second
    at = before.read(data, 0, len(data), plan(*columns), b"\6", 2, 0x22, None)
    after.read(data, at, len(data), plan(*columns), b"\7", 3, 0x1A, before)
    row = decode_row(bytes(after.out[: after.used]))
    assert values_of(row.after) == (UNAVAILABLE, "1", 2)
    assert row.after[0].WhichOneof("kind") is None  # it changed, unlike a column that is not in the image
    with pytest.raises(DecodeError, match="options"):
        after.read(b"\2" + bytes(30), 0, 31, plan(*columns), b"\7", 3, 0x1A, before)


def test_no_form_trusts_what_struct_would_refuse(cells: ModuleType) -> None:
    data = b"\0" + struct.pack("<I", 0xFFFFFFFF) + b"x"
    with pytest.raises(DecodeError, match="4294967295 bytes do not fit"):
        cells.Image(100).read(data, 0, len(data), plan(build.blob("a", 4)), b"\1", 1, 0x1A, None)


# --- row stream ---


ORDERS = [
    *(build.integer("id", 8), build.varchar("name", 300), build.integer("n", 3), build.decimal("price", 12, 3)),
    *(
        build.blob("data", 3),
        build.timestamp2("seen", 2),
        build.json_column("doc"),
        build.varchar("old", 200, build.LATIN1),
    ),
    build.char("code", 6, build.BINARY),
]
ORDERS_MAP = build.table_map(7, "shop.orders", ORDERS, [0])
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


def encoder_of(held: int, most: int = 1 << 20, columns: list[build.Col] = ORDERS, body: bytes = ORDERS_MAP) -> Encoder:
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
        data = build.rows(7, ORDERS, rows, update=kind in {24, build.UPDATE}, version=2 if kind >= 30 else 1)
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
    data = build.rows(7, ORDERS, [[1, "n", 5, "1.5", b"x" * 3000, (1, "25"), DOCUMENT, b"o", b"ab"]])
    with pytest.raises(DecodeError, match=r"WRITE_ROWS event .* shop\.orders"):
        streamed(build.WRITE, data[:-cut])


def test_rows_before_the_fault_are_encoded() -> None:
    rng = random.Random(1)
    rows = [row(rng, n) for n in range(5)]
    data = build.rows(7, ORDERS, rows)
    encoder = encoder_of(64)
    body = Body(io.BytesIO(data[:-1]).read, len(data) - 1)
    open_rows(encoder, build.WRITE, body)
    stream = RowStream(encoder, body)
    with pytest.raises(DecodeError):
        while not stream.go(1 << 30):
            pass
    assert encoder.take().blob == whole(build.WRITE, build.rows(7, ORDERS, rows[:-1]))


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
