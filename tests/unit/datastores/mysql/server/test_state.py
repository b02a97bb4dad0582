from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datastores.mysql.server import state as view_module
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.model.errors import SourceUnavailable, UnsupportedLog

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
Rows = list[dict[str, Any]]


class Server:
    """Answers by how a statement begins; of a list of answers one after the other, the last for ever.

    Notes what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[Rows]) -> None:
        self.asked: list[tuple[str, tuple[object, ...]]] = []
        self._answers = answers
        monkeypatch.setattr(view_module, "query", self._query)
        monkeypatch.setattr(view_module, "_SETTLE_S", 0.0)

    def _query(self, _: object, sql: str, args: Sequence[object] = ()) -> Rows:
        self.asked.append((sql, tuple(args)))
        name = next(name for name, text in STATEMENTS.items() if text in sql)
        answers = self._answers[name]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def count(self, name: str) -> int:
        return sum(STATEMENTS[name] in sql for sql, _ in self.asked)


STATEMENTS = {
    "who": "AS identity",
    "gtids": "AS purged",
    "at": "BINLOG_GTID_POS",
    "events": "SHOW BINLOG EVENTS",
    "logs": "SHOW BINARY LOGS",
    "end": " STATUS",
}
LOGS: Rows = [{"Log_name": "db.bin.000007", "File_size": 900}, {"Log_name": "db.bin.000008", "File_size": 300}]


def at(offset: int, file: int = 8) -> Rows:
    return [{"File": f"db.bin.{file:06}", "Position": offset}]


def executed(gtids: str | None, purged: str = "", state: str = "", owned: str = "") -> Rows:
    return [{"owned": owned, "gtids": gtids, "purged": purged, "state": state}]


def mysql(monkeypatch: pytest.MonkeyPatch, **answers: list[Rows]) -> Server:
    who = [{"identity": UUID, "server_id": 7}]
    return Server(monkeypatch, **{"who": [who], "end": [at(157)], "gtids": [executed("")], "logs": [LOGS], **answers})


def ask(queries: StateQueries, *, settled: bool = False) -> ServerState:
    return queries.view(cast(Any, None), settled=settled)


MYSQL = StateQueries(mariadb=False, version=(8, 4, 0))
MARIADB = StateQueries(mariadb=True, version=(10, 11, 6))
VIEW = ServerState(UUID, 7, "db.bin", ((1, 900), (7, 300)), (7, 300), "")


def test_a_mysql(monkeypatch: pytest.MonkeyPatch) -> None:
    mysql(monkeypatch, gtids=[executed(f"{UUID}:1-5,\n4{UUID[1:]}:1", f"{UUID}:1-2")])
    assert ask(MYSQL) == ServerState(
        UUID, 7, "db.bin", ((7, 900), (8, 300)), (8, 157), f"{UUID}:1-5,4{UUID[1:]}:1", f"{UUID}:1-2", ""
    )


def test_a_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    mysql(monkeypatch, who=[[{"identity": "7/", "server_id": 7}]], gtids=[executed("0-1-5", state="0-2-3, 0-1-5")])
    found = ask(MARIADB)
    assert (found.identity, found.gtids, found.purged, found.state) == ("7/", "0-1-5", "", "0-2-3,0-1-5")


def test_files_of_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    mysql(monkeypatch)
    found = ask(MYSQL)
    assert (found.first, found.name(7), found.name(1_000_000)) == (7, "db.bin.000007", "db.bin.1000000")
    assert [found.size(number) for number in (6, 7, 8, 9)] == [None, 900, 300, None]


@pytest.mark.parametrize(
    ("queries", "status", "identity"),
    [
        (MYSQL, "SHOW BINARY LOG STATUS", "@@GLOBAL.server_uuid"),
        (StateQueries(mariadb=False, version=(8, 2, 0)), "SHOW BINARY LOG STATUS", "@@GLOBAL.server_uuid"),
        (StateQueries(mariadb=False, version=(8, 1, 9)), "SHOW MASTER STATUS", "@@GLOBAL.server_uuid"),
        (MARIADB, "SHOW MASTER STATUS", "CONCAT(@@GLOBAL.server_id, '/', '')"),
        (StateQueries(mariadb=True, version=(11, 8, 0), uid=True), "SHOW MASTER STATUS", "@@GLOBAL.server_uid)"),
    ],
)
def test_the_words_of_each_server(
    monkeypatch: pytest.MonkeyPatch, queries: StateQueries, status: str, identity: str
) -> None:
    server = mysql(monkeypatch)
    ask(queries)
    statements = {sql for sql, _ in server.asked}
    assert status in statements
    assert any(identity in sql for sql in statements)
    variables = {word for sql in statements for word in sql.replace(",", " ").split() if "gtid" in word and "@" in word}
    assert variables == (
        {"@@GLOBAL.gtid_binlog_pos", "@@GLOBAL.gtid_binlog_state"}
        if queries.mariadb
        else {"@@GLOBAL.gtid_owned", "@@GLOBAL.gtid_executed", "@@GLOBAL.gtid_purged"}
    )


@pytest.mark.parametrize("queries", [MYSQL, MARIADB])
def test_settled_means_that_the_log_did_not_move_while_it_was_asked(
    monkeypatch: pytest.MonkeyPatch, queries: StateQueries
) -> None:
    ends = [at(100), at(120), at(4, 9), at(4, 9)]
    gtids = [executed("first"), executed("second"), executed("third"), executed("never")]
    logs: Rows = [*LOGS, {"Log_name": "db.bin.000009", "File_size": 4}]
    server = mysql(monkeypatch, end=ends, gtids=gtids, logs=[logs])
    found = ask(queries, settled=True)
    assert (found.end, found.gtids) == ((9, 4), "third")
    assert server.count("at") == 0


@pytest.mark.parametrize("queries", [MYSQL, MARIADB])
def test_the_end_and_what_was_executed_are_asked_without_a_pause_between_them(
    monkeypatch: pytest.MonkeyPatch, queries: StateQueries
) -> None:
    """In a pause a busy server writes another transaction, each time."""
    ends = [at(100), at(120)]

    def pause(seconds: float) -> None:
        ends.append(at(int(str(ends.pop(0)[0]["Position"])) + 20))

    server = mysql(monkeypatch, end=ends, gtids=[executed("first"), executed("second")])
    monkeypatch.setattr(view_module, "time", SimpleNamespace(sleep=pause))
    found = ask(queries, settled=True)
    assert (found.end, found.gtids) == ((8, 120), "second")
    assert server.count("at") == 0


def test_a_transaction_that_is_in_the_log_and_not_executed_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gtids = [executed(f"{UUID}:1-4", owned=f"{UUID}:5#17"), executed(f"{UUID}:1-5")]
    mysql(monkeypatch, gtids=gtids)
    assert ask(MYSQL, settled=True).gtids == f"{UUID}:1-5"


def test_otherwise_the_end_may_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql(monkeypatch, end=[at(100), at(120)], gtids=[executed("first"), executed("never")])
    found = ask(MYSQL)
    assert (found.end, found.gtids) == ((8, 100), "first")
    assert server.count("gtids") == 1


@pytest.mark.parametrize(("answer", "expected"), [("0-1-77", "0-1-77"), (None, "0-1-5"), ("", "0-1-5")])
def test_a_log_that_never_rests_is_looked_up_by_place(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, expected: str
) -> None:
    ends = [at(offset) for offset in range(100, 300)]
    server = mysql(monkeypatch, end=ends, gtids=[executed("0-1-5", state="0-1-9")], at=[[{"gtids": answer}]])
    found = ask(MARIADB, settled=True)
    assert (found.gtids, found.state) == (expected, "0-1-9")
    asked = [args for sql, args in server.asked if STATEMENTS["at"] in sql]
    assert asked == [(f"db.bin.{found.end[0]:06}", found.end[1])]


def test_a_mysql_that_never_rests_answers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql(monkeypatch, end=[at(offset) for offset in range(100, 300)], gtids=[executed(f"{UUID}:1")])
    found = ask(MYSQL, settled=True)
    assert (found.end[0], found.gtids) == (8, f"{UUID}:1")
    assert 1 < server.count("gtids") < 150
    assert server.count("at") == 0


def test_a_server_without_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mysql(monkeypatch, end=[[]])
    with pytest.raises(UnsupportedLog, match="writes no binlog") as error:
        ask(MYSQL)
    assert "log_bin" in str(error.value.hint)
    mysql(monkeypatch, logs=[[]])
    with pytest.raises(UnsupportedLog, match="has no binlog"):
        ask(MYSQL)
    mysql(monkeypatch, logs=[[{"Log_name": "binlog.index", "File_size": 1}]])
    with pytest.raises(SourceUnavailable, match=r"is not valid .*binlog\.index") as nonsense:
        ask(MYSQL)
    assert nonsense.value.hint


def test_what_the_files_before_one_end_at(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        {"Event_type": "Format_desc", "End_log_pos": 256, "Info": "Server ver: 10.11"},
        {"Event_type": "Gtid_list", "End_log_pos": 299, "Info": "[0-1-5,\n1-1-2]"},
        {"Event_type": "Gtid", "End_log_pos": 350, "Info": "BEGIN GTID 0-1-6"},
    ]
    server = mysql(monkeypatch, events=[events], at=[[{"gtids": "0-1-5,\n1-1-2"}]])
    assert MARIADB.position_before(cast(Any, None), VIEW, 7) == "0-1-5,1-1-2"
    assert [args for _, args in server.asked] == [("db.bin.000007",), ("db.bin.000007", 299)]


def test_before_the_first_file_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql(monkeypatch, events=[[{"Event_type": "Format_desc", "End_log_pos": 256, "Info": ""}]])
    assert MARIADB.position_before(cast(Any, None), VIEW, 1) == ""
    assert server.count("at") == 0


def test_a_place_that_the_server_does_not_know_is_before_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    mysql(monkeypatch, events=[[{"Event_type": "Gtid_list", "End_log_pos": 299, "Info": "[]"}]], at=[[{"gtids": None}]])
    assert MARIADB.position_before(cast(Any, None), VIEW, 7) == ""


@pytest.mark.parametrize(
    ("end", "logs"),
    [
        (at(301), LOGS),
        (at(157, 9), LOGS),
        (at(157), LOGS[:1]),
        (at(157), LOGS[::-1]),
        (at(157), [*LOGS, LOGS[1]]),
    ],
)
def test_answers_that_contradict_each_other_are_not_believed(
    monkeypatch: pytest.MonkeyPatch, end: Rows, logs: Rows
) -> None:
    mysql(monkeypatch, end=[end], logs=[logs])
    with pytest.raises(SourceUnavailable, match="contradict") as error:
        ask(MYSQL)
    assert error.value.hint


def test_a_file_that_was_begun_while_it_was_asked_is_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    mysql(monkeypatch, logs=[[*LOGS, {"Log_name": "db.bin.000009", "File_size": 4}]])
    assert ask(MYSQL).end == (8, 157)
