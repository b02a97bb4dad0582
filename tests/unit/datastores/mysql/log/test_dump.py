"""A dump of the log: what is asked for, what is received, and what its errors mean."""

from __future__ import annotations

import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.mysql.log import dump as module
from datastores.mysql.log.dump import Dump, FromFile, FromGtids, Start
from datastores.mysql.log.dump_errors import dump_error
from datastores.mysql.log.spool import LARGEST_EVENT, Spool
from tests.support import mysql_events as build
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    PositionPurged,
    SourceUnavailable,
    UnsupportedLog,
    UsageError,
    WormholeError,
)

# --- dump ---


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


# --- dump errors ---


READING = 1236


# What the servers say; … stands for what does not matter here.
@pytest.mark.parametrize(
    ("message", "kind"),
    [
        # MySQL
        (
            "A replica with the same server_uuid/server_id as this replica has connected to the source; …",
            SourceUnavailable,
        ),
        ("A slave with the same server_uuid as this slave has connected to the master; …", SourceUnavailable),
        ("Cannot replicate because the source purged required binary logs. …", PositionPurged),
        ("Could not find first log file name in binary log index file", PositionPurged),
        ("Replica has more GTIDs than the source has, using the source's SERVER_UUID. …", Diverged),
        ("Client requested source to start replication from position > file size", Diverged),
        ("could not find next log; the first event 'binlog.000002' at 620, …", SourceUnavailable),
        ("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source; …", UnsupportedLog),
        ("bogus data in log event; …", DecodeError),
        ("binlog truncated in the middle of event; consider out of disk space on source; …", DecodeError),
        ("event read from binlog did not pass crc check; …", DecodeError),
        # MariaDB
        ("… the slave state is too old and required binlog files have been purged.", PositionPurged),
        ("… requested to start from GTID 0-1-17, which is not in the master's binlog", Diverged),
        ("… GTID 0-1-17, which is not in the master's binlog. Since … diverged due to executing extra …", Diverged),
        ("The binlog on the master is missing the GTID 0-1-17 requested by the slave (even though …", Diverged),
        ("Client requested master to start replication from impossible position; …", DecodeError),
    ],
)
def test_why_a_dump_ends(message: str, kind: type[WormholeError]) -> None:
    error = dump_error(READING, message)
    assert type(error) is kind
    assert message in str(error)
    assert error.hint


def test_the_missing_transactions_are_named() -> None:
    message = (
        "Cannot replicate because the source purged required binary logs. Replicate the missing transactions "
        "from elsewhere. The GTID set "
        f"sent by the replica is '', and the missing transactions are '{UUID}:1-5:7'."
    )
    error = dump_error(READING, message)
    assert isinstance(error, PositionPurged)
    assert (error.first_missing, error.last_missing) == (f"{UUID}:1-5:7", f"{UUID}:1-5:7")
    error = dump_error(READING, "Could not find first log file name in binary log index file")
    assert isinstance(error, PositionPurged)
    assert (error.first_missing, error.last_missing) == ("", "")


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (4052, "A slave with the same server_uuid/server_id is already connected; …", "server_ids"),
        (READING, "log event entry exceeded max_allowed_packet; …", "SET GLOBAL max_allowed_packet"),
    ],
)
def test_what_helps(code: int, message: str, hint: str) -> None:
    assert hint in str(dump_error(code, message).hint)


@pytest.mark.parametrize(
    ("code", "message", "kind", "text"),
    [
        (4052, "A slave with the same server_uuid/server_id is already connected; …", SourceUnavailable, ""),
        (READING, "the moon is full", UnsupportedLog, "the moon is full (error 1236)"),
        (1053, "Server shutdown in progress", SourceUnavailable, "the binlog dump"),
        (1227, "Access denied; you need the REPLICATION SLAVE privilege", UsageError, "the binlog dump"),
        (1045, "max_allowed_packet", UsageError, "the binlog dump"),  # the texts are those of 1236 only
    ],
)
def test_other_errors_mean_what_they_mean_anywhere(
    code: int, message: str, kind: type[WormholeError], text: str
) -> None:
    error = dump_error(code, message)
    assert type(error) is kind
    assert text in str(error)


def test_the_text_of_a_server_is_shown_up_to_a_length() -> None:
    for code in (1236, 1045, 9999):
        assert len(str(dump_error(code, "binlog truncated in the middle of event" * 10_000))) < 1500


# --- spool ---


FULL = 0xFFFFFF


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "state", lambda kind, flags: kind == 29)
    yield made
    made.close()


def event(size: int, kind: int = build.WRITE) -> bytes:
    stream = build.Stream()
    return stream.add(kind, bytes(range(256)) * (size // 256 + 1))


@pytest.mark.parametrize("piece", [1, 1000, 1 << 20])
def test_an_event_however_it_is_received(spool: Spool, tmp_path: Path, piece: int) -> None:
    sent = event(2000)
    for _ in range(2):
        data = b"#" + build.packet(sent) + b"next"
        spool.begin()
        at = 1
        while not spool.ended:
            at = spool.take(data[: at + piece], at)
        assert data[at:] == b"next"
        assert (spool.header, spool.tail, spool.size) == (sent[:19], sent[-4:], len(sent))
        assert spool.crc == zlib.crc32(sent[:-4])
        body = spool.body(True)
        assert body.take(body.left) == sent[19:-4]
        assert spool.body(False).take(1 << 20) == sent[19:]
    spool.close()
    assert not list((tmp_path / "state").iterdir()), "the file has no name"


@pytest.mark.parametrize("size", [FULL - 1, FULL + 5])
def test_an_event_of_several_packets(spool: Spool, size: int) -> None:
    sent = build.Stream().add(build.WRITE, bytes(size - 23))
    assert len(sent) == size
    data = build.packet(sent)
    spool.begin()
    assert spool.take(data + b"next", 0) == len(data)
    assert spool.ended
    assert (spool.received, spool.crc) == (size - 19, zlib.crc32(sent[:-4]))


def test_what_is_ignored_is_checked_and_not_kept(spool: Spool, tmp_path: Path) -> None:
    sent = event(2000, 29)
    spool.begin()
    spool.take(build.packet(sent), 0)
    assert (spool.ended, spool.crc, spool.body(True).left) == (True, zlib.crc32(sent[:-4]), 0)
    assert not (tmp_path / "state").exists()


def header(length: int) -> bytes:
    return bytes(9) + length.to_bytes(4, "little") + bytes(6)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xff\1\2", "begins with 0xff, which is no event"),
        (b"\0" + header(LARGEST_EVENT + 1), "announces an event of 1073807361 bytes"),
        (b"\0" + header(22), "announces an event of 22 bytes"),
        (b"\0" + header(40) + bytes(22), "gives 40 bytes has more"),
        (b"\0" + header(40) + bytes(20), "gives 40 bytes has 39"),
        (b"\0abc", "gives 0 bytes has 19"),
    ],
)
def test_what_is_no_event(spool: Spool, payload: bytes, words: str) -> None:
    spool.begin()
    with pytest.raises(DecodeError, match=words):
        spool.take(len(payload).to_bytes(3, "little") + b"\1" + payload, 0)


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file", lambda kind, flags: False)
    spool.begin()
    with pytest.raises(SourceUnavailable, match="2071 bytes cannot be received into a file in"):
        spool.take(build.packet(event(2000)), 0)
