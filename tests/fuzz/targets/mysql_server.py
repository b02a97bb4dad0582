"""What a MySQL or MariaDB server sends a client: any bytes give an answer, or one of the errors that name whose move it
is.

The server is a text of packets; what the client asks is written down and not looked at, so that every answer may come
to every question.
"""

from __future__ import annotations

import functools
import io
import os
import random
import socket
import struct
import tempfile
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pymysql.cursors import DictCursor

from datastores.mysql.log.dump import Dump, FromFile
from datastores.mysql.log.walk import Step
from datastores.mysql.server import handshake
from datastores.mysql.server.address import Address
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import query, translating
from datastores.mysql.server.handshake import ServerConnection
from datastores.mysql.server.settings import read_settings
from datastores.mysql.server.state import queries_of
from datastores.mysql.server.table_names import look
from tests.fuzz.target import Target
from tests.support import mysql_events as build
from tests.support.hostile_mysql import STATEMENTS, answer_to, column, greeting, packets
from tests.support.mysql_dump import Scripted, format_description, insert, refuse, rotate, table, xa_prepare
from wormhole.model.errors import DecodeError, WormholeError

_PASSWORD = "correct horse battery"
_OK = STATEMENTS[0][1][0]
_SALT = b"12345678901234567890\0"
_STRANGER = 12345


class _Wire(io.RawIOBase):
    """Stands for the socket: sends ``said`` piece by piece, or ``answering`` what is asked, and keeps what it gets."""

    family = socket.AF_UNIX

    def __init__(self, said: bytes = b"", owner: int = 0, *, answering: bool = False) -> None:
        self.sent = bytearray()
        self.said = bytearray(said)
        self._at = 0
        self._owner = owner
        self._answering = answering
        self._file: io.BufferedReader | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.said[self._at : self._at + len(buffer)]
        self._at += len(piece)
        buffer[: len(piece)] = piece
        return len(piece)

    def makefile(self, _: str) -> io.BufferedReader:
        if self._file is None:
            self._file = io.BufferedReader(self)
        return self._file

    def sendall(self, data: bytes) -> None:
        self.sent += data
        if self._answering:
            self.said += packets(answer_to(data[4:]), 1)

    def getsockopt(self, *_: int) -> bytes:
        return struct.pack("3i", 1, self._owner, 0)

    def settimeout(self, _: float) -> None:
        pass


def _connection(module: ModuleType, wire: _Wire, **options: Any) -> ServerConnection:
    made: ServerConnection = module.ServerConnection(
        Address("db1", 3306, "u", _PASSWORD, tls="off", **options),
        timeout_s=60.0,
        charset="utf8mb4",
        autocommit=True,
        cursorclass=DictCursor,
        defer_connect=True,
    )
    wired: Any = made
    wired._sock, wired._rfile, wired._closed = wire, wire.makefile("rb"), False
    wired.server_status, wired._current_timeout = 2, None
    return made


# --- logins --------------------------------------------------------------------------------------------------------


@functools.cache
def _key() -> bytes:
    made = rsa.generate_private_key(65537, 1024)
    return made.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _switch(name: bytes, data: bytes = _SALT) -> bytes:
    return b"\xfe" + name + b"\0" + data


def _logins() -> list[tuple[bytes, list[bytes]]]:
    native, caching = b"mysql_native_password", b"caching_sha2_password"
    return [
        (native, [_OK]),
        (caching, [b"\1\3", _OK]),
        (caching, [b"\1\4", b"\1" + _key(), _OK]),
        (b"sha256_password", [_switch(b"sha256_password"), b"\1" + _key(), _OK]),
        (native, [_switch(caching), b"\1\4", b"\1" + _key(), _OK]),
        (caching, [_switch(native), _OK]),
        (native, [_switch(b"mysql_clear_password", b""), _OK]),
        (native, [_switch(b"dialog", b"\4Password: "), _OK]),
        (b"parsec", [_switch(native), _switch(native), _OK]),
    ]


def _make_login(rng: random.Random) -> bytes:
    plugin, answers = rng.choice(_logins())
    said, sequence = packets([greeting(rng.choice((b"8.4.3", b"11.4.2-MariaDB")), plugin)], 0), 2
    for answer in answers:
        said += packets([answer], sequence)
        sequence += 1 if answer == b"\1\3" else 2
    return b"\1" + said + packets([_OK], 1)


def _decode_login(module: ModuleType, data: bytes) -> object:
    known = bool(data[:1] and data[0] & 1)
    wire = _Wire(data[1:], owner=0 if known else _STRANGER)
    connection = _connection(module, wire)
    # The login's own packets, as `connect` bounds them.
    connection.bound(most_bytes=1 << 20)
    try:
        with translating("db1", connection):
            connection.connect(wire)  # type: ignore[arg-type]
    finally:
        if not known and (connection.login.gave_password or _PASSWORD.encode() in wire.sent):
            raise AssertionError("a stranger got the password")
    return connection.login.plugin


# --- answers to statements -----------------------------------------------------------------------------------------

_COLUMNS = {3: b"-17", 8: b"12345678901", 5: b"1.5e300", 246: b"12.50", 12: b"2024-02-29 12:34:56", 11: b"-12:00:01"}
_COLUMNS |= {10: b"2024-02-29", 253: "größe".encode(), 252: b"\0\x7f", 245: b'{"a": 1}', 13: b"2024", 7: b"0000-00-00"}


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def _make_answer(rng: random.Random) -> bytes:
    kinds = rng.sample(list(_COLUMNS), rng.randrange(1, 5))
    eof = b"\xfe" + struct.pack("<HH", 0, 2)
    rows = [
        b"".join(b"\xfb" if rng.random() < 0.1 else _text(_COLUMNS[kind]) for kind in kinds)
        for _ in range(rng.randrange(4))
    ]
    described = [column(f"c{number % 3}", kind) for number, kind in enumerate(kinds)]
    answer = [bytes([len(kinds)]), *described, eof, *rows, eof]
    return packets(rng.choice((answer, answer, answer, [_OK + b"Rows matched: 1"])), 1)


def _decode_answer(module: ModuleType, data: bytes) -> object:
    wire = _Wire(data)
    rows = query(_connection(module, wire), "SELECT x")  # type: ignore[arg-type]
    if len(wire.sent) > 20:
        raise AssertionError("more than the statement was sent")
    return len(rows)


@functools.cache
def _words() -> bytes:
    """All that an honest server answers to a source that begins, one after the other."""
    wire = _Wire(answering=True)
    _ask(_connection(handshake, wire))
    return bytes(wire.said)


def _ask(connection: Any) -> object:
    settings = read_settings(connection)
    view = queries_of(settings).view(connection)
    return settings, view, look(connection, _Unsaved(Path("tables.jsonl")))


class _Unsaved(Catalog):
    def save(self) -> None:
        """Nothing is kept."""


def _decode_words(module: ModuleType, data: bytes) -> object:
    return repr(_ask(_connection(module, _Wire(data))))


# --- a log's beginning, its events, and its end ----------------------------------------------------------------------


def _make_begin(rng: random.Random) -> bytes:
    row = [b"\1", column("checksum"), b"\xfe\0\0\2\0", rng.choice((_text(b"CRC32"), _text(b"NONE"), b"\xfb"))]
    return packets([_OK], 1) + packets([*row, b"\xfe\0\0\2\0"], 1) + packets([_OK], 1)


def _decode_begin(module: ModuleType, data: bytes) -> object:
    connection: Any = _connection(module, _Wire(data))
    return Dump(connection, FromFile("binlog.000001", 4), server_id=1, mariadb=bool(data[:1] == b"\7")).checksums


def _make_error(rng: random.Random) -> bytes:
    code = rng.choice((1236, 1045, 1040, 1158, 2013, 4011, 13114, rng.randrange(1 << 16)))
    texts = (
        "binlog truncated in the middle of event",
        "Could not find first log file name",
        "\x1b[2J\r\n",
        "a slave with the same server_uuid",
    )
    return refuse(rng.choice(texts) * rng.choice((1, 1, 50)), code)[4:]


def _decode_error(_: ModuleType, data: bytes) -> object:
    if data[:1] != b"\xff":
        raise DecodeError("only packets that begin so come here")
    error = Dump.refused(data)
    if len(str(error)) > 2_000 or not error.hint:
        raise AssertionError("an error of a server is long, or says no next step")
    return type(error).__name__


def _make_log(rng: random.Random) -> bytes:
    stream = build.Stream()
    rotate(stream, "binlog.000003", 4)
    format_description(stream)
    for number in range(1, rng.randrange(2, 5)):
        kind = rng.randrange(6)
        if kind == 0:
            stream.add(build.GTID, build.gtid(build.UUID, number))
            stream.add(
                build.QUERY, build.query(rng.choice(("TRUNCATE TABLE t", "DROP DATABASE d", "CREATE TABLE t (a INT)")))
            )
        elif kind == 1:
            stream.add(build.GTID, build.gtid(build.UUID, number))
            stream.add(build.QUERY, build.query("XA START X'78',X'',1"))
            stream.add(*table())
            stream.add(*insert(number))
            stream.add(build.QUERY, build.query("XA END X'78',X'',1"))
            stream.add(38, xa_prepare(b"x"))
        elif kind == 2:
            rotate(stream, f"binlog.{number + 3:06d}", 4, artificial=False)
        else:
            stream.transaction(number, table(), insert(*range(rng.randrange(1, 5))))
    return stream.packets()


def _decode_log(_: ModuleType, data: bytes) -> object:
    stream: Any = _Given(data)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        scripted = Scripted(Path(folder), stream)
        with closing(scripted.prepared), closing(scripted.spool):
            steps = 0
            while (step := scripted.walk.step(1 << 20, 0.0)) != Step.END:
                steps += 1
                if steps > 1_000 + len(data):
                    raise AssertionError(f"no end after {steps} steps, the last {step}")
            return str(scripted.walk.place), len(scripted.encoder.take().ends)


class _Given:
    """A stream of these packets."""

    def __init__(self, data: bytes) -> None:
        self.packets = lambda: data


_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _mysql(name: str, decode: Any, make: Any, module: str = "datastores.mysql.server.handshake") -> Target:
    return Target(f"mysql.{name}", module, decode, make, (WormholeError,))


TARGETS = [
    _mysql("server.login", _decode_login, _make_login),
    _mysql("server.answer", _decode_answer, _make_answer),
    _mysql("server.words", _decode_words, lambda _: _words()),
    _mysql("server.dump", _decode_begin, _make_begin),
    _mysql("server.error", _decode_error, _make_error, "datastores.mysql.log.dump_errors"),
    _mysql("server.log", _decode_log, _make_log, "datastores.mysql.log.walk"),
]
