"""Cursors over bytes, table maps, and the plan that follows from a map."""

from __future__ import annotations

import zlib
from types import ModuleType

import pytest

from datastores.mysql.decode import kinds
from datastores.mysql.decode.cursor import Cursor
from datastores.mysql.decode.table_map import Layout, parse_table_map, schema_of, type_name
from tests.support import mysql_events as build
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError
from wormhole.model.schema import Column

# --- table map: table maps: every kind of optional metadata, what is broken, and the plan that follows ---


COLUMNS = (
    build.integer("id", 8, unsigned=True),
    build.varchar("name", 300),
    build.char("code", 12, build.BINARY),
    build.enum("state", "new", "dönе"),
    build.set_of("tags", "a", "b"),
    build.decimal("price", 10, 2),
    build.blob("note", 2, build.LATIN1),
    build.blob("shape", 4, 0, type_=255),
    build.bit("bits", 10),
    build.char("wide", 1000),
)


def test_a_table_with_full_metadata() -> None:
    table = parse_table_map(build.table_map(1 << 40, "shop.orders", COLUMNS, [1, 0]))
    assert (table.table_id, table.database, table.table, table.name) == (1 << 40, "shop", "orders", "shop.orders")
    assert table.key == (1, 0)
    assert table.has_names
    assert [column.name for column in table.columns] == [column.name for column in COLUMNS]
    assert [column.unsigned for column in table.columns][:2] == [True, False]
    assert [column.type for column in table.columns] == [8, 15, 254, 247, 248, 246, 252, 255, 16, 254]
    assert table.columns[3].members == ("new", "dönе")
    assert table.columns[4].members == ("a", "b")
    assert table.columns[9].meta == 1000
    assert [column.collation for column in table.columns] == [0, 45, 63, 45, 45, 0, 8, 0, 0, 45]
    layout = Layout(table)
    assert layout.kinds.tolist() == [
        *(
            kinds.UINT,
            kinds.TEXT,
            kinds.PADDED,
            kinds.ENUM,
            kinds.SET,
            kinds.DECIMAL,
            kinds.CODED,
            kinds.BYTES,
            kinds.BIT,
        ),
        kinds.TEXT,
    ]
    assert layout.metas.tolist() == [8, 2, 1 | 12 << 8, 1, 1, 10 << 8 | 2, 2 | kinds.ASCII_SAFE, 4, 2, 2]
    schema = schema_of(table)
    assert schema.table == "shop.orders"
    assert schema.key == (Column("name", "text"), Column("id", "uint"))
    assert [column.type for column in schema.columns] == [
        *("uint", "text", "bytes", "text", "text", "decimal", "text", "bytes", "uint", "text")
    ]


def test_year_and_the_old_decimal_have_a_bit_of_signedness() -> None:
    columns = [
        build.year("y"),
        build.integer("v", 4),
        build.Col("d", 0, bytes),
        build.integer("w", 8, unsigned=True),
        build.bit("b", 4),
        build.integer("x", 1),
    ]
    body = build.table_map(1, "d.t", columns, extra=build.optional(1, bytes([0b10010000])))
    assert [column.unsigned for column in parse_table_map(body).columns] == [True, False, False, True, False, False]


@pytest.mark.parametrize(
    "extra",
    [
        build.optional(1, b"\0\0"),
        build.optional(3, b"\x2d\x2d"),
        build.optional(5, b"\1\1a\1\1b"),
        build.optional(6, b"\1\1a\1\1b"),
        build.optional(11, b"\x2d\x2d\x2d"),
    ],
)
def test_metadata_of_more_columns_than_are_counted_is_refused(extra: bytes) -> None:
    columns = [build.integer("n", 4), build.varchar("v"), build.enum("e", "a"), build.set_of("s", "a")]
    with pytest.raises(DecodeError, match="left over"):
        parse_table_map(build.table_map(1, "d.t", columns, extra=extra))


def test_default_charsets_with_exceptions() -> None:
    columns = [
        build.varchar("a"),
        build.integer("b", 4),
        build.varchar("c"),
        build.enum("d", "x"),
        build.enum("e", "y"),
    ]
    body = build.table_map(1, "d.t", columns, names=False)
    body += build.optional(2, bytes([45, 1, 63])) + build.optional(10, bytes([45, 0, 8]))
    collations = [column.collation for column in parse_table_map(body).columns]
    assert collations == [45, 0, 63, 8, 45]
    assert not parse_table_map(body).has_names


def test_mariadb_counts_geometries_among_the_columns_with_a_charset() -> None:
    columns = [build.blob("shape", 4, 0, type_=255), build.varchar("name", collation=8)]
    body = build.table_map(1, "d.t", columns, names=False)
    body = body[: body.index(build.optional(3, b"\x08"))]
    assert [c.collation for c in parse_table_map(body + build.optional(3, b"\x3f\x08"), True).columns] == [63, 8]
    assert [c.collation for c in parse_table_map(body + build.optional(3, b"\x08")).columns] == [0, 8]
    with pytest.raises(DecodeError, match=r" 1 bytes .* type 3 .*\[log-undecodable\]"):
        parse_table_map(body + build.optional(3, b"\x3f\x08"))


def test_keys_with_prefixes_and_metadata_that_is_passed_over() -> None:
    columns = [build.varchar("a"), build.blob("v", 4, build.BINARY, type_=242), build.integer("c", 1)]
    extra = build.optional(9, bytes([0, 20, 2, 0])) + build.optional(7, b"\x01") + build.optional(12, b"\xa0")
    extra += build.optional(13, b"\x05") + build.optional(200, b"later")
    table = parse_table_map(build.table_map(1, "d.t", columns, extra=extra))
    assert table.key == (0, 2)
    assert Layout(table).kinds.tolist() == [kinds.TEXT, kinds.BYTES, kinds.INT]


@pytest.mark.parametrize(
    ("column", "kind", "type_"),
    [
        (build.integer("a", 3), kinds.INT, "int"),
        (build.integer("a", 4, unsigned=True), kinds.UINT, "int"),
        (build.double("a"), kinds.DOUBLE, "double"),
        (build.single("a"), kinds.FLOAT, "double"),
        (build.year("a"), kinds.YEAR, "int"),
        (build.date("a"), kinds.DATE, "text"),
        (build.datetime2("a", 6), kinds.DATETIME2, "text"),
        (build.timestamp2("a", 3), kinds.TIMESTAMP2, "text"),
        (build.time2("a"), kinds.TIME2, "text"),
        (build.old_time("a"), kinds.TIME, "text"),
        (build.old_datetime("a"), kinds.DATETIME, "text"),
        (build.old_timestamp("a"), kinds.TIMESTAMP, "text"),
        (build.json_column("a"), kinds.JSON, "text"),
        (build.blob("a", 3, build.BINARY, type_=140), kinds.COMPRESSED, "bytes"),
        (build.blob("a", 3, build.UTF8MB4, type_=140), kinds.COMPRESSED, "text"),
        (build.blob("a", 9), kinds.UNKNOWN, "bytes"),
        (build.datetime2("a", 7), kinds.UNKNOWN, "bytes"),
        (build.decimal("a", 66, 0), kinds.UNKNOWN, "bytes"),
        (build.char("a", 10, 32), kinds.CODED, "text"),  # armscii8
        (build.char("a", 10, 9999), kinds.BYTES, "bytes"),  # no collation that is known
        (build.char("a", 10, build.UTF16), kinds.CODED, "text"),
    ],
)
def test_each_type_has_a_plan(column: build.Col, kind: int, type_: str) -> None:
    table = parse_table_map(build.table_map(1, "d.t", [column]))
    assert Layout(table).kinds.tolist() == [kind]
    assert schema_of(table).columns == (Column("a", type_),)


def test_only_codecs_that_keep_ascii_are_marked_so() -> None:
    def meta(collation: int) -> int:
        return Layout(parse_table_map(build.table_map(1, "d.t", [build.varchar("a", 10, collation)]))).metas[0]

    assert meta(build.GBK) == 1 | kinds.ASCII_SAFE
    assert meta(build.UTF16) == 1


def test_every_cut_is_refused_or_has_less_metadata() -> None:
    body = build.table_map(1, "shop.orders", COLUMNS, [0])
    problems = []
    for cut in range(len(body)):
        try:
            assert len(parse_table_map(body[:cut]).columns) == len(COLUMNS)
        except DecodeError as error:
            problems.append(error.message)
    assert len(problems) > len(body) - 10
    assert all(problem.startswith("TABLE_MAP event") for problem in problems)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (build.table_map(1, "d.t", []), "claims 0 columns"),
        (build.table_map(1, "d.t", [build.Col("a", 20, bytes)]), "type 20, which is not known"),
        (build.table_map(1, "d.t", [build.Col("a", 99, bytes)]), "type 99, which is not known"),
        (build.table_map(1, "d.t", [build.Col("a", 3, bytes, b"?")]), "are left over"),
        (build.table_map(1, "d.t", [build.integer("a", 4)], [3]), "primary key has column 3 of 1"),
        (
            build.table_map(1, "d.t", [build.integer("a", 4)], extra=build.optional(4, b"\1b\1c")),
            "2 names for 1 columns",
        ),
        (
            build.table_map(1, "d.t", [build.varchar("a")], extra=build.optional(2, b"\x2d\x07\x08")),
            "charset for column 7",
        ),
        (
            build.table_map(1, "d.t", [build.enum("a", "x")], extra=build.optional(6, b"\x09\x01a")),
            "9 members in 2 bytes",
        ),
    ],
)
def test_what_is_broken_is_named(body: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        parse_table_map(body)


def test_types_have_names_for_people() -> None:
    assert type_name(246) == "DECIMAL"
    assert type_name(99) == "type 99"


# --- columns: the plan in the decoder's form, and MariaDB's compressed columns ---


columns = hot_module("datastores.mysql.decode.columns")


def test_sizes_follow_from_the_columns(columns: ModuleType) -> None:
    table = [
        *(build.integer("a", 3), build.datetime2("b", 3), build.timestamp2("c", 6), build.time2("d", 1)),
        *(
            build.decimal("e", 65, 30),
            build.date("f"),
            build.old_time("g"),
            build.single("h"),
            build.old_timestamp("i"),
        ),
        *(build.double("j"), build.old_datetime("k"), build.year("l"), build.bit("m", 64), build.enum("n", "x")),
        *(build.set_of("o", *"abcdefghi"), build.varchar("p"), build.json_column("q")),
    ]
    made = columns.Columns(Layout(parse_table_map(build.table_map(1, "d.t", table))))
    assert list(made.sizes) == [3, 7, 7, 4, 30, 3, 3, 4, 4, 8, 8, 1, 8, 1, 2, 0, 0]
    assert (made.count, made.json) == (17, 1)


@pytest.mark.parametrize("wrapped", [True, False])
def test_compressed_values(columns: ModuleType, wrapped: bool) -> None:
    deflate = zlib.compressobj(wbits=zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
    data = deflate.compress(b"wormhole" * 50) + deflate.flush()
    head = bytes([0x80 | (0 if wrapped else 8) | 2]) + (400).to_bytes(2, "big")
    assert columns.uncompress(head + data, 400) == b"wormhole" * 50
    assert columns.uncompress(head + data, 399) is None
    with pytest.raises((DecodeError, zlib.error)):
        columns.uncompress(head[:1] + (399).to_bytes(2, "big") + data, 1000)
    with pytest.raises((DecodeError, zlib.error)):
        columns.uncompress(head + data[:5], 1000)


def test_values_that_were_not_worth_compressing(columns: ModuleType) -> None:
    assert columns.uncompress(b"", 10) == b""
    assert columns.uncompress(b"\0short", 10) == b"short"
    assert columns.uncompress(b"\0short", 4) is None
    with pytest.raises(DecodeError, match="method 3"):
        columns.uncompress(b"\x30x", 10)


# --- cursor ---


def test_fields_follow_one_another_and_stop_at_the_end() -> None:
    cursor = Cursor(b"..\x01\x02\x03name\xffrest..", "event", 2, 14)
    assert cursor.number(1, "a") == 1
    assert cursor.number(2, "b") == 0x0302
    assert cursor.text(5, "c") == "name\\xff"
    assert cursor.left == 4
    assert cursor.rest() == b"rest"
    assert cursor.take(0, "nothing") == b""
    with pytest.raises(DecodeError, match="event: d takes 1 bytes, 0 are left"):
        cursor.number(1, "d")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\xfa", 250),
        (b"\xfc\x01\x02", 0x0201),
        (b"\xfd\x01\x02\x03", 0x030201),
        (b"\xfe\x01\x02\x03\x04\x05\x06\x07\x08", 0x0807060504030201),
    ],
)
def test_length_encoded_integers(data: bytes, value: int) -> None:
    cursor = Cursor(data, "event")
    assert cursor.length("n") == value
    assert cursor.left == 0


@pytest.mark.parametrize("data", [b"\xfb", b"\xff", b"\xfc\x01", b""])
def test_what_begins_no_integer_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="event: n "):
        Cursor(data, "event").length("n")


# The examples of the serialization library's description, first byte last there.
@pytest.mark.parametrize(
    ("data", "unsigned", "signed"),
    [
        (b"\x00", 0, 0),
        (b"\xfe", 127, -64),
        (b"\xfb\xff\x07", 65535, -32768),
        (b"\xf3\xff\x0f", 131070, 65535),
        (b"\xfb\xff\x0f", 131071, -65536),
        (b"\x7f" + b"\xff" * 7, 2**56 - 1, -(2**55)),
        (b"\xff" + b"\xff" * 8, 2**64 - 1, -(2**63)),
        (b"\xff" + b"\xfe" + b"\xff" * 7, 2**64 - 2, 2**63 - 1),
    ],
)
def test_variable_length_integers(data: bytes, unsigned: int, signed: int) -> None:
    assert Cursor(data, "event").varint("n") == unsigned
    assert Cursor(data, "event").signed_varint("n") == signed
    with pytest.raises(DecodeError, match="n takes"):
        Cursor(data[:-1], "event").varint("n")
