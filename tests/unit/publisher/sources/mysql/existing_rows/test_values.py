"""Rows of a text result as updates."""

from __future__ import annotations

import pytest

from publisher.sources.mysql.existing_rows.values import RowEncoder, entry_of_kind
from wormhole.wire.rows import decode_row
from wormhole.wire.v1 import update_pb2


@pytest.mark.parametrize("n", [0, 1, 42, 63, 64, 8191, 8192, 1048575, 1048576, 1 << 40])
@pytest.mark.parametrize("form", ["{}", "{:020d}", "-{}"])
def test_an_integer_takes_the_least_bytes_however_it_is_shown(n: int, form: str) -> None:
    shown = form.format(n)
    entry = entry_of_kind("bigint", "")(shown.encode())
    assert entry == entry_of_least_bytes(update_pb2.Value(int=int(shown)))


def entry_of_least_bytes(shown: update_pb2.Value) -> bytes:
    return update_pb2.Update(after=[shown]).SerializeToString()[1:]


def value(kind: str, raw: bytes, codec: str = "", *, compressed: bool = False) -> update_pb2.Value:
    """What an entry holds."""
    entry = entry_of_kind(kind, codec, compressed=compressed)(raw)
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
def test_values(kind: str, raw: bytes, shown: update_pb2.Value) -> None:
    assert value(kind, raw) == shown


@pytest.mark.parametrize("size", [0, 125, 126, 300, 20_000])
def test_strings_of_every_size(size: int) -> None:
    assert value("varchar", b"x" * size, "utf-8").text == "x" * size
    assert value("varbinary", b"\xff" * size).bytes == b"\xff" * size


def test_text() -> None:
    assert value("varchar", b"\xe4", "mysql-latin1").text == "ä"
    assert value("varchar", "ä".encode(), "utf-8").text == "ä"
    assert value("varchar", b"\xff", "utf-8").bytes == b"\xff", "what is no UTF-8 stays bytes"
    assert value("varchar", b"\xff", "ascii").bytes == b"\xff"
    assert value("varchar", b"\xff", "ascii", compressed=True).text == "?", "as the decoder of compressed columns"
    assert value("enum", b"\xe4", "mysql-latin1").text == "ä"
    assert value("enum", b"\xe4").text == "\\xe4", "names in the character set binary"


def test_a_row() -> None:
    encoder = RowEncoder([entry_of_kind("int", ""), entry_of_kind("varchar", "utf-8")], (1, 0), 20)
    key, update = encoder.encode([b"7", b"k"])
    row = decode_row(update)
    assert row.op == update_pb2.READ
    assert [v.WhichOneof("kind") for v in row.key] == ["text", "int"]
    assert row.after[0].int == 7
    assert update_pb2.RowKey.FromString(key).values == row.key
    row = decode_row(RowEncoder([entry_of_kind("int", "")] * 2, (0,), 20).encode([b"1", None])[1])
    assert row.after[1].null


def test_a_row_that_is_too_large_has_its_key_alone() -> None:
    encoder = RowEncoder([entry_of_kind("int", ""), entry_of_kind("varchar", "utf-8")], (0,), 20)
    for _, update in (encoder.encode([b"7", b"x" * 20]), encoder.encode([b"7", None], large=True)):
        row = decode_row(update)
        assert row.too_large
        assert row.key[0].int == 7
        assert not row.after
