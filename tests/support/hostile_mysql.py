"""A MySQL server of a few answers, which a test may damage: enough for a source to start, look for places and read a
short binlog."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from datastores.mysql.decode.events import PREVIOUS_GTIDS
from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.server.address import Address
from tests.support import mysql_events as build
from tests.support.mysql_dump import format_description, insert, rotate, table
from tests.support.mysql_settings import MYSQL

Damage = Callable[[int, bytes], bytes]
"""What is sent instead of an answer; its number, over all connections, and its bytes.

The same bytes: nothing is damaged."""

_LONG, _TEXT, _UTF8MB4 = 8, 253, 45
_AUTOCOMMIT = 2
_QUIT, _QUERY, _REGISTER, _DUMP, _DUMP_GTID = 0x01, 0x03, 0x15, 0x12, 0x1E
_OK: Final = b"\0\0\0" + struct.pack("<HH", _AUTOCOMMIT, 0)
_EOF: Final = b"\xfe" + struct.pack("<HH", 0, _AUTOCOMMIT)
_MOST_PAYLOAD: Final = 0xFFFFFF


def packets(payloads: Sequence[bytes], sequence: int) -> bytes:
    """Payloads as packets, numbered from ``sequence`` on."""
    out = bytearray()
    for number, payload in enumerate(payloads, sequence):
        out += struct.pack("<I", len(payload))[:3] + bytes([number & 0xFF]) + payload
    return bytes(out)


def greeting(version: bytes = b"8.4.3", plugin: bytes = b"mysql_native_password") -> bytes:
    """The first payload, as in the manual's "Protocol::HandshakeV10"; without TLS."""
    capabilities = 1 << 19 | 1 << 15 | 1 << 9
    head = b"\x0a" + version + b"\0" + struct.pack("<I", 7) + b"12345678\0"
    rest = struct.pack("<HBHHB", capabilities & 0xFFFF, _UTF8MB4, _AUTOCOMMIT, capabilities >> 16, 21)
    return head + rest + bytes(10) + b"123456789012\0" + plugin + b"\0"


def _text(value: str) -> bytes:
    data = value.encode()
    return build.packed(len(data)) + data


def column(name: str, kind: int = _TEXT) -> bytes:
    """The description of a column, as in "Protocol::ColumnDefinition41"."""
    return b"".join(map(_text, ("def", "", "", "", name, name))) + struct.pack(
        "<BHIBHBxx", 12, _UTF8MB4, 255, kind, 0, 0
    )


def _rows(names: str, *rows: Sequence[str | int]) -> list[bytes]:
    kinds = [_LONG if rows and isinstance(value, int) else _TEXT for value in (rows[0] if rows else names.split())]
    columns = [column(name, kind) for name, kind in zip(names.split(), kinds, strict=True)]
    values = [b"".join(_text(str(value)) for value in row) for row in rows]
    return [bytes([len(columns)]), *columns, _EOF, *values, _EOF]


def _binlog() -> build.Stream:
    stream = build.Stream()
    rotate(stream, "binlog.000002", 4)
    format_description(stream)
    stream.add(PREVIOUS_GTIDS, GtidSet().encode())
    stream.transaction(1, table(), insert(1, 2))
    stream.transaction(2, table(), insert(3))
    return stream


_STREAM: Final = _binlog()
_GTIDS: Final = f"{build.UUID_TEXT}:1-2"
_SETTINGS: Final = {**MYSQL.variables, "version": MYSQL.version_text, "server_id": "1", "gtid_executed": _GTIDS}
STATEMENTS: Final[list[tuple[str, list[bytes]]]] = [
    ("^SET ", [_OK]),
    ("GLOBAL VARIABLES", _rows("Variable_name Value", *_SETTINGS.items())),
    ("LOG STATUS", _rows("File Position", ("binlog.000002", _STREAM.offset))),
    ("BINARY LOGS", _rows("Log_name File_size", ("binlog.000002", _STREAM.offset))),
    ("REPLICA STATUS", _rows("Channel_Name Source_Host")),
    ("CURRENT_ROLE", _rows("role", ("NONE",))),
    ("GRANTS", _rows("Grants", ("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO `u`@`%`",))),
    ("semi", _rows("Variable_name Value", ("Rpl_semi_sync_source_clients", "0"))),
    ("Ssl", _rows("Variable_name Value", ("Ssl_cipher", "none"))),
    ("AS account", _rows("account login", ("u@%", "u@localhost"))),
    ("AS identity", _rows("identity server_id", (build.UUID_TEXT, 1))),
    ("AS gtids", _rows("owned gtids purged state", ("", _GTIDS, "", ""))),
    ("GET_LOCK", _rows("got own", (1, 1))),
    ("SHOW REPLICAS", _rows("Server_Id Host Port Source_Id Replica_UUID")),
    ("AS checksum", _rows("checksum", ("CRC32",))),
    ("AS folds", _rows("folds", (0,))),
    ("information_schema.TABLES", _rows("db name", ("shop", "t"), ("shop", "u"))),
    ("COLUMN_KEY", _rows("db name part", ("shop", "t", "id"))),
    # What is not listed here: an answer that has a row, so that a statement which is new is served somehow.
    ("", _rows("x", (1,))),
]
"""What a statement contains, and the payloads of its answer."""


def answer_to(command: bytes) -> list[bytes]:
    """The payloads of an honest answer."""
    if command[0] != _QUERY:
        return [_OK]
    text = command[1:].decode()
    return next(answer for pattern, answer in STATEMENTS if re.search(pattern, text))


class HostileServer:
    """Accepts until :meth:`close`. An answer that ``damage`` changed is the last of its connection."""

    def __init__(self, damage: Damage) -> None:
        self.answers = 0
        self._damage = damage
        self._counted = itertools.count()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listening.getsockname()[1], "u", "secret")
        self._threads: list[threading.Thread] = []
        self._clients: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        """Ends every connection."""
        # A thread that accepts is not woken by a close.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._clients.append(client)
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, struct.error):
            if not self._send(client, packets([greeting()], 0)):
                return
            self._receive(client)
            if not self._send(client, packets([_OK], 2)):
                return
            while True:
                command = self._receive(client)
                if command[0] in (_DUMP, _DUMP_GTID):
                    self._send(client, _STREAM.packets())
                    return
                if command[0] == _QUIT or not self._send(client, packets(answer_to(command), 1)):
                    return

    def _send(self, client: socket.socket, data: bytes) -> bool:
        self.answers = number = next(self._counted)
        sent = self._damage(number, data)
        client.sendall(sent)
        if sent == data:
            return True
        client.shutdown(socket.SHUT_WR)  # nobody waits for what a damaged length announces
        while client.recv(4096):
            pass
        return False

    def _receive(self, client: socket.socket) -> bytes:
        head = self._exactly(client, 4)
        return self._exactly(client, int.from_bytes(head[:3], "little"))

    @staticmethod
    def _exactly(client: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = client.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)


@contextmanager
def serving(damage: Damage = lambda _, data: data) -> Iterator[HostileServer]:
    """A server for the time of a ``with``."""
    server = HostileServer(damage)
    try:
        yield server
    finally:
        server.close()
