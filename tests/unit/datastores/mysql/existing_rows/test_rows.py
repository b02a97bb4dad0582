"""Existing rows: the conditions that ask for them, the packets that carry them, and the updates that follow."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from datastores.mysql.existing_rows.key_order import KeyColumn, above, among, literal, order_by, up_to
from datastores.mysql.existing_rows.result_rows import Row
from tests.support.hot import hot_module
from wormhole.wire.rows import decode_row
from wormhole.wire.v1 import update_pb2
from wormhole.wire.v1.update_pb2 import Value

# --- key order: conditions over keys, as SQL ---


A, DOWN = KeyColumn("a", "int"), KeyColumn("d", "int", descending=True)
B = KeyColumn("b`c", "varchar", "latin1", "latin1_bin")
RANK = KeyColumn("r", "enum", members=("low", "mid", "high"))


def test_a_condition_over_several_columns_is_written_out() -> None:
    assert above([A], ["1"]) == "(`a` > 1)"
    assert above([A, B], ["1", "'x'"]) == "(`a` > 1 OR ((`a` = 1) AND `b``c` > 'x'))"
    assert up_to([A, B], ["1", "'x'"]) == "((`a` < 1 OR ((`a` = 1) AND `b``c` < 'x')) OR (`a` = 1 AND `b``c` = 'x'))"
    assert among([A, B], [["1", "'x'"], ["2", "'y'"]]) == "((`a` = 1 AND `b``c` = 'x') OR (`a` = 2 AND `b``c` = 'y'))"


def test_a_descending_column_is_compared_the_other_way() -> None:
    assert above([A, DOWN], ["1", "2"]) == "(`a` > 1 OR ((`a` = 1) AND `d` < 2))"
    assert up_to([DOWN], ["2"]) == "((`d` > 2) OR (`d` = 2))"
    assert order_by([A, DOWN]) == "`a`, `d` DESC"


def test_members_of_an_enum_are_listed() -> None:
    """The server makes ranges of them for equality only."""
    assert above([RANK], [literal(RANK, Value(text="low"))]) == "(`r` IN (2, 3))"
    assert above([RANK], [literal(RANK, Value(text="high"))]) == "(FALSE)"
    assert up_to([RANK], [literal(RANK, Value(text="low"))]) == "((`r` IN (0)) OR (`r` = 1))"
    assert literal(RANK, Value(text="")) == "0"  # the error value


@pytest.mark.parametrize(
    ("column", "value", "sql"),
    [
        (A, Value(int=-5), "-5"),
        (A, Value(uint=18446744073709551615), "18446744073709551615"),
        (KeyColumn("k", "bit"), Value(uint=3), "3"),
        (KeyColumn("k", "decimal"), Value(decimal="-1.50"), "-1.50"),
        (KeyColumn("k", "double"), Value(double=0.1), "1.00000000000000006e-01"),
        (KeyColumn("k", "float"), Value(double=0.1), "1.00000001490116119e-01"),
        (KeyColumn("k", "datetime"), Value(text="0000-00-00 00:00:00"), "'0000-00-00 00:00:00'"),
        (B, Value(text="a'ä"), "CONVERT(_utf8mb4 x'6127c3a4' USING latin1) COLLATE latin1_bin"),
        (KeyColumn("k", "varbinary"), Value(bytes=b"a'"), "x'6127'"),
        (KeyColumn("k", "uuid"), Value(bytes=bytes(16)), "CAST('00000000-0000-0000-0000-000000000000' AS UUID)"),
        (KeyColumn("k", "inet4"), Value(bytes=b"\x7f\0\0\1"), "CAST('127.0.0.1' AS INET4)"),
        (KeyColumn("k", "inet6"), Value(bytes=bytes(15) + b"\1"), "CAST('::1' AS INET6)"),
    ],
)
def test_values_as_sql(column: KeyColumn, value: Value, sql: str) -> None:
    assert literal(column, value) == sql


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (A, Value(text="1 OR 1")),
        (A, Value(null=True)),
        (A, Value()),
        (B, Value(bytes=b"\xff")),
        (KeyColumn("k", "decimal"), Value(decimal="1 OR 1")),
        (KeyColumn("k", "decimal"), Value(decimal="")),
        (KeyColumn("k", "date"), Value(text="2024' OR '1")),
        (KeyColumn("k", "uuid"), Value(bytes=b"short")),
        (KeyColumn("k", "inet4"), Value(bytes=b"short")),
        (RANK, Value(text="none")),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(column: KeyColumn, value: Value) -> None:
    with pytest.raises(ValueError, match=r"."):
        literal(column, value)


# --- result rows: rows in packets, cut into pieces anywhere ---


result_rows = hot_module("datastores.mysql.existing_rows.result_rows")

END = b"\xfe\0\0\2\0"


def packet(payload: bytes) -> bytes:
    """One packet, or several where it is as long."""
    found = b""
    while len(payload) >= 0xFFFFFF:
        found += b"\xff\xff\xff\0" + payload[:0xFFFFFF]
        payload = payload[0xFFFFFF:]
    return found + len(payload).to_bytes(3, "little") + b"\0" + payload


def read(module: Any, data: bytes, count: int, piece: int) -> list[Row]:
    pieces = iter([data[i : i + piece] for i in range(0, len(data), piece)])
    rows = module.ResultRows(lambda: next(pieces), count)
    return [row for block in iter(rows.take, []) for row in block]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_rows_come_in_pieces(result_rows: Any, piece: int) -> None:
    rows = [b"\x01a\xfb", b"\x00\x02bc", b"\xfc\x2c\x01" + b"x" * 300 + b"\x01y"]
    found = read(result_rows, b"".join(map(packet, rows)) + packet(END), 2, piece)
    assert found == [[b"a", None], [b"", b"bc"], [b"x" * 300, b"y"]]


def test_a_row_of_several_packets(result_rows: Any) -> None:
    size = (1 << 24) + 5
    row = b"\xfe" + size.to_bytes(8, "little") + b"x" * size
    found = read(result_rows, packet(row) + packet(b"\x01a") + packet(END), 1, 1 << 16)
    assert [len(one[0] or b"") for one in found] == [size, 1]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_error_behind_rows(result_rows: Any, at_once: bool) -> None:
    row, error = packet(b"\x01a"), packet(b"\xff\xb1\x07#70100too long")
    pieces = iter([row + error] if at_once else [row, error])
    rows = result_rows.ResultRows(lambda: next(pieces), 1)
    assert rows.take() == [[b"a"]]
    with pytest.raises(pymysql.MySQLError) as raised:
        rows.take()
    assert raised.value.args[0] == 1969


@pytest.mark.parametrize(
    "row", [b"", b"\x05ab", b"\x01a\x01", b"\x01a\x01bc", b"\xfc\x01", b"\xfe\1\0\0\0\0\0\0\0", b"\xfe" + b"\xff" * 9]
)
def test_bytes_that_are_no_row(result_rows: Any, row: bytes) -> None:
    with pytest.raises(pymysql.MySQLError):
        result_rows.split_row(row, 0, len(row), 2)
    with pytest.raises(pymysql.MySQLError):
        result_rows.split_row(b"\x01a" + row + bytes(300), 2, 2 + len(row), 2)


# --- values: rows of a text result as updates ---


values = hot_module("datastores.mysql.existing_rows.values")


@pytest.mark.parametrize("n", [0, 1, 42, 63, 64, 8191, 8192, 1048575, 1048576, 1 << 40])
@pytest.mark.parametrize("form", ["{}", "{:020d}", "-{}"])
def test_an_integer_takes_the_least_bytes_however_it_is_shown(values: Any, n: int, form: str) -> None:
    shown = form.format(n)
    entry = values.entry_of_kind("bigint", "")(shown.encode())
    assert entry == entry_of_least_bytes(update_pb2.Value(int=int(shown)))


def entry_of_least_bytes(shown: update_pb2.Value) -> bytes:
    return update_pb2.Update(after=[shown]).SerializeToString()[1:]


def value(values: Any, kind: str, raw: bytes, codec: str = "", *, compressed: bool = False) -> update_pb2.Value:
    """What an entry holds."""
    entry = values.entry_of_kind(kind, codec, compressed=compressed)(raw)
    return update_pb2.Update.FromString(b"\x1a" + entry).after[0]


@pytest.mark.parametrize(
    ("kind", "raw", "shown"),
    [
        ("int", b"8191", update_pb2.Value(int=8191)),
        ("int", b"8192", update_pb2.Value(int=8192)),
        ("int", b"1048575", update_pb2.Value(int=1048575)),
        ("int", b"1048576", update_pb2.Value(int=1048576)),
        ("int", b"-1", update_pb2.Value(int=-1)),
        ("int", b"00042", update_pb2.Value(int=42)),
        ("bigint", b"9223372036854775807", update_pb2.Value(int=9223372036854775807)),
        ("bigint", b"-9223372036854775808", update_pb2.Value(int=-9223372036854775808)),
        ("bigint", b"18446744073709551615", update_pb2.Value(uint=18446744073709551615)),
        ("year", b"0000", update_pb2.Value(int=0)),
        ("bit", b"\x01\xff", update_pb2.Value(uint=511)),
        ("decimal", b"-00012.50", update_pb2.Value(decimal="-12.50")),
        ("decimal", b"000.50", update_pb2.Value(decimal="0.50")),
        ("decimal", b"0.50", update_pb2.Value(decimal="0.50")),
        ("decimal", b"000", update_pb2.Value(decimal="0")),
        ("double", b"-0", update_pb2.Value(double=-0.0)),
        ("float", b"0.10000000149011612", update_pb2.Value(double=0.1)),
        ("uuid", b"123e4567-e89b-12d3-a456-426655440000", update_pb2.Value(bytes=bytes.fromhex("123e4567e89b12d3a456426655440000"))),  # noqa: E501
        ("inet4", b"192.0.2.1", update_pb2.Value(bytes=b"\xc0\0\2\1")),
        ("inet6", b"::1", update_pb2.Value(bytes=bytes(15) + b"\1")),
    ],
)  # fmt: skip
def test_values(values: Any, kind: str, raw: bytes, shown: update_pb2.Value) -> None:
    assert value(values, kind, raw) == shown


@pytest.mark.parametrize("size", [0, 125, 126, 300, 20_000])
def test_strings_of_every_size(values: Any, size: int) -> None:
    assert value(values, "varchar", b"x" * size, "utf-8").text == "x" * size
    assert value(values, "varbinary", b"\xff" * size).bytes == b"\xff" * size


def test_text(values: Any) -> None:
    assert value(values, "varchar", b"\xe4", "mysql-latin1").text == "ä"
    assert value(values, "varchar", "ä".encode(), "utf-8").text == "ä"
    assert value(values, "varchar", b"\xff", "utf-8").bytes == b"\xff", "what is no UTF-8 stays bytes"
    assert value(values, "varchar", b"\xff", "ascii").bytes == b"\xff"
    assert value(values, "varchar", b"\xff", "ascii", compressed=True).text == "?", (
        "as the decoder of compressed columns"
    )
    assert value(values, "enum", b"\xe4", "mysql-latin1").text == "ä"
    assert value(values, "enum", b"\xe4").text == "\\xe4", "names in the character set binary"


def added(encoder: Any, *rows: list[bytes | None]) -> list[tuple[bytes, bytes]]:
    """Key and update of each."""
    found: dict[bytes, bytes] = {}
    assert encoder.add(list(rows), found, None, 1 << 20) == len(rows)
    assert encoder.size == sum(map(len, found.values()))
    return list(found.items())


def test_a_row(values: Any) -> None:
    of_kind = values.entry_of_kind
    ((key, update),) = added(
        values.RowEncoder([of_kind("int", ""), of_kind("varchar", "utf-8")], (1, 0), 20), [b"7", b"k"]
    )
    row = decode_row(update)
    assert row.op == update_pb2.READ
    assert [v.WhichOneof("kind") for v in row.key] == ["text", "int"]
    assert row.after[0].int == 7
    assert update_pb2.RowKey.FromString(key).values == row.key
    ((_, update),) = added(values.RowEncoder([of_kind("int", "")] * 2, (0,), 20), [b"1", None])
    assert decode_row(update).after[1].null


def test_a_row_that_is_too_large_has_its_key_alone(values: Any) -> None:
    entries = [values.entry_of_kind("int", ""), values.entry_of_kind("varchar", "utf-8")]
    whole = added(values.RowEncoder(entries, (0,), 20, True), [b"6", b"x", b"0"], [b"8", b"x", None])
    assert [len(decode_row(update).after) for _, update in whole] == [2, 2]
    large = added(values.RowEncoder(entries, (0,), 20), [b"7", b"x" * 20])
    large += added(values.RowEncoder(entries, (0,), 20, True), [b"7", None, b"1"])
    for _, update in large:
        row = decode_row(update)
        assert row.too_large
        assert row.key[0].int == 7
        assert not row.after


def test_rows_are_taken_until_there_is_no_room(values: Any) -> None:
    entries = [values.entry_of_kind("int", "")] * 2
    rows: list[list[bytes | None]] = [[b"1", b"%d" % n] for n in range(5)]
    ((_, update),) = added(values.RowEncoder(entries, (1,), 20), rows[0])
    encoder = values.RowEncoder(entries, (1,), 20)
    found: dict[bytes, bytes] = {}
    raw_keys: dict[bytes, list[bytes | None]] = {}
    assert encoder.add(rows, found, raw_keys, 2 * len(update)) == 2
    assert encoder.add(rows[2:], found, raw_keys, 3 * len(update) + 1) == 2
    assert list(raw_keys.values()) == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert list(raw_keys) == list(found)


def test_a_row_with_other_than_its_columns_is_refused(values: Any) -> None:
    encoder = values.RowEncoder([values.entry_of_kind("int", "")] * 2, (1,), 20)
    with pytest.raises(ValueError, match="3 values for 2 columns"):
        encoder.add([[b"1", b"2", b"3"]], {}, None, 100)
