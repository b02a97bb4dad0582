"""The source, beside what the contract suite and the integration tests reach."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from datastores.mysql import source as module
from datastores.mysql.datastore import DATASTORE
from datastores.mysql.log.opening import Opening
from datastores.mysql.server import login as logins
from datastores.mysql.server import required_settings
from datastores.mysql.server.address import Address
from datastores.mysql.server.state import ServerState, StateQueries, queries_of
from datastores.mysql.source import MySqlSource
from tests.support.eventually import PATIENCE_S
from tests.support.hosts_state import HostsState
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.errors import CoordinationLost, SourceUnavailable, UnsupportedLog, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions

# --- source: what the contract suite and the integration tests do not reach ---


class Connection:
    """Stands for the driver's."""

    open = True

    def __init__(self, login: logins.Login) -> None:
        self.login = login

    def close(self) -> None:
        self.open = False


class Server:
    """A server that answers with ``view``; ``down``: it does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = ServerState("a", 1, "binlog", ((7, 900), (8, 500)), (8, 600), "")
        self.down = False
        self.login = logins.Login(Address("db1", 3306, "u"), secure=True, doubt=lambda: "")
        self.connections: list[Connection] = []
        self.tables: list[tuple[str, str, bool]] = []
        self.asked = threading.Event()
        monkeypatch.setattr(module, "connect", self._connect)
        monkeypatch.setattr(module, "read_settings", lambda connection: MYSQL)
        monkeypatch.setattr(module, "look", lambda *_: self.tables)
        monkeypatch.setattr(StateQueries, "view", self._view)
        monkeypatch.setattr(Opening, "fingerprint", lambda _, view, number: f"{number}-1")
        monkeypatch.setattr(module, "_POLL_S", 0.005)

    def _connect(self, address: object) -> Connection:
        self.asked.set()
        if self.down:
            raise SourceUnavailable("nobody is there")
        self.connections.append(Connection(self.login))
        return self.connections[-1]

    def _view(self, connection: Connection, *, settled: bool = False) -> ServerState:
        self.asked.set()
        if self.down:
            raise SourceUnavailable("gone")
        return self.view

    def asked_again(self) -> None:
        for _ in range(5):  # twice in a round at most, and the first may have been going on
            self.asked.clear()
            assert self.asked.wait(PATIENCE_S)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def make(tmp_path: Path, sharding: Sharding | None = None, host: str = "state", **more: Any) -> MySqlSource:
    (tmp_path / "password").write_text("x")
    (tmp_path / "password").chmod(0o600)
    options = SourceOptions(
        "log",
        tmp_path / host,
        sharding or Sharding("log"),
        max_update_bytes=1 << 20,
        disk_budget=1 << 20,
        login=Login(tmp_path / "password"),
        **more,
    )
    return MySqlSource("mysql://wormhole@127.0.0.1:1/", options)


def test_nothing_is_touched_before_the_start(tmp_path: Path) -> None:
    make(tmp_path)
    assert not (tmp_path / "state").exists()
    with pytest.raises(UsageError, match="server_ids"):
        make(tmp_path, server_ids="nine")


def test_the_status_is_polled_and_says_what_is_wrong(tmp_path: Path, server: Server) -> None:
    source = make(tmp_path)
    source.start()
    try:
        status = source.status()
        assert (status.end, status.oldest) == (LogPosition(1, 8, 600), LogPosition(1, 7, 4))
        assert status.files == ((7, 900), (8, 600))  # the end was asked for after the sizes
        assert status.budget_bytes == 0
        assert DATASTORE.native_place(status.end, status.base) == "binlog.000008:600"
        server.down = True
        server.asked_again()
        assert "nobody is there" in str(source.status().problems[0])
        assert "nobody is there" in source.status().end_unknown
        assert source.status().end == LogPosition(1, 8, 600)
        server.down = False
        server.view = ServerState("a", 1, "binlog", ((8, 700),), (8, 700), "")
        server.asked_again()
        server.asked_again()
        assert (source.status().problems, source.status().end_unknown) == ((), "")
        assert source.status().end == LogPosition(1, 8, 700)
        assert len(server.connections) >= 2
    finally:
        source.stop()
    assert not any(connection.open for connection in server.connections)


def test_readers_of_a_log_that_began_anew_are_reported(tmp_path: Path, server: Server) -> None:
    source = make(tmp_path)
    source.start()
    told: list[int] = []
    reader = Mock(outlived=told.append)
    try:
        source._readers.add(reader)
        server.asked_again()
        server.view = ServerState("a", 1, "binlog", ((8, 599),), (8, 599), "")
        server.asked_again()
        assert sorted(set(told)) == [1, 2]
        assert source.status().end == LogPosition(2, 8, 599)
    finally:
        source.stop()


def test_a_server_that_cannot_be_tailed_is_refused_in_the_words_of_the_doctor(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(MYSQL, variables={"binlog_format": "STATEMENT"})
    monkeypatch.setattr(module, "read_settings", lambda connection: settings)
    with pytest.raises(UnsupportedLog) as error:
        make(tmp_path).start()
    (finding,) = required_settings.fatal(settings)
    assert finding.because in str(error.value)
    assert not server.connections[0].open


def test_a_password_that_will_be_asked_for_later_is_warned_about(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    login = logins.Login(Address("db1", 3306, "u", "x"), secure=True, doubt=lambda: "it is a stranger")
    login.begin("caching_sha2_password", b"1" * 20)
    server.login = login
    source = make(tmp_path)
    source.start()
    source.stop()
    assert "from an earlier login (caching_sha2_password); it is a stranger" in caplog.text
    assert 'next: write source = "mysql://' in caplog.text


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (Sharding("log"), {"log"}),
        (Sharding("database"), {"log.shop", "log.other"}),
        (Sharding("table"), {"log.shop.a", "log.shop.b", "log.other.a"}),
        (Sharding("hash", 2), {"log.0of2", "log.1of2", "log.shop.b"}),
    ],
)
def test_the_shards_that_are_there(tmp_path: Path, server: Server, sharding: Sharding, expected: set[str]) -> None:
    server.tables = [("shop", "a", True), ("shop", "b", False), ("other", "a", True)]
    source = make(tmp_path, sharding)
    source.start()
    source.stop()
    assert source.shards() == expected


def test_who_asks_in_which_words() -> None:
    assert not queries_of(MYSQL).mariadb
    assert queries_of(MARIADB).mariadb


def test_the_address_is_read_at_the_start(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path)
    (tmp_path / "password").unlink()
    with pytest.raises(UsageError, match="password"):
        source.start()
    assert not server.connections


class TestHosts:
    """Publishers of several hosts, of which one owns the log at a time."""

    def test_the_next_one_goes_on_in_the_same_incarnation(self, tmp_path: Path, server: Server) -> None:
        shared = HostsState()
        first = make(tmp_path, host="a", state=shared)
        first.start()
        first.stop()
        assert not (tmp_path / "a" / "mysql" / "histories.json").exists()
        other = make(tmp_path, host="b", state=shared)
        other.start()
        other.stop()
        assert other._incarnations.current == 1
        assert other._incarnations.knows_file(8)
        assert other._claims._owner == first._claims._owner, "readers that the first one left are ours"

    def test_the_next_one_knows_how_far_the_log_was_read(self, tmp_path: Path, server: Server) -> None:
        shared = HostsState()
        first = make(tmp_path, host="a", state=shared)
        first.start()
        for offset in (500, 600):
            place = LogPosition(1, 8, offset)
            first._note(Datamarker(place, "", place))
        first.stop()
        server.view = ServerState("a", 1, "binlog", ((8, 550),), (8, 550), "")
        other = make(tmp_path, host="b", state=shared)
        other.start()
        other.stop()
        assert other._incarnations.current == 2, "the server lost the end of its log"

    def test_a_state_that_cannot_be_read_leaves_no_connection(self, tmp_path: Path, server: Server) -> None:
        shared = HostsState()
        shared.refuses = CoordinationLost("no contact")
        with pytest.raises(SourceUnavailable, match="no contact"):
            make(tmp_path, state=shared).start()
        assert [connection.open for connection in server.connections] == [False]

    def test_who_lost_the_log_writes_nothing_when_it_stops(self, tmp_path: Path, server: Server) -> None:
        shared, ours = HostsState(), [True]
        source = make(tmp_path, state=shared, may_act=lambda: ours[0])
        source.start()
        server.asked_again()
        ours[0] = False
        server.asked_again()
        for offset in (500, 600):
            place = LogPosition(1, 8, offset)
            source._note(Datamarker(place, "", place))
        written = shared.writes
        source.stop()
        assert shared.writes == written

    def test_a_state_that_cannot_be_kept_is_said(self, tmp_path: Path, server: Server) -> None:
        shared = HostsState()
        source = make(tmp_path, state=shared)
        source.start()
        try:
            for offset in (500, 600):
                place = LogPosition(1, 8, offset)
                source._note(Datamarker(place, "", place))
                shared.refuses = CoordinationLost("no contact")
            server.asked_again()
            problems = [problem.text for problem in source.status().problems]
            assert problems == ["how far the log was read cannot be kept: no contact"]
            assert not source.status().end_unknown
            shared.refuses = None
            server.asked_again()
            assert not source.status().problems
        finally:
            source.stop()


# --- datastore ---


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_its_urls(scheme: str) -> None:
    assert DATASTORE.form(scheme) == f"{scheme}://user@host:3306"
    DATASTORE.check_url(f"{scheme}://h")
    with pytest.raises(ValueError, match=f"must name the account: {scheme}://user@host:3306"):
        DATASTORE.check_url(f"{scheme}://h", configured=True)


def test_a_place_is_written_as_the_server_does_and_read_back() -> None:
    native = DATASTORE.native_place(LogPosition(1, 1_000_003, 1892), "db.log-bin")
    assert native == "db.log-bin.1000003:1892"
    assert DATASTORE.is_place(native)
    assert DATASTORE.native_place(LogPosition(1, 3, 1892), "") == "", "what the files are called is not known yet"


def test_a_configuration_gets_what_the_users_files_add_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".my.cnf").write_text("[client]\nuser = reader\npassword = secret\nssl-ca = /ca.pem\n")
    login = Login(user_files=True)
    assert DATASTORE.configured_url("mysql://db1", login) == "mysql://reader@db1:3306/?ca=/ca.pem&tls=verify-ca"
    assert DATASTORE.configured_url("mysql://u:pw@[::1]:1", Login()) == "mysql://u@[::1]:1"


@pytest.mark.parametrize(
    ("url", "lines"),
    [("mysql://u@db1", 2), ("mysql://u@localhost", 0), ("mysql://u@db1/?tls=verify", 0), ("mysql://u@h/?socket=/s", 0)],
)
def test_how_to_verify_a_server_on_another_host(url: str, lines: int) -> None:
    assert len(DATASTORE.url_comments(url)) == lines
