"""Claims against a scripted server; on real ones: ``tests/integration/test_mysql_servers.py``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from datastores.mysql.server import id_claims as module
from datastores.mysql.server.id_claims import IdClaims, ServerIds, list_replicas
from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError

NO_LOCKS = UnsupportedLog("the server has no such function")
DENIED = UsageError("a privilege is missing")


class Server:
    """The named locks of a server: which connection (a number) has which."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.locks: dict[str, int] = {}
        self.replicas: dict[int, str] = {}
        self.ends_while_waiting = 0  # this connection
        self.refuses: dict[str, Exception] = {}  # by the statement's first words
        self.answer: list[dict[str, Any]] | None = None  # answers GET_LOCK in place of the locks
        monkeypatch.setattr(module, "query", self.query)

    def query(self, connection: Any, sql: str, args: Sequence[Any] = (), **_: object) -> list[dict[str, Any]]:
        for words, error in self.refuses.items():
            if sql.startswith(words):
                raise error
        if sql.startswith("SELECT GET_LOCK"):
            if self.answer is not None:
                return self.answer
            if args[1]:
                self.end(self.ends_while_waiting)
            return [{"got": self.lock(args[0], connection), "own": self.lock(args[2], connection)}]
        if sql.startswith("SELECT RELEASE_LOCK"):
            for name in args:
                if self.locks.get(name) == connection:
                    del self.locks[name]
            return [{}]
        if sql.startswith("SELECT IS_USED_LOCK"):
            return [{"id": self.locks.get(args[0])}]
        if sql == "SHOW FULL PROCESSLIST":
            return [{"Id": 7, "User": "wormhole", "Host": "db2:50123"}]
        assert sql == "SHOW REPLICAS"
        return [{"Server_Id": number, "Host": name} for number, name in self.replicas.items()]

    def lock(self, name: str, connection: int) -> int:
        return int(self.locks.setdefault(name, connection) == connection)

    def end(self, connection: int) -> None:
        self.locks = {name: holder for name, holder in self.locks.items() if holder != connection}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def claims(owner: str = "ours", last: int = 42) -> IdClaims:
    return IdClaims(ServerIds(41, last), owner, "SHOW REPLICAS")


def take(of: IdClaims, connection: int, avoid: int = 0) -> int:
    return of.take(cast(Any, connection), avoid)


def problem(of: IdClaims) -> str:
    return str(of.problem(cast(Any, 1)))


def test_the_connection_of_a_reader_holds_its_id(server: Server) -> None:
    ours = claims()
    assert take(ours, 11, avoid=41) == 42
    assert {holder for name, holder in server.locks.items() if ":42" in name} == {11}
    with pytest.raises(SourceUnavailable, match=r" 41-42 .* this publisher \[log-shared\]"):
        take(ours, 12, avoid=41)
    server.end(11)
    ours.give_back(42)
    assert take(ours, 12, avoid=41) == 42


def test_another_publishers_ids_are_left_to_it_and_it_is_named(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, ours = claims("theirs"), claims()
    assert take(theirs, 7) == 41
    assert take(ours, 12) == 42
    assert "replication id 41 of this log: connection 7 (wormhole@db2:50123). Next: if that reader" in caplog.text
    assert "41: connection 7 (wormhole@db2:50123)" in problem(ours)
    assert "server_ids" in problem(ours)
    caplog.clear()
    with pytest.raises(SourceUnavailable, match=r" 41-42 .*\(41: connection 7.*\[log-shared\]") as error:
        take(ours, 13)
    assert "stop one of the two publishers" in str(error.value.hint)
    assert not caplog.records, "said once"
    server.end(7)
    assert problem(ours) == ""
    assert take(ours, 13) == 41


def test_a_former_reader_of_the_same_folder_is_waited_for_and_nobodys_problem(server: Server) -> None:
    former, ours = claims(last=41), claims(last=41)
    assert take(former, 7) == 41
    with pytest.raises(SourceUnavailable, match="has not noticed yet"):
        take(ours, 12)
    assert problem(ours) == ""
    server.ends_while_waiting = 7
    assert take(ours, 12) == 41
    assert set(server.locks.values()) == {12}


def test_a_replica_keeps_its_id(server: Server) -> None:
    ours = claims()
    server.replicas = {41: "", 99: "far"}
    assert take(ours, 12) == 42
    assert "41: registered as a replica without a name" in problem(ours)
    assert not any(":41" in name for name in server.locks)
    server.replicas = {}
    assert problem(ours) == ""


def test_one_that_ends_while_it_is_looked_at_is_no_problem(server: Server) -> None:
    assert take(claims("theirs"), 7) == 41
    server.refuses["SELECT IS_USED_LOCK"] = DENIED
    ours = claims()
    assert take(ours, 12) == 42
    assert problem(ours) == ""


def test_an_account_that_may_not_list_replicas_goes_on(server: Server) -> None:
    server.refuses["SHOW"] = DENIED
    ours, theirs = claims(), claims("theirs")
    assert take(theirs, 7) == 41
    assert take(ours, 12) == 42
    assert "41: connection 7)" in problem(ours)


@pytest.mark.parametrize("null", [False, True])
def test_a_server_without_such_locks_is_read_all_the_same(
    server: Server, caplog: pytest.LogCaptureFixture, null: bool
) -> None:
    if null:
        server.answer = [{"got": None, "own": None}]
    else:
        server.refuses["SELECT GET_LOCK"] = NO_LOCKS
    ours = claims()
    with caplog.at_level(logging.WARNING):
        assert [take(ours, 12), take(ours, 13)] == [41, 42]
    assert caplog.text.count("another reader with the same ids is not seen") == 1


def test_an_answer_that_makes_no_sense(server: Server) -> None:
    server.answer = []
    ours = claims()
    with pytest.raises(SourceUnavailable, match="is not valid"):
        take(ours, 12)
    server.answer = None
    assert take(ours, 12) in (41, 42)
    assert take(ours, 13) in (41, 42), "the id that failed is lent again"


@pytest.mark.parametrize(
    ("mariadb", "version", "statement"),
    [
        (True, (10, 11, 6), "SHOW SLAVE HOSTS"),
        (False, (8, 0, 21), "SHOW SLAVE HOSTS"),
        (False, (8, 0, 22), "SHOW REPLICAS"),
    ],
)
def test_each_server_lists_its_replicas_in_words_of_its_own(
    mariadb: bool, version: tuple[int, int, int], statement: str
) -> None:
    assert list_replicas(mariadb=mariadb, version=version) == statement


def test_each_is_lent_once() -> None:
    ids = ServerIds.parse("4001-4003", "shop")
    assert [ids.take() for _ in range(3)] == [4001, 4002, 4003]
    with pytest.raises(SourceUnavailable, match="4001-4003 are in use") as error:
        ids.take()
    assert "server_ids" in str(error.value.hint)
    ids.give_back(4002)
    assert ids.take() == 4002


def test_what_was_given_back_is_lent_last() -> None:
    ids = ServerIds(1, 3)
    ids.give_back(ids.take())
    assert [ids.take() for _ in range(3)] == [2, 3, 1]


def test_the_servers_own_id_is_never_lent() -> None:
    ids = ServerIds(1, 2)
    assert ids.take(avoid=1) == 2
    with pytest.raises(SourceUnavailable):
        ids.take(avoid=1)
    assert ids.take(avoid=7) == 1


def test_a_log_has_sixteen_of_its_own() -> None:
    def all_of(log: str) -> list[int]:
        ids = ServerIds.parse("", log)
        lent = [ids.take() for _ in range(16)]
        with pytest.raises(SourceUnavailable):
            ids.take()
        return lent

    ids = all_of("shop")
    assert ids == list(range(ids[0], ids[0] + 16)) == all_of("shop")
    assert 1_000_000_000 <= ids[0] < ids[-1] <= 2_000_000_000
    assert not set(ids) & set(all_of("shop-2"))


@pytest.mark.parametrize("text", ["1-1", "4294967295-4294967295", "1-65536"])
def test_ranges_at_the_limit(text: str) -> None:
    assert ServerIds.parse(text, "shop").take() == int(text.partition("-")[0])


@pytest.mark.parametrize("text", ["4001", "a-b", "-", "1-", "-5", "1-2-3", "1 - 2", "１-２", "1-99999999999"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="is no range"):
        ServerIds.parse(text, "shop")


@pytest.mark.parametrize("text", ["0-5", "5-4", "4294967296-4294967296", "1-65537"])
def test_what_is_no_usable_range(text: str) -> None:
    with pytest.raises(UsageError, match="no usable range"):
        ServerIds.parse(text, "shop")
