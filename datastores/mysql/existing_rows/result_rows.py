"""Reads a SELECT's rows as they arrive, without the driver's objects for each value. Hot: compiled where possible.

The server's answer, in packets of its protocol::

    answer := number of columns, a packet for each, end      then a packet for each row, and the end or an error
    packet := length (3, low first) sequence (1) payload     a payload of 0xFFFFFF bytes continues in the next packet
    row    := for each column: 0xFB (NULL), or a length-encoded string
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception
from pymysql.protocol import FieldDescriptorPacket

__all__ = ["ResultRows", "Row", "rows_of", "split_row"]

Row = list[bytes | None]

_HEAD: Final = 4
_WHOLE: Final = 0xFFFFFF
"""A payload of this length continues in the next packet."""
_NULL: Final = 0xFB
_TWO_BYTES: Final = 0xFC
_THREE_BYTES: Final = 0xFD
_END: Final = 0xFE
_ERROR: Final = 0xFF
_END_SIZE: Final = 9  # an end is shorter than this; a row that begins with 0xFE is longer


class ResultRows:
    """The rows of one answer. A caller that stops before the end must close the connection.

    ``receive``: returns the next bytes, at least one. ``count``: the number of columns.
    """

    def __init__(self, receive: Callable[[], bytes], count: int) -> None:
        self._receive = receive
        self._count = count
        self._buffer = b""
        self._at = 0
        self._begun: list[bytes] = []  # packets of a row that continues in the next packet
        self._error = b""
        self._ended = False

    def take(self) -> list[Row]:
        """Receive the next bytes. Returns the rows that they complete; none at the end.

        Raises the driver's errors, also after some rows. The rows before an error are valid, and the connection stays
        usable.
        """
        rows: list[Row] = []
        need = self._walk(rows)
        while not rows and not self._ended:
            parts = [self._buffer[self._at :]]
            size = len(parts[0])
            while size < need:
                parts.append(self._receive())
                size += len(parts[-1])
            self._buffer, self._at = b"".join(parts), 0
            need = self._walk(rows)
        if not rows and self._error:
            raise_mysql_exception(self._error)
        return rows

    def _walk(self, rows: list[Row]) -> int:
        """Split the packets that are complete. Returns the number of bytes that the next packet still needs."""
        data = self._buffer
        p = data
        at = self._at
        end = len(data)
        need = _HEAD
        while not self._ended and end - at >= _HEAD:
            length = p[at] | p[at + 1] << 8 | p[at + 2] << 16
            need = _HEAD + length
            if end - at < need:
                break
            start = at + _HEAD
            at += need
            need = _HEAD
            if length == _WHOLE or self._begun:
                self._begun.append(data[start:at])
                if length < _WHOLE:
                    whole = b"".join(self._begun)
                    self._begun.clear()
                    self._add(rows, whole, 0, len(whole))
            else:
                self._add(rows, data, start, at)
        self._at = at
        return need

    def _add(self, rows: list[Row], data: bytes, start: int, end: int) -> None:
        """The packet ``data[start:end]``."""
        p = data
        first = p[start] if end > start else _ERROR
        if first == _END and end - start < _END_SIZE:
            self._ended = True
        elif first == _ERROR:
            self._error = data[start:end] or bytes((_ERROR,))
            self._ended = True
        else:
            rows.append(split_row(data, start, end, self._count))


def rows_of(connection: Connection[Any], sql: str) -> ResultRows:
    """Run ``sql`` and return its rows. Raises the driver's errors."""
    driver: Any = connection
    driver._execute_command(COMMAND.COM_QUERY, sql.encode())
    count = driver._read_packet().read_length_encoded_integer()
    for _ in range(count):
        driver._read_packet(FieldDescriptorPacket)
    driver._read_packet()
    return ResultRows(driver.receive, count)


def split_row(data: bytes, at: int, end: int, count: int) -> Row:
    """The values of the row ``data[at:end]``. Raises the driver's error for bytes that are no row."""
    p = data
    row: Row = []
    begin = at
    for _ in range(count):
        if at >= end:
            raise _no_row(end - begin, count)
        size = p[at]
        at += 1
        if size == _NULL:
            row.append(None)
            continue
        if size > _NULL:
            width = 2 if size == _TWO_BYTES else 3 if size == _THREE_BYTES else 8
            if width > end - at:
                raise _no_row(end - begin, count)
            size = 0
            for i in range(width - 1, -1, -1):
                size = size << 8 | p[at + i]
            at += width
        if size < 0 or size > end - at:
            raise _no_row(end - begin, count)
        row.append(p[at : at + size])
        at += size
    if at != end:
        raise _no_row(end - begin, count)
    return row


def _no_row(size: int, count: int) -> pymysql.OperationalError:
    return pymysql.OperationalError(0, f"a row of {size} bytes is cut, or has other than {count} values")
