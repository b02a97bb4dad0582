"""What a server can do for a log; over real ones: ``tests/integration/test_mysql_servers.py``."""

from __future__ import annotations

from typing import Any

import pytest

from datastores.mysql import standing as module
from datastores.mysql.datastore import DATASTORE
from datastores.mysql.server.address import Address
from datastores.mysql.server.settings import ReplicaChannel, Settings
from datastores.mysql.server.state import ServerState, StateQueries
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.errors import SourceUnavailable
from wormhole.ports.datastore import Login, Standing

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


class Connection:
    """Stands for the driver's."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Server:
    """A server with these settings, which executed ``gtids``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = MYSQL
        self.view = ServerState(A, 1, "binlog", ((7, 900),), (7, 600), f"{A}:1-9")
        self.fails: Exception | None = None
        self.connections: list[Connection] = []
        monkeypatch.setattr(module, "connect", self._connect)
        monkeypatch.setattr(module, "read_settings", lambda _: self.settings)
        monkeypatch.setattr(StateQueries, "identity", lambda *_: self.view.identity)
        monkeypatch.setattr(StateQueries, "view", self._view)

    def _connect(self, _: Address) -> Connection:
        self.connections.append(Connection())
        return self.connections[-1]

    def _view(self, connection: Connection) -> ServerState:
        if self.fails is not None:
            raise self.fails
        return self.view

    def standing(self, *delivered: str, failover: bool = True) -> Standing:
        url = "mysql://wormhole@127.0.0.1:1/"
        try:
            return DATASTORE.standing(url, Login(prompt=lambda _: "x"), delivered, failover=failover)
        finally:
            assert all(connection.closed for connection in self.connections)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_a_server_as_it_should_be(server: Server) -> None:
    assert server.standing() == Standing(A)
    assert server.standing("", f"{A}:1-5", f"{A}:1-9") == Standing(A)


def test_what_it_has_not_executed(server: Server) -> None:
    found = server.standing(f"{A}:1-10", f"{A}:1-12", f"{A}:1-3,{B}:4")
    assert (found.ready, found.lacking) == (True, f"{A}:10-12,{B}:4")
    server.view = ServerState("1/", 1, "binlog", ((7, 900),), (7, 600), "0-1-9", state="0-1-9")
    server.settings = MARIADB
    found = server.standing("0-1-12,1-1-1", "0-1-11", "0-1-4")
    assert (found.server, found.lacking) == ("1/", "0-1-12,1-1-1")


def test_a_position_of_another_kind_of_server_is_lacking(server: Server) -> None:
    assert server.standing("0-1-12", f"{A}:1-3").lacking == "0-1-12"


def test_a_long_list_is_shortened(server: Server) -> None:
    holes = ":".join(str(number) for number in range(11, 1011, 2))
    lacking = server.standing(f"{A}:{holes}").lacking
    assert len(lacking) == 300
    assert lacking.startswith(f"{A}:11:13:")
    assert lacking.endswith("...")


@pytest.mark.parametrize(
    ("settings", "text", "hint"),
    [
        (changed(MYSQL, variables={"log_bin": "OFF"}), "log_bin=OFF", "log_bin = binlog"),
        (
            changed(
                MYSQL,
                variables={"log_replica_updates": "OFF"},
                replicas=(ReplicaChannel("", "db2:3306", running=True, lag_s=0),),
            ),
            "log_replica_updates=OFF: what comes from db2:3306 is not logged here",
            "log_replica_updates = ON",
        ),
        (changed(MYSQL, grants=()), "lacks REPLICATION SLAVE", "GRANT REPLICATION SLAVE"),
    ],
)
def test_a_server_whose_log_cannot_be_tailed(server: Server, settings: Settings, text: str, hint: str) -> None:
    server.settings = settings
    found = server.standing(f"{A}:1-10")
    assert (found.server, found.ready) == (A, False)
    assert text in found.problem.text
    assert hint in found.problem.hint


@pytest.mark.parametrize("mode", ["OFF", "ON_PERMISSIVE"])
def test_a_copy_without_gtids_serves_after_no_other_one(server: Server, mode: str) -> None:
    server.settings = changed(MYSQL, variables={"gtid_mode": mode})
    assert server.standing(failover=False) == Standing(A)
    found = server.standing(failover=True)
    assert not found.ready
    assert found.problem.text == f"gtid_mode={mode}: a copy without GTIDs cannot serve after another one"
    assert "SET PERSIST gtid_mode = ON;" in found.problem.hint


def test_a_server_that_does_not_answer_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.fails = SourceUnavailable("gone")
    with pytest.raises(SourceUnavailable, match="gone"):
        server.standing()

    def refuse(_: Any) -> Connection:
        raise SourceUnavailable("nobody is there")

    monkeypatch.setattr(module, "connect", refuse)
    with pytest.raises(SourceUnavailable, match="nobody is there"):
        server.standing()
