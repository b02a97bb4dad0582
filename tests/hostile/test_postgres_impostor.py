"""Whatever answers at a source's address may not be PostgreSQL: at each step it may send anything, or never stop.

Each outcome is one error with its next step, the memory is bounded, and other logs are read on.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from datastores.postgres import source as source_module
from datastores.postgres.datastore import DATASTORE
from datastores.postgres.log.reader import WalReader
from datastores.postgres.server.address import Address, parse
from datastores.postgres.server.connection import connect
from datastores.postgres.source import PostgresSource
from tests.support.certificates import Authority
from tests.support.postgres_impostor import (
    COPY_BOTH,
    COPY_OUT,
    SALT,
    STREAM,
    Impostor,
    Talk,
    Trick,
    columns,
    copy_data,
    done,
    impostor,
    keepalive,
    message,
    row,
    rows,
)
from tests.support.postgres_messages import begin, commit, insert, relation, type_name
from wormhole.model.errors import SourceSilent, SourceUnavailable, UsageError, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions

START = Datamarker(LogPosition(1, 0, 500), "1:0/1F4", LogPosition(1, 0, 500))
NOTIFICATION = message(b"A", bytes(4) + b"channel\0" + b"x" * 1000 + b"\0")
_MIB = 1 << 20

STEPS = (
    *("login", "SET client_encoding", "SELECT pg_is_in_recovery", "pg_control_system", "wal_status"),
    *("pg_publication_tables", "pg_copy_logical_replication_slot", "START_REPLICATION", "attgenerated"),
)


def _says(data: bytes) -> Trick:
    return lambda talk: talk.send(data)


def _floods(first: bytes, data: bytes) -> Trick:
    def play(talk: Talk) -> None:
        talk.send(first)
        talk.flood(data)

    return play


def _always(answer: bytes) -> Trick:
    def play(talk: Talk) -> None:
        while True:
            talk.send(answer)
            talk.query()

    return play


TRICKS: dict[str, Trick] = {
    "it closes": _says(b""),
    "half a message": _says(row("x" * 100)[:50]),
    "a row before its columns": _says(row("1") + done()),
    "a message that there is not": _says(message(b"\xff", b"what")),
    "a refusal without words": _says(message(b"E", b"\0")),
    "rows without end": _floods(columns(1), row("x" * 60_000)),
    "one row after the other is a statement of its own": _floods(b"", columns(1) + row("x") + done()),
}


@pytest.fixture
def server() -> Iterator[Impostor]:
    with impostor() as made:
        yield made


def _source(
    server: Impostor, folder: Path, *, by: Literal["log", "database", "table", "hash"] = "table"
) -> PostgresSource:
    folder.mkdir(exist_ok=True)
    password = folder / "password"
    password.touch(0o600)
    password.write_text("a hole")
    options = SourceOptions("log", folder, Sharding(by), 1 << 20, 0, Login(password))
    return PostgresSource(f"postgres://w@127.0.0.1:{server.port}/shop?slot=s&publication=s", options)


@contextmanager
def _reading(
    server: Impostor, folder: Path, *, by: Literal["log", "database", "table", "hash"] = "table"
) -> Iterator[WalReader]:
    """A reader of a source that has started."""
    source = _source(server, folder, by=by)
    try:
        source.start()
        with closing(source.open(START)) as reader:
            yield reader
    finally:
        source.stop()


def _segment(reader: WalReader) -> Segment:
    while True:
        found = reader.read(1 << 20, 1.0)
        if found is not None:
            return found


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _check(error: WormholeError) -> None:
    assert error.message
    assert "\n" not in error.message
    assert len(error.message) < 3000
    assert error.hint


def test_an_impostor_that_behaves_is_read(server: Impostor, tmp_path: Path) -> None:
    """Else the others here would prove nothing."""
    with _reading(server, tmp_path) as reader:
        assert sum(run.updates for run in _segment(reader).runs.values()) == 1
    for step in STEPS[1:]:
        assert any(step in statement for statement in server.asked), step


@pytest.mark.parametrize("step", STEPS)
def test_each_step_may_fail_in_each_way(
    step: str, server: Impostor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, trick in TRICKS.items():
        server.play(step, trick)
        with pytest.raises(WormholeError) as error, _reading(server, tmp_path) as reader:
            _segment(reader)
            pytest.fail(f"{step}, {name}: nothing was noticed")
        _check(error.value)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("step", ["pg_control_system", "wal_status"])
def test_answers_of_another_form_are_not_a_servers(step: str, server: Impostor, tmp_path: Path) -> None:
    for answer in (rows(), rows(("x",)), rows(("x", None, "7", "") * 3), COPY_OUT + copy_data(b"x")):
        server.play(step, _says(answer))
        with pytest.raises(WormholeError) as error, _reading(server, tmp_path):
            pass
        _check(error.value)


def test_commands_name_what_they_do_not_understand(server: Impostor, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("a hole")
    url, login = f"postgres://w@127.0.0.1:{server.port}/shop", Login(password)
    commands: tuple[Callable[[], object], ...] = (
        lambda: DATASTORE.examine(url, tmp_path, login),
        lambda: DATASTORE.describe(url, login, lambda _: True),
        lambda: DATASTORE.server_objects(url, login),
    )
    for command in commands:
        server.play("SELECT", _always(rows(("x", "y"))))
        with pytest.raises(SourceUnavailable, match="not those of a PostgreSQL server") as error:
            command()
        _check(error.value)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "closed the connection"),
        (copy_data(b"w" + bytes(60))[:40], "closed the connection"),
        (copy_data(b"x" * 40), "no part of a log"),
        (copy_data(b"k"), "no part of a log"),
        (copy_data(commit(600, 640)), "no transaction has begun"),
        (copy_data(begin(600)) + copy_data(begin(601)), "has not ended"),
        (copy_data(begin(600)) + copy_data(insert(7, ["1"])), "no Relation message"),
        (copy_data(begin(400)) + copy_data(commit(400, 440)), "which was not there"),
        (message(b"c", b"") + done("COPY 0"), "ended the sending of its log"),
        (message(b"E", b"SFATAL\0C57P01\0Mgo away\0\0"), "go away"),
        (columns(1) + row("1"), "."),
        (COPY_OUT, "."),
    ],
)
def test_each_wrong_message_in_the_log_is_one_error(said: bytes, words: str, server: Impostor, tmp_path: Path) -> None:
    server.play("START_REPLICATION", _says(COPY_BOTH + said))
    _ends(server, tmp_path, words)


def test_a_strange_answer_in_the_middle_of_a_transaction_is_one_error(server: Impostor, tmp_path: Path) -> None:
    server.play("attgenerated", _says(rows(("x", "y", "z", "v"))))
    _ends(server, tmp_path, "not those of")


def _ends(server: Impostor, folder: Path, words: str, *, by: Literal["log", "table"] = "table") -> None:
    """Reading ends with one error that contains the words; with little memory."""
    before = _rss()
    with _reading(server, folder, by=by) as reader, pytest.raises(WormholeError, match=words) as error:
        while True:
            _segment(reader)
    _check(error.value)
    assert _rss() - before < 160 * _MIB


def _wide(number: int) -> bytes:
    return copy_data(relation(number, f"shop.t{number}", [(f"column_{n}", 25) for n in range(1600)]))


def _many(make: Callable[[int], bytes]) -> Trick:
    def play(talk: Talk) -> None:
        talk.send(COPY_BOTH + copy_data(begin(600)))
        for number in range(8, 40_000):
            talk.send(make(number))

    return play


@pytest.mark.parametrize(
    "make", [_wide, lambda number: copy_data(type_name(number, "s" * 5_000, f"{number}"))], ids=["tables", "types"]
)
def test_tables_and_types_without_end_end_the_reader(
    make: Callable[[int], bytes], server: Impostor, tmp_path: Path
) -> None:
    server.play("START_REPLICATION", _many(make))
    _ends(server, tmp_path, "take more than 64 MiB", by="log")


def test_a_log_of_nothing_without_end_is_read_in_pieces_beside_others(
    server: Impostor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keepalives, and transactions without rows: each call comes back, and another log is read meanwhile."""
    monkeypatch.setattr(source_module, "_POLL_S", 3600.0)  # its end would be compared with what was read

    def play(talk: Talk) -> None:
        talk.send(COPY_BOTH)
        for at in range(600, 1 << 30, 100_000):
            ends = range(at, at + 100_000, 100)
            talk.send(b"".join(copy_data(begin(end)) + copy_data(commit(end, end + 40)) for end in ends))

    for name, trick in (("keepalives", _floods(COPY_BOTH, keepalive(500))), ("transactions", play)):
        server.play("START_REPLICATION", trick)
        before = _rss()
        with _reading(server, tmp_path / name) as reader, impostor() as other:
            found = [reader.read(1 << 20, 0.1) for _ in range(3)]
            assert all(one is None or not one.runs for one in found)
            assert len(reader._encoder.ended_ids) < 100_000
            with _reading(other, tmp_path / "other") as well:
                reading = threading.Thread(target=reader.read, args=(1 << 20, 1.0))
                reading.start()
                assert _segment(well).runs
                reading.join()
        assert _rss() - before < 100 * _MIB


def test_a_transaction_that_comes_again_and_again_is_an_error(server: Impostor, tmp_path: Path) -> None:
    server.play("START_REPLICATION", _floods(COPY_BOTH, copy_data(begin(600)) + copy_data(commit(600, 640))))
    _ends(server, tmp_path, "0/280 again and again")


def test_unexpected_notifications_are_dropped(server: Impostor, tmp_path: Path) -> None:
    def play(talk: Talk) -> None:
        talk.send(COPY_BOTH)
        talk.flood(NOTIFICATION, 200 * _MIB)
        talk.send(STREAM)
        talk.query()

    server.play("START_REPLICATION", play)
    with _reading(server, tmp_path) as reader:
        before = _rss()
        assert _segment(reader).runs
        assert _rss() - before < 100 * _MIB


def test_an_answer_that_never_ends_ends_at_its_deadline_and_takes_little(server: Impostor) -> None:
    address = Address("127.0.0.1", server.port, "w", "shop", publication="s", slot="s")
    notice = message(b"N", b"SNOTICE\0Mmind\0\0")
    server.play("SELECT 1", lambda talk: talk.flood(NOTIFICATION + notice, 1 << 40))
    before = _rss()
    with closing(connect(address)) as connection, pytest.raises(SourceSilent, match="does not answer in time"):
        connection.query("SELECT 1", timeout_s=0.5)
    assert _rss() - before < 60 * _MIB


def test_a_copy_is_handed_on_in_pieces_and_has_to_be_one(server: Impostor) -> None:
    address = Address("127.0.0.1", server.port, "w", "shop", publication="s", slot="s")
    server.play("COPY a", _floods(COPY_OUT, copy_data(b"x" * 100_000)))
    with closing(connect(address)) as connection:
        pieces = connection.copy_rows("COPY a TO STDOUT", timeout_s=60.0)
        sizes = [sum(map(len, next(pieces))) for _ in range(20)]
        assert max(sizes) < _MIB
    server.play("COPY b", _says(rows(("1",))))
    with closing(connect(address)) as connection, pytest.raises(SourceUnavailable, match="a COPY was to send"):
        list(connection.copy_rows("COPY b TO STDOUT", timeout_s=60.0))


_PASSWORD = "not a long one"
_MD5_SALT = b"salt"


def _cheap_proof(made_of: bytes) -> bytes:
    """What a proof of one iteration would be."""
    salted = hashlib.pbkdf2_hmac("sha256", _PASSWORD.encode(), SALT, 1)
    client = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client).digest(), made_of, "sha256")
    return bytes(one ^ other for one, other in zip(client, signature, strict=True))


def _scram(iterations: int) -> Callable[[Talk], None]:
    def ask(talk: Talk) -> None:
        made_of, proof = talk.ask_scram(iterations)
        talk.learned.append(("a proof", proof))
        if proof == _cheap_proof(made_of):
            talk.learned.append(("a cheap proof", proof))

    return ask


def _plain(request: int, content: bytes = b"") -> Callable[[Talk], None]:
    return lambda talk: talk.learned.append(("the password", talk.ask(request, content)))


_ASKS: dict[str, Callable[[Talk], None]] = {
    "cleartext": _plain(3),
    "md5": _plain(5, _MD5_SALT),
    "scram of one iteration": _scram(1),
    "scram that keeps a processor busy": _scram((1 << 31) - 1),
}


@pytest.mark.parametrize("way", ["", "sslmode=require", "sslmode=allow", "socket"])
@pytest.mark.parametrize(
    ("ask", "first"),
    [(ask, False) for ask in _ASKS] + [(ask, True) for ask in ("cleartext", "md5", "scram of one iteration")],
)
@pytest.mark.parametrize("walsender", [False, True])
def test_an_impostor_learns_nothing_of_the_password(
    ask: str, first: bool, way: str, walsender: bool, tmp_path: Path
) -> None:
    """Neither when it asks at once, nor when it first asks as an honest server does."""
    files = Authority(tmp_path).issue("db1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    asks = [_scram(4096), _ASKS[ask]] if first else [_ASKS[ask]]
    learned: list[tuple[str, bytes]] = []

    def play(talk: Talk) -> None:
        talk.learned = learned
        talk.start(context if way == "sslmode=require" else None)
        asks.pop(0)(talk) if len(asks) > 1 else asks[0](talk)

    with impostor(tmp_path if way == "socket" else None) as server:
        server.play("login", play)
        url = f"postgres://w@127.0.0.1:{server.port}/shop?{way}".rstrip("?")
        if way == "socket":
            url = f"postgres://w@/shop?host={tmp_path}"
        (tmp_path / "password").touch(0o600)
        (tmp_path / "password").write_text(_PASSWORD)
        address = parse(url, "log", password_file=tmp_path / "password")
        with pytest.raises(WormholeError) as error:
            connect(address, walsender=walsender, timeout_s=10.0)
        _check(error.value)
    found = [what for what, _ in learned]
    assert "the password" not in found
    assert "a cheap proof" not in found
    if not first:
        assert not found
        assert "was not sent" in error.value.message


def test_the_environment_gives_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", _PASSWORD)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "passfile"))
    (tmp_path / "passfile").touch(0o600)
    (tmp_path / "passfile").write_text(f"*:*:*:*:{_PASSWORD}\n")
    learned: list[bytes] = []

    def play(talk: Talk) -> None:
        talk.start()
        learned.append(talk.ask(3))

    with impostor() as server:
        server.play("login", play)
        with pytest.raises(UsageError):
            connect(parse(f"postgres://w@127.0.0.1:{server.port}/shop", "log"))
    assert not learned


def test_an_unverified_server_gets_the_password_if_the_url_permits_it(tmp_path: Path) -> None:
    learned: list[bytes] = []

    def play(talk: Talk) -> None:
        talk.start()
        learned.append(talk.ask(3))

    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text(_PASSWORD)
    with impostor() as server:
        server.play("login", play)
        url = f"postgres://w@127.0.0.1:{server.port}/shop?unverified_server=may-read-password"
        with pytest.raises(WormholeError):
            connect(parse(url, "log", password_file=tmp_path / "password"))
    assert learned == [_PASSWORD.encode() + b"\0"]


@pytest.mark.parametrize("said", ["r=other,s=c2FsdHNhbHQ=,i=4096", "r=%s+,s=,i=4096", "r=%s+,s=c2FsdHNhbHQ=,i=x", "e"])
def test_a_challenge_of_another_form_is_one_error(said: str, server: Impostor, tmp_path: Path) -> None:
    def play(talk: Talk) -> None:
        talk.start()
        nonce = talk.ask(10, b"SCRAM-SHA-256\0\0").rpartition(b"r=")[2].decode()
        talk.ask(11, said.replace("%s", nonce).encode())

    server.play("login", play)
    with pytest.raises(WormholeError) as error:
        _source(server, tmp_path).start()
    _check(error.value)
