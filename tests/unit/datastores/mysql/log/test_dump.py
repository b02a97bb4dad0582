from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from datastores.mysql.log import dump as module
from datastores.mysql.log.dump import Dump, FromFile, FromGtids, Start
from wormhole.model.errors import DecodeError, SourceUnavailable

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


class Connection:
    """What the dump uses of the driver's connection; notes what was asked."""

    def __init__(self, ours: socket.socket) -> None:
        self._sock = ours
        self.statements: list[str] = []
        self.commands: list[tuple[int, bytes]] = []
        self.closed = False

    def bound(self, *_: object) -> None:
        self.statements.append("bound")

    def cursor(self) -> Connection:
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str, arguments: tuple[object, ...] = ()) -> None:
        self.statements.append(sql % arguments if arguments else sql)

    def fetchone(self) -> dict[str, str]:
        return {"checksum": "CRC32"}

    def _execute_command(self, command: int, payload: bytes) -> None:
        self.commands.append((command, payload))

    def _read_ok_packet(self) -> None:
        assert self.commands[-1][0] == 0x15

    def _force_close(self) -> None:
        self.closed = True
        self._sock.close()


class Pair:
    """A dump and the server's end of its socket."""

    def __init__(self, start: Start, *, mariadb: bool = False) -> None:
        ours, self.server = socket.socketpair()
        self.connection = Connection(ours)
        self.dump = Dump(cast(Any, self.connection), start, server_id=4711, mariadb=mariadb)

    def close(self) -> None:
        self.dump.close()
        self.server.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(FromFile("binlog.000007", 1234))
    yield made
    made.close()


def test_it_registers_and_asks_for_a_file_and_offset(pair: Pair) -> None:
    (register, registered), (command, payload) = pair.connection.commands
    assert (register, struct.unpack("<I", registered[:4])) == (0x15, (4711,))
    assert (command, payload) == (0x12, struct.pack("<IHI", 1234, 0, 4711) + b"binlog.000007")
    assert pair.connection.statements[0] == "bound", "the preparation has a deadline"
    settings = pair.connection.statements[1]
    assert "@master_heartbeat_period = 1000000000" in settings
    assert "net_write_timeout" in settings
    assert "@slave_uuid" in settings
    assert "rpl_semi_sync" not in settings
    assert pair.dump.checksums


def test_no_two_readers_show_mysql_the_same_uuid() -> None:
    pairs = [Pair(FromFile("binlog.000007", 4)) for _ in range(2)]
    assert pairs[0].connection.statements[1] != pairs[1].connection.statements[1]
    for pair in pairs:
        pair.close()


def test_by_gtids_on_mysql() -> None:
    pair = Pair(FromGtids(f"{UUID}:1-5"))
    command, payload = pair.connection.commands[1]
    flags, server_id, name, offset, size = struct.unpack_from("<HIIQI", payload)
    assert (command, flags, server_id, name, offset) == (0x1E, 4, 4711, 0, 4)
    known = payload[22:]
    assert len(known) == size
    assert known == struct.pack("<Q", 1) + bytes.fromhex(UUID.replace("-", "")) + struct.pack("<QQQ", 1, 1, 6)
    pair.close()


def test_by_gtids_on_mariadb() -> None:
    pair = Pair(FromGtids("0-1-5"), mariadb=True)
    assert "@mariadb_slave_capability = 4" in pair.connection.statements[1]
    assert "@slave_connect_state = 0-1-5" in pair.connection.statements[2]
    assert pair.connection.commands[1] == (0x12, struct.pack("<IHI", 4, 0, 4711))
    pair.close()


def test_it_receives_what_there_is_and_keeps_what_is_not_consumed(pair: Pair) -> None:
    assert not pair.dump.more(0, 0.0)
    pair.server.sendall(b"abcdef")
    assert pair.dump.more(0, 1.0)
    pair.dump.at = 4
    pair.server.sendall(b"ghi")
    assert pair.dump.more(0, 1.0)
    assert (pair.dump.data, pair.dump.at) == (b"efghi", 0)


def test_what_is_needed_is_gathered_over_several_calls(pair: Pair) -> None:
    pair.server.sendall(b"ab")
    assert pair.dump.more(0, 1.0)
    for part in (b"c", b"d", b"e"):
        pair.server.sendall(part)
        assert not pair.dump.more(6, 0.01)
        assert pair.dump.data == b"ab"
    pair.server.sendall(b"fgh")
    assert pair.dump.more(6, 1.0)
    assert pair.dump.data == b"abcdefgh"


def test_an_end_and_a_silence_are_reported(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENT_BEATS", 0.02)
    assert not pair.dump.more(0, 0.01)
    pair.server.sendall(b"a")
    assert pair.dump.more(0, 1.0)
    pair.dump.at = 1
    assert not pair.dump.more(0, 0.01)
    with pytest.raises(SourceUnavailable, match="no whole event came") as error:
        for _ in range(3):
            pair.dump.more(0, 0.01)
    assert error.value.hint
    pair.server.close()
    with pytest.raises(SourceUnavailable, match="closed"):
        pair.dump.more(0, 1.0)


def test_a_server_that_sends_byte_by_byte_is_waited_for_no_longer_than_one_that_sends_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It sends for as long as somebody receives: without a deadline neither loop would end.
    over = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            while not over.wait(0.001):
                pair.server.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert not pair.dump.more(1 << 20, 0.02), "a read returns when its time is over"
        monkeypatch.setattr(module, "_SILENT_BEATS", 0.05)
        with pytest.raises(SourceUnavailable, match="no whole event came"):
            while True:
                pair.dump.more(1 << 20, 0.02)
    finally:
        over.set()
        dripping.join()


def test_a_large_event_that_comes_slowly_is_progress(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENT_BEATS", 0.03)
    for _ in range(8):
        pair.server.sendall(bytes(module._LEAST_PROGRESS))
        for _ in range(2):
            assert not pair.dump.more(1 << 20, 0.01)
    with pytest.raises(SourceUnavailable, match="no whole event came"):
        for _ in range(5):
            pair.dump.more(1 << 20, 0.01)


def test_an_error_packet_is_translated() -> None:
    error = Dump.refused(b"\xff" + struct.pack("<H", 1236) + b"#HY000binlog truncated in the middle of event")
    assert isinstance(error, DecodeError)
    assert "truncated" in str(error)
    assert isinstance(Dump.refused(b"\xff" + struct.pack("<H", 1053) + b"Server shutdown"), SourceUnavailable)


def test_a_refused_preparation_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, server = socket.socketpair()
    connection = Connection(ours)
    monkeypatch.setattr(connection, "_read_ok_packet", lambda: (_ for _ in ()).throw(ConnectionResetError("reset")))
    with pytest.raises(SourceUnavailable):
        Dump(cast(Any, connection), FromFile("binlog.000007", 4), server_id=1, mariadb=False)
    assert connection.closed
    server.close()
