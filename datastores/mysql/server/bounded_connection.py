"""The driver's connection with bounds on the time and memory of each answer.

The driver's timeout begins again with each byte, so it would wait endlessly for a server that sends byte by byte. It
also allocates as much memory as a length field announces. This class gives each connect and each statement one deadline
and one budget of memory.
"""

from __future__ import annotations

import time
from typing import Any, Final, NoReturn

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from wormhole.model.errors import SourceUnavailable

__all__ = ["MOST_ANSWER_BYTES", "MOST_LISTING_BYTES", "BoundedConnection"]

MOST_ANSWER_BYTES: Final = 32 << 20
"""The default limit of memory for the answer to one statement: 8 MB of text."""
MOST_LISTING_BYTES: Final = 96 << 20
"""The limit of memory for a list of all tables, of which a server may have 150,000."""

_PACKET_COST: Final = 256  # bytes of Python's objects for a packet, and for each of its columns
_COLUMN_COST: Final = 64
_BYTE_COST: Final = 4  # Python stores four bytes per character if one is beyond the basic plane
_WHOLE_PACKET: Final = (1 << 24) - 1  # a packet of this length continues in the next one
_PIECE: Final = 256 << 10
_LEAST_WAIT_S: Final = 0.05


class BoundedConnection(Connection):  # without the type of its cursors: the driver's class takes none at run time
    """A connection with bounds. ``timeout_s``: for connecting, and for a statement unless :meth:`bound` sets
    another."""

    def __init__(self, *, timeout_s: float, **options: Any) -> None:
        self._timeout_s = timeout_s
        self._columns = 0
        self.bound()
        super().__init__(**options)

    def bound(self, seconds: float | None = None, most_bytes: int | None = None) -> None:
        """Limit the next statement to ``seconds`` and to ``most_bytes`` of memory (`MOST_ANSWER_BYTES`)."""
        self._deadline = time.monotonic() + (self._timeout_s if seconds is None else seconds)
        self._room = MOST_ANSWER_BYTES if most_bytes is None else most_bytes
        self._columns = 0

    @property
    def _driver(self) -> Any:
        """The driver's connection, with attributes that its type stubs leave out."""
        return self

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        if packet_type is FieldDescriptorPacket:
            self._columns += 1
        self._take(_PACKET_COST + _COLUMN_COST * self._columns)
        driver: Any = super()
        return driver._read_packet(packet_type)

    def next_result(self, unbuffered: bool = False) -> Any:
        """Refused, because no statement of the product has two answers."""
        self._give_up("the server sends a second answer to one statement")

    def receive(self) -> bytes:
        """The next bytes of the answer as they arrive, for rows that the driver does not read."""
        piece = self._piece(_PIECE)
        self._take(len(piece))
        return piece

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._take(_BYTE_COST * num_bytes)
        if num_bytes >= _WHOLE_PACKET:
            self._give_up("the server's answer has a row of 16 MiB or more")
        got = bytearray()
        while len(got) < num_bytes:
            got += self._piece(min(num_bytes - len(got), _PIECE))
        return bytes(got)

    def _piece(self, most: int) -> bytes:
        file: Any = self._driver._rfile
        try:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the answer was not complete in time")
            self._driver._sock.settimeout(left)
            # The first call fills the buffer, the second takes from it.
            piece: bytes = file.peek(1) and file.read1(most)
            if not piece:
                raise pymysql.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
        except BaseException:
            self._driver._force_close()
            raise
        finally:
            self._current_timeout = None  # the driver must not use its own timeout for the socket
        return piece

    def _write_bytes(self, data: bytes) -> None:
        self._write_timeout = max(_LEAST_WAIT_S, self._deadline - time.monotonic())
        driver: Any = super()
        driver._write_bytes(data)

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            self._give_up("the server's answer is larger than it may be")

    def _give_up(self, why: str) -> NoReturn:
        self._driver._force_close()
        raise SourceUnavailable(
            f"{why}: the connection is closed",
            hint="a retry follows; check that the address is the database's and not another service's",
            code="peer-not-database",
        )
