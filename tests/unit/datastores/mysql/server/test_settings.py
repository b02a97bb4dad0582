from __future__ import annotations

from typing import Any

import pytest

from datastores.mysql.server import settings as settings_module
from datastores.mysql.server.settings import (
    BinaryLog,
    Grant,
    LogPlace,
    ReplicaChannel,
    parse_grant,
    read_settings,
)
from tests.support.mysql_settings import MYSQL, changed
from wormhole.model.errors import SourceUnavailable, UsageError

Rows = list[dict[str, Any]]


class Server:
    """Answers the statements of one reading; a missing one is refused for want of a privilege."""

    def __init__(self, variables: dict[str, str], answers: dict[str, Rows]) -> None:
        rows = [{"Variable_name": name, "Value": value} for name, value in variables.items()]
        self.answers = {
            "SHOW GLOBAL VARIABLES": rows,
            "SELECT CURRENT_USER() AS account, USER() AS login": [{"account": "wormhole@%", "login": "wormhole@db7"}],
            "SELECT CURRENT_ROLE() AS role": [{"role": "NONE"}],
            "SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_%\\_clients'": [],
            "SHOW SESSION STATUS LIKE 'Ssl\\_cipher'": [{"Variable_name": "Ssl_cipher", "Value": "TLS_X"}],
            **answers,
        }

    def query(self, _: object, sql: str) -> Rows:
        if sql not in self.answers:
            raise UsageError("a privilege is missing")
        return self.answers[sql]


STATUS = {"File": "binlog.000002", "Position": 157, "Binlog_Do_DB": "", "Binlog_Ignore_DB": "test"}
LOGS: Rows = [
    {"Log_name": "binlog.000001", "File_size": 10, "Encrypted": "No"},
    {"Log_name": "binlog.000002", "File_size": 157},
]
GRANT = "GRANT SELECT, REPLICATION SLAVE ON *.* TO `wormhole`@`%`"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def mysql(version: str = "8.4.3", answers: dict[str, Rows] | None = None) -> Server:
    variables = {"version": version, "log_bin": "ON", "server_id": "7", "server_uuid": UUID}
    variables |= {"gtid_executed": f"{UUID}:1-5,\n4{UUID[1:]}:1", "gtid_purged": f"{UUID}:1-2"}
    return Server(
        variables,
        {
            "SHOW BINARY LOG STATUS": [STATUS],
            "SHOW BINARY LOGS": LOGS,
            "SHOW REPLICA STATUS": [],
            "SHOW GRANTS": [{"Grants for wormhole@%": GRANT}],
            **(answers or {}),
        },
    )


def read(server: Server, monkeypatch: pytest.MonkeyPatch) -> settings_module.Settings:
    monkeypatch.setattr(settings_module, "query", server.query)
    return read_settings(None)  # type: ignore[arg-type]  # the statements are answered above


def test_a_mysql(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(mysql(), monkeypatch)
    assert (found.flavour, found.version, found.server_uuid, found.server_id) == ("mysql", (8, 4, 3), UUID, 7)
    assert (found.gtid_executed, found.gtid_purged) == (f"{UUID}:1-5,4{UUID[1:]}:1", f"{UUID}:1-2")
    assert found.place == LogPlace("binlog.000002", 157, "", "test")
    assert found.logs == (BinaryLog("binlog.000001", 10), BinaryLog("binlog.000002", 157))
    assert found.grants == (Grant(frozenset({"SELECT", "REPLICATION SLAVE"}), "*.*"),)
    assert (found.replicas, found.denied, found.tls) == ((), (), "TLS_X")
    assert (found.account, found.login, found.anonymous) == ("wormhole@%", "wormhole@db7", False)


def test_the_names_before_8_2(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql("8.0.20")
    del server.answers["SHOW BINARY LOG STATUS"], server.answers["SHOW REPLICA STATUS"]
    row: dict[str, Any] = {"Slave_IO_Running": "Yes", "Slave_SQL_Running": "Yes", "Seconds_Behind_Master": 3}
    row |= {"Master_Host": "db0", "Master_Port": 3306, "Channel_Name": "c"}
    server.answers |= {"SHOW MASTER STATUS": [STATUS], "SHOW SLAVE STATUS": [row]}
    found = read(server, monkeypatch)
    assert found.place
    assert found.replicas == (ReplicaChannel("c", "db0:3306", True, 3),)


def test_a_replica_whose_thread_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {
        "Replica_IO_Running": "Connecting",
        "Replica_SQL_Running": "Yes",
        "Seconds_Behind_Source": None,
    }
    row |= {"Source_Host": "db0", "Source_Port": 3306}
    found = read(mysql(answers={"SHOW REPLICA STATUS": [row]}), monkeypatch)
    assert found.replicas == (ReplicaChannel("", "db0:3306", False, None),)


def test_what_an_active_role_brings_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql(answers={"SELECT CURRENT_ROLE() AS role": [{"role": "`reader`@`%`"}]})
    server.answers["SHOW GRANTS FOR CURRENT_USER() USING `reader`@`%`"] = [
        {"x": "GRANT REPLICATION CLIENT ON *.* TO `u`@`%`"}
    ]
    assert read(server, monkeypatch).grants == (Grant(frozenset({"REPLICATION CLIENT"}), "*.*"),)


@pytest.mark.parametrize("mandatory", ["every", "'every'@'%', `o,r`@`h`", '`o,r`@`h`,"every"@%'])
def test_what_a_mandatory_role_brings_is_everybodys(mandatory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql(answers={"SELECT CURRENT_ROLE() AS role": [{"role": "`every`@`%`,`reader`@`%`"}]})
    server.answers["SHOW GLOBAL VARIABLES"].append({"Variable_name": "mandatory_roles", "Value": mandatory})
    server.answers["SHOW GRANTS FOR `wormhole`@`%` USING `reader`@`%`"] = [{"x": GRANT}]
    server.answers["SHOW GRANTS FOR CURRENT_USER() USING `every`@`%`,`reader`@`%`"] = [
        {"x": "GRANT DROP ON `test`.* TO `u`@`%`"}
    ]
    assert read(server, monkeypatch).grants == (
        Grant(frozenset({"SELECT", "REPLICATION SLAVE"}), "*.*"),
        Grant(frozenset({"DROP"}), "test.*", public=True),
    )


def test_a_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"version": "10.11.6-MariaDB-1:10.11.6+maria~deb12-log", "log_bin": "ON", "server_id": "7"}
    variables |= {"gtid_binlog_pos": "0-1-5", "gtid_binlog_state": "0-2-3,0-1-5", "server_uuid": "none of its own"}
    answers: dict[str, Rows] = {
        "SHOW MASTER STATUS": [STATUS],
        "SHOW BINARY LOGS": LOGS,
        "SHOW GRANTS": [{"x": GRANT + " IDENTIFIED BY PASSWORD '*8C32'"}],
        "SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_%\\_clients'": [{"Variable_name": "x", "Value": "2"}],
    }
    found = read(Server(variables, answers), monkeypatch)
    assert (found.flavour, found.version, found.server_uuid) == ("mariadb", (10, 11, 6), "")
    assert (found.gtid_binlog_pos, found.gtid_binlog_state) == ("0-1-5", "0-2-3,0-1-5")
    assert (found.replicas, found.denied, found.semi_sync_clients) == (None, ("SHOW ALL SLAVES STATUS",), 2)
    assert found.grants[0].scope == "*.*"


def test_without_a_log_nothing_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({"version": "8.4.3", "log_bin": "OFF"}, {"SHOW GRANTS": [], "SHOW REPLICA STATUS": []})
    found = read(server, monkeypatch)
    assert (found.place, found.logs, found.denied) == (None, (), ())


def test_what_is_refused_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mysql()
    del server.answers["SHOW BINARY LOG STATUS"], server.answers["SHOW BINARY LOGS"]
    found = read(server, monkeypatch)
    assert (found.place, found.logs) == (None, ())
    assert found.denied == ("SHOW BINARY LOG STATUS", "SHOW BINARY LOGS")


def test_what_breaks_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object, sql: str) -> Rows:
        raise SourceUnavailable("gone")

    monkeypatch.setattr(settings_module, "query", gone)
    with pytest.raises(SourceUnavailable):
        read_settings(None)  # type: ignore[arg-type]
    with pytest.raises(SourceUnavailable, match="its version is 'X'"):
        read(mysql("X"), monkeypatch)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GRANT USAGE ON *.* TO `u`@`%`", Grant(frozenset({"USAGE"}), "*.*")),
        (
            "GRANT ALL PRIVILEGES ON `shop`.* TO `u`@`%` WITH GRANT OPTION",
            Grant(frozenset({"ALL PRIVILEGES"}), "shop.*"),
        ),
        ("GRANT SELECT (`a`, `b`), INSERT ON `s`.`t` TO `u`@`%`", Grant(frozenset({"INSERT"}), "s.t")),
        ("GRANT EXECUTE ON PROCEDURE `s`.`p` TO `u`@`%`", Grant(frozenset({"EXECUTE"}), "s.p")),
        ("GRANT `reader`@`%` TO `u`@`%`", None),
        ("GRANT DROP ON `test`.* TO PUBLIC", Grant(frozenset({"DROP"}), "test.*", public=True)),
        ("GRANT DROP ON `test`.* TO `PUBLIC`@`%`", Grant(frozenset({"DROP"}), "test.*")),
        ("GRANT PROXY ON ``@`` TO `u`@`%`", Grant(frozenset({"PROXY"}), "@")),
    ],
)
def test_grants(text: str, expected: Grant | None) -> None:
    assert parse_grant(text) == expected


def test_variables_by_the_first_name_that_is_there() -> None:
    settings = changed(MYSQL, variables={"a": "on", "b": "12", "c": "0.5", "d": "x"})
    assert (settings.variable("z", "b", "a"), settings.variable("z"), settings.variable("z", default="1")) == (
        "12",
        "",
        "1",
    )
    assert (settings.flag("a"), settings.flag("b"), settings.flag("z")) == (True, False, False)
    assert [settings.number(name) for name in "abcdz"] == [0, 12, 0, 0, 0]
    assert settings.number("d", default=3) == 3
