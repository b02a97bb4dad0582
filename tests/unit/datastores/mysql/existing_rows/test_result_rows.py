"""Rows in packets, cut into pieces anywhere."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from datastores.mysql.existing_rows.result_rows import Row
from tests.support.hot import hot_module

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
