"""Cells of every type as the wire's values, and every break, in both forms."""

from __future__ import annotations

import struct
import zlib
from types import ModuleType
from typing import Any

import pytest

from datastores.mysql.decode.columns import Columns
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import mysql_events as build
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import decode_row, encode_row, values_of
from wormhole.wire.v1 import update_pb2

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
