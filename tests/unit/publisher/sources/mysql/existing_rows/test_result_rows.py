"""Rows in packets, cut into pieces anywhere."""

from __future__ import annotations

import pymysql
import pytest

from publisher.sources.mysql.existing_rows import result_rows
from publisher.sources.mysql.existing_rows.result_rows import Row, split_row

END = b"\xfe\0\0\2\0"


def packet(payload: bytes) -> bytes:
    """One packet, or several where it is as long."""
    found = b""
    while len(payload) >= 0xFFFFFF:
        found += b"\xff\xff\xff\0" + payload[:0xFFFFFF]
        payload = payload[0xFFFFFF:]
    return found + len(payload).to_bytes(3, "little") + b"\0" + payload


def read(data: bytes, count: int, piece: int) -> list[Row]:
    pieces = iter([data[i : i + piece] for i in range(0, len(data), piece)])
    return list(result_rows._rows(lambda: next(pieces), count))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_rows_come_in_pieces(piece: int) -> None:
    rows = [b"\x01a\xfb", b"\x00\x02bc", b"\xfc\x2c\x01" + b"x" * 300 + b"\x01y"]
    found = read(b"".join(map(packet, rows)) + packet(END), 2, piece)
    assert found == [[b"a", None], [b"", b"bc"], [b"x" * 300, b"y"]]


def test_a_row_of_several_packets() -> None:
    size = (1 << 24) + 5
    row = b"\xfe" + size.to_bytes(8, "little") + b"x" * size
    found = read(packet(row) + packet(b"\x01a") + packet(END), 1, 1 << 16)
    assert [len(one[0] or b"") for one in found] == [size, 1]


def test_an_error_behind_rows() -> None:
    pieces = iter([packet(b"\x01a"), packet(b"\xff\xb1\x07#70100too long")])
    rows = result_rows._rows(lambda: next(pieces), 1)
    assert next(rows) == [b"a"]
    with pytest.raises(pymysql.MySQLError) as raised:
        next(rows)
    assert raised.value.args[0] == 1969


@pytest.mark.parametrize("row", [b"", b"\x05ab", b"\x01a\x01", b"\x01a\x01bc", b"\xfc\x01", b"\xfe\1\0\0\0\0\0\0\0"])
def test_bytes_that_are_no_row(row: bytes) -> None:
    with pytest.raises(pymysql.MySQLError):
        split_row(row, 2)
