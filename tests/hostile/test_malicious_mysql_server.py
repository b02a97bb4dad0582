"""A server that is not the database, or is not honest: what it learns, what it makes a publisher hold, and how much
it makes it read."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from pymysql import _auth

from datastores.mysql.decode import events
from datastores.mysql.log import prepared_xa as prepared_transactions
from datastores.mysql.log import reader, tables
from datastores.mysql.log.dump import Dump, FromFile
from datastores.mysql.log.reader import BinlogReader
from datastores.mysql.log.spool import Spool
from datastores.mysql.log.walk import Step
from datastores.mysql.server.address import Address
from datastores.mysql.server.bounded_connection import MOST_ANSWER_BYTES, MOST_LISTING_BYTES, BoundedConnection
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import connect, query
from datastores.mysql.server.peer_account import doubt_local, owner
from tests.support import mysql_events as build
from tests.support.eventually import PATIENCE_S
from tests.support.hostile_mysql import STATEMENTS, column, greeting, packets, serving
from tests.support.mysql_dump import Scripted, insert, table, xa_prepare
from tests.support.mysql_impostor import NOBODY, TRICKS, Impostor, impostor
from wormhole.model.errors import DecodeError, SourceUnavailable, UnsupportedLog, UsageError, WormholeError
from wormhole.model.position import Datamarker, LogPosition

PASSWORD = "correct horse"
ROW, OK = STATEMENTS[-1][1], STATEMENTS[0][1][0]
HEAD, COLUMN, EOF = ROW[0], ROW[1], ROW[2]
TEXT = column("x")
MORE_RESULTS = 8
ALLOWED, SMALL = 4 << 20, 1 << 20
HANDSHAKE = packets([greeting()], 0)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a server as another user")


# --- the password ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Impostor]:
    """A process of ``nobody`` that listens where the database did."""
    with impostor(tmp_path_factory.mktemp("impostor"), NOBODY) as found:
        yield found


@needs_root
@pytest.mark.parametrize("trick", TRICKS)
def test_another_user_of_this_host_does_not_learn_the_password(trick: str, other_user: Impostor) -> None:
    with pytest.raises(WormholeError) as error:
        connect(other_user.address(trick, password=PASSWORD))
    learned = other_user.learned()
    assert PASSWORD.encode() not in learned
    # What the same password gives without a nonce is in tables that were made before.
    assert _auth.scramble_native_password(PASSWORD.encode(), b"") not in learned
    assert _auth.scramble_caching_sha2(PASSWORD.encode(), b"") not in learned
    assert PASSWORD not in str(error.value)
    if "without a nonce" not in trick:
        assert isinstance(error.value, UsageError)
        assert f"runs as uid {NOBODY} (nobody)" in str(error.value)
        assert "/?tls=verify&ca=" in str(error.value.hint)


@needs_root
def test_a_socket_that_another_user_put_into_a_folder_of_all_is_not_the_databases() -> None:
    # Not pytest's folder, which is closed to others.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        path = f"{folder}/mysqld.sock"
        with other_users_socket(path), socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            assert owner(client) == NOBODY
            doubt = doubt_local(client, path)
            assert doubt is not None
            assert f"runs as uid {NOBODY} (nobody)" in doubt
            Path(folder).chmod(0o755)
            assert doubt_local(client, path) == "", "now its folder says who may put one there"


@contextmanager
def other_users_socket(path: str) -> Iterator[None]:
    """A child of ours, as ``nobody``, that listens at ``path``."""
    ready, listening = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path)
                made.listen()
                os.write(listening, b"1")
                made.accept()
                os.read(ready, 1)  # until it is ended
        finally:
            os._exit(1)
    try:
        assert os.read(ready, 1) == b"1"
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(listening)


# --- what an answer may cost ---------------------------------------------------------------------------------------


class Counted:
    """Bytes and packets that connections took, and the most memory that Python held meanwhile."""

    def __init__(self) -> None:
        self.packets = self.bytes = self.peak = 0


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counted = Counted()
    read_packet, read_bytes = BoundedConnection._read_packet, BoundedConnection._read_bytes

    def packet(self: BoundedConnection, *args: Any) -> Any:
        counted.packets += 1
        return read_packet(self, *args)

    def some(self: BoundedConnection, size: int) -> bytes:
        got = read_bytes(self, size)
        counted.bytes += len(got)
        return got

    with monkeypatch.context() as patch:
        patch.setattr(BoundedConnection, "_read_packet", packet)
        patch.setattr(BoundedConnection, "_read_bytes", some)
        tracemalloc.start()
        try:
            yield counted
        finally:
            counted.peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()


@contextmanager
def endless(answer: Callable[[socket.socket], Iterable[bytes]], honest: int) -> Iterator[Address]:
    """A server that answers ``honest`` packets of the client's as an honest one and then sends ``answer`` for as
    long as it is read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client, suppress(OSError):
                if honest:
                    client.sendall(HANDSHAKE)
                for number in range(honest):
                    client.recv(1 << 16)
                    if number + 1 < honest:
                        client.sendall(packets([OK], 2 if number == 0 else 1))
                for piece in answer(client):
                    client.sendall(piece)
                while client.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listening.getsockname()[1], "u", PASSWORD)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


LOGIN, STATEMENT = 1, 4
"""The client's packet that is answered: its account, or its first statement behind those of the connection."""


def numbered(payloads: Iterable[bytes], sequence: int = 1) -> Iterator[bytes]:
    """Packets without end, some at a time."""
    payloads = iter(payloads)
    while piece := list(itertools.islice(payloads, 16)):
        yield packets(piece, sequence)
        sequence += len(piece)


def forever(payload: bytes, *before: bytes) -> Iterator[bytes]:
    yield from before
    while True:
        yield payload


def no_answer(error: pytest.ExceptionInfo[WormholeError]) -> None:
    assert isinstance(error.value, SourceUnavailable)
    assert error.value.hint
    assert PASSWORD not in str(error.value)
    assert len(str(error.value)) < 1500


WIDE = b"a" * 60_000 + "\N{OCTOPUS}".encode()
"""Text that Python keeps with four bytes for each character."""

ANSWERS: dict[str, Callable[[], Iterable[bytes]]] = {
    "rows without end": lambda: numbered(forever(ROW[3], HEAD, COLUMN, EOF)),
    "empty rows without end": lambda: numbered(forever(b"\0", HEAD, TEXT, EOF)),
    "rows of text that takes four times as much": lambda: numbered(
        forever(b"\xfc" + struct.pack("<H", len(WIDE)) + WIDE, HEAD, TEXT, EOF)
    ),
    "columns without end": lambda: numbered(forever(COLUMN, b"\xfe" + b"\xff" * 8)),
    "a count of columns and none": lambda: numbered([b"\xfe" + b"\xff" * 8, EOF]),
    "results without end": lambda: numbered(
        forever(OK[:3] + struct.pack("<HH", MORE_RESULTS, 0), OK[:3] + struct.pack("<HH", MORE_RESULTS, 0))
    ),
    "packets of 16 MiB - 1 without end": lambda: (
        piece
        for number in range(1, 255)
        for piece in (b"\xff\xff\xff" + bytes([number]), *[bytes(1 << 20)] * 15, bytes((1 << 20) - 1))
    ),
    "a text longer than its packet": lambda: numbered([HEAD, COLUMN, EOF, b"\xfe" + b"\xff" * 8 + b"x"]),
    "a packet of another number": lambda: [packets([HEAD], 1), packets([COLUMN], 7)],
    "a file, please": lambda: numbered([b"\xfb/etc/hostname"]),
    "an error as long as it may be": lambda: numbered([b"\xff\x48\x04#HY000" + b"\x1b[2J\r\n" * 100_000]),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_no_answer_takes_more_than_it_may(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def answer(client: socket.socket) -> Iterator[bytes]:
        yield from ANSWERS[what]()
        client.settimeout(PATIENCE_S)
        with suppress(OSError):
            sent.append(client.recv(1 << 16))

    with endless(answer, STATEMENT) as address:
        connection = connect(address)
        with counting(monkeypatch) as counted, pytest.raises(WormholeError) as error:
            query(connection, "SELECT x", within_s=60.0, most_bytes=ALLOWED)
        connection._force_close()  # type: ignore[attr-defined]
    if what == "an error as long as it may be":
        assert len(str(error.value)) < 1500
    else:
        no_answer(error)
    assert not any(sent), "nothing is sent to a server that asks for a file"
    assert counted.bytes <= ALLOWED // 4
    assert counted.packets <= (1 if what == "results without end" else ALLOWED // 256)
    assert counted.peak <= ALLOWED * 3 // 2 + SMALL


@pytest.mark.parametrize("allowed", [None, MOST_LISTING_BYTES])
def test_a_statement_and_a_list_of_all_tables_have_bounds(allowed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with endless(lambda _: ANSWERS["rows of text that takes four times as much"](), STATEMENT) as address:
        connection = connect(address)
        with counting(monkeypatch) as counted, pytest.raises(SourceUnavailable, match="larger than it may be"):
            query(connection, "SELECT x", within_s=60.0, most_bytes=allowed)
    most = allowed or MOST_ANSWER_BYTES
    assert counted.bytes <= most // 4
    assert counted.peak <= most * 3 // 2


def test_a_hundredth_of_150_000_tables_fits_into_a_hundredth() -> None:
    # What is allowed is what an honest server needs.
    row = b"\x1e" + b"d" * 30 + b"\x1e" + b"t" * 30
    rows = [b"\2", TEXT, TEXT, EOF, *[row] * 1_500, EOF]
    with endless(lambda _: numbered(rows), STATEMENT) as address, closing(connect(address)) as connection:
        assert len(query(connection, "SELECT x", most_bytes=MOST_LISTING_BYTES // 100)) == 1_500


# --- before there is a connection ----------------------------------------------------------------------------------

GREETINGS: dict[str, Callable[[], Iterable[bytes]]] = {
    "a greeting of 16 MiB": lambda: [b"\xff\xff\xff\0", bytes(1 << 20)],
    "a version without end": lambda: [packets([b"\x0a" + b"8" * 500_000], 0)],
    "a greeting of another length": lambda: [packets([greeting()[:20]], 0)],
    "another protocol": lambda: [packets([b"\x09" + greeting()[1:]], 0) + packets([b"\xff"], 2)],
    "an error with escapes": lambda: [packets([b"\xff\x10\x04\x1b[2J" * 10], 0)],
}
LOGINS: dict[str, Callable[[], Iterable[bytes]]] = {
    "switches without end": lambda: numbered(forever(b"\xfemysql_native_password\0" + b"1" * 20), 2),
    "a switch to a name of 100 KB": lambda: numbered([b"\xfe" + b"\x1b" * 100_000], 2),
    "a key of 100 KB": lambda: [
        *(packets([b"\xfecaching_sha2_password\0" + b"1" * 20], 2), packets([b"\1\4"], 4)),
        packets([b"\1" + b"x" * 100_000], 6),
    ],
    "data without a question": lambda: numbered(forever(b"\1" + b"x" * 1000), 2),
    "a number out of order": lambda: [packets([OK], 9)],
    "an OK that is none": lambda: [packets([b"\0"], 2)],
    "a wait without end": lambda: numbered(forever(b"\1\3"), 2),
}


@pytest.mark.parametrize("what", [*GREETINGS, *LOGINS])
def test_no_login_takes_more_than_it_may(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {**GREETINGS, **LOGINS}[what]
    with (
        counting(monkeypatch) as counted,
        endless(lambda _: said(), LOGIN if what in LOGINS else 0) as address,
        pytest.raises(WormholeError) as error,
    ):
        connect(address)
    assert PASSWORD not in str(error.value)
    assert len(str(error.value)) < 1500
    assert error.value.hint
    assert counted.packets <= 20
    assert counted.bytes <= 1 << 18
    assert counted.peak <= 8 << 20


# --- what is not followed ------------------------------------------------------------------------------------------


def test_no_redirection_and_no_session_state_is_followed() -> None:
    tracked = b"\x01" + b"\x0credirect_url" + b"\x1amysql://u@127.0.0.1:3306/x" + b"\xfb"
    dialled: list[object] = []
    create = socket.create_connection

    def dial(address: Any, *args: Any, **options: Any) -> socket.socket:
        dialled.append(address)
        return create(address, *args, **options)

    redirecting = OK[:3] + struct.pack("<HH", 0x4002, 0) + b"Location: mysql://127.0.0.1:1/user=x&ttl=1" + tracked
    with pytest.MonkeyPatch.context() as patch, serving() as honest:
        patch.setattr(socket, "create_connection", dial)
        with serving(lambda number, data: packets([redirecting], 2) if number == 1 else data) as hostile:
            with suppress(WormholeError):
                connect(hostile.address)
        assert dialled == [("127.0.0.1", hostile.address.port)]
        assert honest.answers == 0


def test_what_is_sent_before_tls_is_not_read_behind_it(tmp_path: Path) -> None:
    """The way of a stranger between: answers put in front of those of the server that is verified."""
    from tests.support.certificates import Authority

    files = Authority(tmp_path).issue("db1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    capabilities = struct.pack("<H", 1 << 15 | 1 << 9 | 1 << 11)
    plain = greeting()
    with_tls = plain.replace(struct.pack("<H", (1 << 15 | 1 << 9) & 0xFFFF), capabilities, 1)
    forged, seen = packets([OK], 2) + packets([OK], 1) * 2, []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client, suppress(OSError, ssl.SSLError):
                client.sendall(packets([with_tls], 0) + forged)
                client.recv(36)
                with context.wrap_socket(client, server_side=True) as secure:
                    seen.append(secure.recv(1 << 16))
                    secure.sendall(packets([b"\xff\x15\x04#28000Access denied"], 3))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(WormholeError) as error:
            connect(Address("127.0.0.1", listening.getsockname()[1], "u", PASSWORD, tls="verify", ca=str(files.ca)))
        thread.join(PATIENCE_S)
    assert PASSWORD not in str(error.value)
    assert "TLS failed" in str(error.value) or "Access denied" in str(error.value)


# --- the binlog ----------------------------------------------------------------------------------------------------


def dump_of(data: Iterable[bytes]) -> Callable[[socket.socket], Iterable[bytes]]:
    """The answers to what a reader asks first, and ``data`` instead of the log."""

    def answer(client: socket.socket) -> Iterator[bytes]:
        yield packets([OK], 1)
        client.recv(1 << 16)
        yield packets([HEAD, column("checksum"), EOF, b"\x05CRC32", EOF], 1)
        client.recv(1 << 16)
        yield packets([OK], 1)
        client.recv(1 << 16)
        yield from data

    return answer


@contextmanager
def dumping(data: Iterable[bytes]) -> Iterator[Dump]:
    with endless(dump_of(data), STATEMENT) as address:
        dump = Dump(connect(address), FromFile("binlog.000001", 4), server_id=7, mariadb=False)
        try:
            yield dump
        finally:
            dump.close()


def test_an_event_of_an_impossible_size_is_not_waited_for(tmp_path: Path) -> None:
    spool = Spool(tmp_path, lambda kind, flags: False)
    spool.begin()
    header = bytes(9) + (1 << 31).to_bytes(4, "little") + bytes(6)
    with dumping([b"\xff\xff\xff\1\0" + header]) as dump, pytest.raises(DecodeError, match="announces an event"):
        dump.more(24, 5.0)
        spool.take(dump.data, 0)


def test_a_log_without_end_is_taken_piece_by_piece() -> None:
    heartbeat = packets([bytes(40)], 1)
    with dumping(forever(heartbeat * 2_000)) as dump:
        most = 0
        for _ in range(200):
            if dump.more(0, 5.0):
                most = max(most, len(dump.data))
                dump.at = len(dump.data)
        assert 0 < most <= 1 << 20


def test_the_text_of_an_error_is_cut() -> None:
    error = Dump.refused(b"\xff\x48\x04#HY000" + b"\x1b[2J" * 1_000_000)
    assert len(str(error)) < 1500


def test_the_names_of_tables_without_end_are_not_kept(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "tables.jsonl", most=100)
    catalog.present([("shop", f"own{n}", True) for n in range(50)], folds=True)
    for number in range(20_000):
        catalog.note("shop", f"t{number}", True)
    assert len(catalog.all()) <= 250
    assert ("shop", "own0") in catalog.all(), "the server has it"
    catalog.save()
    assert len((tmp_path / "tables.jsonl").read_bytes().splitlines()) <= 250
    assert "were forgotten" in str(catalog.problem)


def reader_of(scripted: Scripted) -> BinlogReader:
    start = LogPosition(1, 3, 4)
    return BinlogReader(
        cast(Dump, scripted.dump),
        scripted.encoder,
        scripted.walk,
        scripted.tables,
        scripted.prepared,
        scripted.delivered,
        Datamarker(start, "", start),
        placed=True,
        passed=lambda _: None,
        closed=lambda: None,
        confirmed=lambda error, _: error,
    )


def test_the_gtid_set_of_a_log_without_end_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LONGEST_DELIVERED", 2_000)
    stream = build.Stream()
    for number in range(1, 1_000):
        uuid = number.to_bytes(16, "big")
        stream.add(build.GTID, build.gtid(uuid, number))
        for event in ((build.QUERY, build.query("BEGIN")), table(), insert(number), (build.XID, bytes(8))):
            stream.add(*event)
    scripted = Scripted(tmp_path, stream, piece=500)
    log = reader_of(scripted)
    longest = 0
    with pytest.raises(UnsupportedLog, match="more than a datamarker may have"):
        while segment := log.read(100, 0.0):
            longest = max(longest, len(segment.marker.delivered) if segment.marker else 0)
    assert 0 < longest <= 2_000


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_HELD", 100_000)


@pytest.mark.usefixtures("little")
def test_the_tables_of_a_log_without_end_are_forgotten_between_transactions(tmp_path: Path) -> None:
    stream = build.Stream()
    for number in range(1, 1_000):
        stream.transaction(number, table(f"shop.t{number}", table_id=number), insert(number, table_id=number))
    scripted = Scripted(tmp_path, stream)
    log = reader_of(scripted)
    read = 0
    with pytest.raises(SourceUnavailable, match="is forgotten") as error:
        while segment := log.read(1 << 20, 0.0):
            read += len(segment.runs["log"].ends)
    assert error.value.hint
    assert 0 < read < 100, "what was whole is handed out, so that the next reader gets on"
    assert len(scripted.tables.schemas) <= read + 1


@pytest.mark.usefixtures("little")
def test_the_tables_of_one_transaction_have_a_bound(tmp_path: Path) -> None:
    stream = build.Stream()
    events = [(table(f"shop.t{n}", table_id=n), insert(n, table_id=n)) for n in range(1, 1_000)]
    stream.transaction(1, *(event for pair in events for event in pair))
    scripted = Scripted(tmp_path, stream)
    with pytest.raises(UnsupportedLog, match="more than fit into memory"):
        while scripted.walk.step(1 << 20, 0.0) != Step.END:
            pass
    assert len(scripted.tables.schemas) < 100


def prepared(stream: build.Stream, number: int, xid: bytes) -> None:
    """The first phase of an XA transaction without changes."""
    stream.add(build.GTID, build.gtid(build.UUID, number))
    stream.add(build.QUERY, build.query(f"XA START X'{xid.hex()}',X'',1"))
    stream.add(build.QUERY, build.query(f"XA END X'{xid.hex()}',X'',1"))
    stream.add(events.XA_PREPARE, xa_prepare(xid))


def walk_to_the_end(scripted: Scripted) -> None:
    while scripted.walk.step(1 << 20, 0.0) != Step.END:
        pass


def test_prepared_transactions_without_end_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_transactions, "_MOST", 50)
    stream = build.Stream()
    for number in range(1, 1_000):
        prepared(stream, number, number.to_bytes(4, "big"))
    scripted = Scripted(tmp_path, stream)
    with pytest.raises(UnsupportedLog, match="50 XA transactions that are prepared"):
        walk_to_the_end(scripted)


def test_a_transaction_that_is_prepared_twice_is_damage(tmp_path: Path) -> None:
    # A server could end the publisher with it: the walk asserted that there is one.
    stream = build.Stream()
    prepared(stream, 1, b"x")
    stream.add(events.XA_PREPARE, xa_prepare(b"x"))
    with pytest.raises(DecodeError, match="is prepared and has not begun") as error:
        walk_to_the_end(Scripted(tmp_path, stream))
    assert error.value.position
    assert error.value.hint
