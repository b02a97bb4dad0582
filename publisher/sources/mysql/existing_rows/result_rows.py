"""The rows of a SELECT as they come, without the driver's objects for each value.

What the server sends, in packets of its protocol::

    answer := number of columns, a packet for each, end      then a packet for each row, and the end or an error
    row    := for each column: 0xFB (NULL), or a length-encoded string
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception
from pymysql.protocol import FieldDescriptorPacket

__all__ = ["Row", "rows_of", "split_row"]

Row = list[bytes | None]

_HEAD: Final = 4
_WHOLE: Final = 0xFFFFFF
"""A packet of this length goes on in the next one."""
_NULL: Final = 0xFB
_END: Final = 0xFE
_ERROR: Final = 0xFF
_END_SIZE: Final = 9  # an end has fewer bytes; a row that begins with 0xFE more


def rows_of(connection: Connection[Any], sql: str) -> Iterator[Row]:
    """Run ``sql`` and yield its rows. Whoever stops before the end has to close the connection.

    Raises the driver's errors, also in the middle: the rows before are right, and the connection is still usable.
    """
    driver: Any = connection
    driver._execute_command(COMMAND.COM_QUERY, sql.encode())
    count = driver._read_packet().read_length_encoded_integer()
    for _ in range(count):
        driver._read_packet(FieldDescriptorPacket)
    driver._read_packet()
    return _rows(driver.receive, count)


def _rows(receive: Callable[[], bytes], count: int) -> Iterator[Row]:
    for packet in _packets(receive):
        first = packet[0] if packet else _ERROR
        if first == _END and len(packet) < _END_SIZE:
            return
        if first == _ERROR:
            raise_mysql_exception(packet)
        yield split_row(packet, count)


def _packets(receive: Callable[[], bytes]) -> Iterator[bytes]:
    buffer, at = b"", 0
    whole: list[bytes] = []
    while True:
        while len(buffer) - at < _HEAD:
            buffer, at = buffer[at:] + receive(), 0
        length = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
        end = at + _HEAD + length
        if end > len(buffer):
            parts, size = [buffer[at:]], len(buffer) - at
            while size < _HEAD + length:
                parts.append(receive())
                size += len(parts[-1])
            buffer, at = b"".join(parts), 0
            end = _HEAD + length
        packet = buffer[at + _HEAD : end]
        at = end
        if length == _WHOLE:
            whole.append(packet)
            continue
        if whole:
            packet = b"".join((*whole, packet))
            whole.clear()
        yield packet


def split_row(packet: bytes, count: int) -> Row:
    """The values of a row. Raises the driver's error for bytes that are none."""
    row: Row = []
    at = 0
    try:
        for _ in range(count):
            size = packet[at]
            at += 1
            if size == _NULL:
                row.append(None)
                continue
            if size > _NULL:
                width = 2 if size == 0xFC else 3 if size == 0xFD else 8
                size = int.from_bytes(packet[at : at + width], "little")
                at += width
            row.append(packet[at : at + size])
            at += size
    except IndexError:
        at = len(packet) + 1
    if at != len(packet):
        raise pymysql.OperationalError(0, f"a row of {len(packet)} bytes is cut, or has other than {count} values")
    return row
