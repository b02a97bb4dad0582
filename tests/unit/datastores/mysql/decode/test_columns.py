"""The plan in the decoder's form, and MariaDB's compressed columns."""

from __future__ import annotations

import zlib
from types import ModuleType

import pytest

from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import mysql_events as build
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError

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
