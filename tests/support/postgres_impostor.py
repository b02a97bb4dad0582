"""Passes for a PostgreSQL server on loopback. It accepts every session, answers what a source asks, and misbehaves
where a test wants it. It may also ask a session for the password, in any way, and keeps what it learns."""

from __future__ import annotations

import base64
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.eventually import PATIENCE_S
from tests.support.postgres_messages import begin, commit, insert, relation

__all__ = [
    "COPY_BOTH",
    "COPY_OUT",
    "SALT",
    "STREAM",
    "Impostor",
    "Talk",
    "columns",
    "copy_data",
    "done",
    "impostor",
    "keepalive",
    "message",
    "row",
    "rows",
]

SALT: Final = b"12345678123456781234567812345678"
_SSL, _GSS = 80877103, 80877104
_READY: Final = b"Z\0\0\0\5I"
_FLOOD: Final = 256 << 20
COPY_BOTH: Final = b"W\0\0\0\7\0\0\0"
COPY_OUT: Final = b"H\0\0\0\7\0\0\0"


def message(kind: bytes, content: bytes) -> bytes:
    """A message of the protocol."""
    return kind + struct.pack(">I", 4 + len(content)) + content


def columns(count: int) -> bytes:
    """A RowDescription of texts."""
    return message(b"T", struct.pack(">h", count) + (b"c\0" + struct.pack(">IhIhih", 0, 0, 25, -1, -1, 0)) * count)


def row(*values: str | bytes | None) -> bytes:
    """A DataRow."""
    out = struct.pack(">h", len(values))
    for value in values:
        raw = value.encode() if isinstance(value, str) else value
        out += struct.pack(">i", -1) if raw is None else struct.pack(">i", len(raw)) + raw
    return message(b"D", out)


def done(tag: str = "SELECT 1") -> bytes:
    """The end of a statement."""
    return message(b"C", tag.encode() + b"\0")


def rows(*found: tuple[str | None, ...]) -> bytes:
    """A whole answer."""
    return columns(len(found[0]) if found else 1) + b"".join(row(*one) for one in found) + done() + _READY


def copy_data(content: bytes) -> bytes:
    """A part of a copy."""
    return message(b"d", content)


def keepalive(end: int) -> bytes:
    """A keepalive of the log."""
    return copy_data(b"k" + struct.pack(">QqB", end, 0, False))


_SLOTS: Final = [
    (name, "pgoutput", "shop", "f", None, "0/5A", "0/64", "reserved", None, "1", None, None)
    for name in ("s_held", "s_lead")
]
_IDENTITY: Final = ("7", "00000001", "1700000000000000")
_STATE: Final = (
    *_IDENTITY,
    *("77", "0/2BC", "0/2BC", "8192", "16777216", "logical", "-1", "60000", "16390", "0"),
    "16400 16405",
)
STREAM: Final = b"".join(
    map(
        copy_data,
        (begin(600), relation(7, "shop.orders", [("id", 23)]), insert(7, ["1"]), commit(600, 640)),
    )
)
"""A transaction of one row."""

# What a statement contains, in the order in which a source asks; the first that fits is answered.
ANSWERS: Final[Mapping[str, bytes]] = {
    "SET client_encoding": done("SET") * 12 + _READY,
    "SELECT pg_is_in_recovery": rows(("f",)),
    "pg_backend_pid": rows(_STATE),
    "pg_control_system": rows(_IDENTITY),
    "wal_status": rows(*_SLOTS),
    "pg_publication_tables": rows(("shop", "orders")),
    "pg_copy_logical_replication_slot": rows(("(s,0/64)",)),
    "attgenerated": rows(),
    "START_REPLICATION": COPY_BOTH + STREAM,
    "pg_locks": rows(),
    "pg_current_snapshot": rows(("700:700:",)),
    "pg_current_wal_insert_lsn": rows(("0/2BC",)),
}


class Talk:
    """One connection, as the server has it. ``learned``: of the password."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.learned: list[tuple[str, bytes]] = []

    def send(self, data: bytes) -> None:
        self.client.sendall(data)

    def flood(self, data: bytes, most: int = _FLOOD) -> None:
        """Again and again, until the other end has enough."""
        many = data * max(1, (64 << 10) // len(data))
        for _ in range(most // len(many)):
            self.client.sendall(many)

    def query(self) -> str:
        """The next statement; what a client says of a copy is passed over."""
        while True:
            kind = self._exactly(1)
            content = self._exactly(struct.unpack(">I", self._exactly(4))[0] - 4)
            if kind == b"X":
                raise ConnectionResetError
            if kind == b"Q":
                return content[:-1].decode()

    def start(self, context: ssl.SSLContext | None = None) -> None:
        """Receive the start of a session, over TLS with ``context``."""
        while True:
            size, version = struct.unpack(">II", self._exactly(8))
            self._exactly(size - 8)
            if version not in {_SSL, _GSS}:
                break
            if version == _SSL and context is not None:
                self.send(b"S")
                self.client = context.wrap_socket(self.client, server_side=True)
            else:
                self.send(b"N")

    def ask(self, request: int, content: bytes = b"") -> bytes:
        """Ask for a proof of the password; the answer."""
        self.send(message(b"R", struct.pack(">I", request) + content))
        assert self._exactly(1) == b"p"
        return self._exactly(struct.unpack(">I", self._exactly(4))[0] - 4)

    def ask_scram(self, iterations: int) -> tuple[bytes, bytes]:
        """What a proof of SCRAM is computed of, and the proof."""
        first = self.ask(10, b"SCRAM-SHA-256\0\0").split(b",,", 1)[1]
        server = first.split(b"r=")[1] + b"impostor"
        said = b"r=%s,s=%s,i=%d" % (server, base64.b64encode(SALT), iterations)
        final, _, proof = self.ask(11, said).rpartition(b",p=")
        return b",".join((first, said, final)), base64.b64decode(proof)

    def log_in(self) -> None:
        self.start()
        known = {"server_version": "15.4", "server_encoding": "UTF8", "client_encoding": "UTF8"}
        status = (message(b"S", f"{name}\0{value}\0".encode()) for name, value in known.items())
        self.send(message(b"R", bytes(4)) + b"".join(status) + message(b"K", bytes(8)) + _READY)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.client.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)


Trick = Callable[[Talk], None]
"""What happens in place of an answer. The connection ends with it."""


class Impostor:
    """Listens at ``port``. ``at``: what a statement contains at which ``trick`` is played; ``login`` before that.

    ``asked``: the statements. ``socket_folder``: listens there, in place of ``127.0.0.1``.
    """

    def __init__(self, socket_folder: Path | None = None) -> None:
        self.at = ""
        self.trick: Trick = lambda _: None
        self.asked: list[str] = []
        self.port = 5432
        if socket_folder is None:
            self._listening = socket.create_server(("127.0.0.1", 0))
            self.port = self._listening.getsockname()[1]
        else:
            self._listening = socket.create_server(str(socket_folder / f".s.PGSQL.{self.port}"), family=socket.AF_UNIX)
        self._clients: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def play(self, at: str, trick: Trick) -> None:
        """From now on."""
        self.at, self.trick = at, trick

    def close(self) -> None:
        """End every talk."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for client in tuple(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                client.settimeout(PATIENCE_S)
                self._clients.add(client)
                thread = threading.Thread(target=self._talk, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _talk(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            talk = Talk(client)
            if self.at == "login":
                try:
                    self.trick(talk)
                finally:
                    talk.client.close()  # another one with TLS
                return
            talk.log_in()
            while True:
                statement = talk.query()
                self.asked.append(statement)
                if self.at and self.at in statement:
                    self.trick(talk)
                    return
                talk.send(next((answer for part, answer in ANSWERS.items() if part in statement), done() + _READY))
        self._clients.discard(client)


@contextmanager
def impostor(socket_folder: Path | None = None) -> Iterator[Impostor]:
    """One for the time of a ``with``."""
    made = Impostor(socket_folder)
    try:
        yield made
    finally:
        made.close()
