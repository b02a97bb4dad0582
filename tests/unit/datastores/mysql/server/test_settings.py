"""What the settings and grants of a server permit, and the doctor's findings about them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datastores.mysql.doctor.existing_rows import findings
from datastores.mysql.server import peer_account
from datastores.mysql.server import settings as settings_module
from datastores.mysql.server.grants import SelectGrants, grant_for, parse_select_grants
from datastores.mysql.server.peer_account import doubt_local, owner
from datastores.mysql.server.required_settings import fatal, grant_to, refuse, required, to_set
from datastores.mysql.server.settings import (
    BinaryLog,
    Grant,
    LogPlace,
    ReplicaChannel,
    Settings,
    parse_grant,
    read_settings,
)
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError
from wormhole.model.findings import Severity

# --- settings ---


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


# --- grants: what an account may SELECT from, and the doctor's findings about it ---


REPLICATION = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `w`@`%`"


def held(*lines: str, literal: bool = False, folds: bool = False) -> SelectGrants:
    return parse_select_grants((REPLICATION, *lines), literal=literal, folds=folds)


@pytest.mark.parametrize("what", ["SELECT", "REPLICATION SLAVE, SELECT, INSERT", "ALL PRIVILEGES"])
def test_on_everything(what: str) -> None:
    for end in ("", " WITH GRANT OPTION", " IDENTIFIED BY PASSWORD '*8C32'"):
        found = held(f"GRANT {what} ON *.* TO `w`@`%`{end}")
        assert found.lacking(["*", "*.*", "shop.*", "shop.users", "s*.users"]) == []


def test_on_nothing() -> None:
    found = held("GRANT `reader`@`%` TO `w`@`%`", "GRANT USAGE ON *.* TO `w`@`%`", "GRANT PROXY ON ``@`` TO `w`@`%`",
                 "GRANT EXECUTE ON PROCEDURE `s`.`p` TO `w`@`%`", "GRANT INSERT ON `shop`.* TO `w`@`%`")  # fmt: skip
    assert found.lacking(["*", "shop.*", "shop.users"]) == ["*", "shop.*", "shop.users"]
    assert str(found) == "nothing"


def test_on_a_database() -> None:
    found = held("GRANT SELECT ON `shop`.* TO `w`@`%`")
    assert found.lacking(["shop.*", "shop.u?", "shop.users"]) == []
    assert found.lacking(["*", "shop", "s*.*", "shops.*", "Shop.users"]) == [
        "*",
        "shop",
        "s*.*",
        "shops.*",
        "Shop.users",
    ]
    assert held("GRANT SELECT ON `shop`.* TO `w`@`%`", folds=True).lacking(["Shop.users"]) == []
    assert str(found) == "shop.*"


def test_databases_with_wildcards_and_escapes() -> None:
    found = held(r"GRANT SELECT ON `my\_shop`.* TO `w`@`%`", "GRANT SELECT ON `a_c`.* TO `w`@`%`",
                 r"GRANT SELECT ON `log%`.* TO `w`@`%`", r"GRANT SELECT ON `100\%`.* TO `w`@`%`")  # fmt: skip
    assert found.lacking(["my_shop.*", "abc.*", "a_c.t", "log.x", "logs2026.*", "100%.*"]) == []
    assert found.lacking(["myXshop.*", "ac.*", "alog.x", "1000.*"]) == ["myXshop.*", "ac.*", "alog.x", "1000.*"]


def test_of_several_patterns_the_most_exact_one_counts_alone() -> None:
    found = held("GRANT SELECT ON `shop%`.* TO `w`@`%`", "GRANT INSERT ON `shop1`.* TO `w`@`%`",
                 "GRANT INSERT ON `s%`.* TO `w`@`%`")  # fmt: skip
    assert found.lacking(["shop1.t", "shop2.t", "sale.t"]) == ["shop1.t", "sale.t"]


def test_with_partial_revokes_wildcards_are_themselves() -> None:
    lines = ("GRANT SELECT ON *.* TO `w`@`%`", "REVOKE SELECT ON `pay`.* FROM `w`@`%`")
    assert held(*lines, literal=True).lacking(["*", "shop.*", "pay.cards"]) == ["*", "pay.cards"]
    assert held("GRANT SELECT ON `a_c`.* TO `w`@`%`", literal=True).lacking(["abc.t", "a_c.t"]) == ["abc.t"]


def test_on_tables_and_columns() -> None:
    found = held(
        "GRANT SELECT, INSERT ON `shop`.`users` TO `w`@`%`",
        "GRANT SELECT (`a`, `b)`), UPDATE ON `shop`.`half` TO `w`@`%`",
        'GRANT SELECT ON TABLE "o`dd"."a b" TO "w"@"%"',
        "GRANT SELECT ON `x ON y`.`a``b` TO `w`@`%`",
    )
    assert found.lacking(["shop.users", "o`dd.a b", "x ON y.a`b"]) == []
    assert found.lacking(["shop.half", "shop.*", "shop.userz"]) == ["shop.half", "shop.*", "shop.userz"]
    assert found.columns == {("shop", "half")}


def test_the_grant_that_is_missing() -> None:
    assert grant_for("*") == grant_for("s*.t") == grant_for("a") == "*.*"
    assert grant_for("my_shop.order*") == r"`my\_shop`.*"
    assert grant_for("my_shop.*", literal=True) == "`my_shop`.*"
    assert grant_for("my_shop.a`b") == "`my_shop`.`a``b`"


def test_the_doctor_names_what_cannot_be_seen_and_the_grant() -> None:
    one = changed(MYSQL, grant_lines=("GRANT SELECT ON `shop`.`users` TO `w`@`%`",
                                      "GRANT SELECT (`a`) ON `shop`.`half` TO `w`@`%`"))  # fmt: skip
    (found,) = findings(one, ["shop.users", "shop.half", "shop.order*"])
    assert (found.check, found.severity) == ("existing_rows", Severity.PROBLEM)
    assert "shop.half" in found.what
    assert "some columns only" in found.what
    assert "GRANT SELECT ON `shop`.`half` TO" in found.next_step
    assert "GRANT SELECT ON `shop`.* TO" in found.next_step
    assert [one.severity for one in findings(one, ["shop.users"])] == [Severity.OK]
    (found,) = findings(one, ())
    assert (found.severity, "sees no other table" in found.what) == (Severity.OK, True)
    (found,) = findings(changed(MARIADB, grant_lines=(REPLICATION,)), ["*"])
    assert "GRANT SELECT ON *.* TO" in found.next_step


# --- peer account ---


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listening:
        client = socket.create_connection(listening.getsockname()[:2])
        server, _ = listening.accept()
        with client, server:
            yield client, server


def test_the_owner_of_a_connection_on_this_host(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    assert owner(client) == os.geteuid()
    assert doubt_local(client) == ""


def test_a_connection_that_nobody_took_has_no_owner() -> None:
    # The kernel lists it as root's.
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        assert owner(client) is None
        assert doubt_local(client) is None


@pytest.mark.parametrize(
    ("uid", "name", "trusted"),
    [
        (0, "root", True),
        (os.geteuid(), "me", True),
        (27, "mysql", True),
        (112, "mariadb", True),
        (1000, "ada", False),
        (5, "", False),
    ],
)
def test_who_may_run_the_database(uid: int, name: str, trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_account, "owner", lambda _: uid)
    monkeypatch.setattr(peer_account, "_name", lambda _: name)
    with socket.socket() as any_socket:
        doubt = doubt_local(any_socket)
    assert doubt == "" if trusted else doubt is not None and f"runs as uid {uid}" in doubt


def test_a_socket_is_trusted_by_its_folder_or_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind(str(path))
        listening.listen()
        client.connect(str(path))
        assert owner(client) == os.geteuid()
        assert doubt_local(client, str(path)) == ""
        monkeypatch.setattr(peer_account, "owner", lambda _: 1000)
        tmp_path.chmod(0o755)
        assert doubt_local(client, str(path)) == ""
        tmp_path.chmod(0o1777)
        doubt = doubt_local(client, str(path))
        assert doubt is not None
        assert "runs as uid 1000" in doubt


def test_an_account_without_a_name() -> None:
    assert peer_account._name((1 << 31) - 7) == ""


# --- required settings ---


CHANNEL = ReplicaChannel("", "db1:3306", True, 0)


@pytest.mark.parametrize("settings", [MYSQL, MARIADB])
def test_a_server_as_it_should_be_is_not_refused(settings: Settings) -> None:
    assert fatal(settings) == []
    refuse(settings, "db1")
    assert {finding.severity for finding in required(settings)} == {Severity.OK}


@pytest.mark.parametrize(
    ("settings", "check", "says"),
    [
        (changed(MYSQL, variables={"log_bin": "OFF"}), "log_bin", "log_bin = binlog"),
        (changed(MYSQL, variables={"binlog_format": "MIXED"}), "binlog_format", "SET PERSIST binlog_format = 'ROW';"),
        (
            changed(MARIADB, variables={"binlog_format": "STATEMENT"}),
            "binlog_format",
            (
                "SET GLOBAL binlog_format = 'ROW';\nFLUSH BINARY LOGS;\n"
                "and in my.cnf under [mysqld]: binlog_format = ROW\n(sessions"
            ),
        ),
        (
            changed(MYSQL, variables={"binlog_row_metadata": "MINIMAL"}),
            "binlog_row_metadata",
            "SET PERSIST binlog_row_metadata = 'FULL';\nFLUSH BINARY LOGS;",
        ),
        (
            changed(MARIADB, variables={"binlog_row_metadata": "NO_LOG"}),
            "binlog_row_metadata",
            "'FULL';\nFLUSH BINARY LOGS;\nand in my.cnf under [mysqld]: binlog_row_metadata = FULL",
        ),
        (changed(MYSQL, "binlog_row_metadata", version_text="5.7.44"), "binlog_row_metadata", "upgrade the server"),
        (changed(MYSQL, server_id=0), "server_id", "SET PERSIST server_id = 1;"),
        (
            changed(MYSQL, variables={"log_replica_updates": "OFF"}, replicas=(CHANNEL,)),
            "log_replica_updates",
            "log_replica_updates = ON",
        ),
        (
            changed(MARIADB, variables={"log_slave_updates": "OFF"}, replicas=(CHANNEL,)),
            "log_slave_updates",
            "log_slave_updates = ON",
        ),
        (
            changed(MARIADB, variables={"log_slave_updates": "OFF", "wsrep_on": "ON"}),
            "log_slave_updates",
            "log_slave_updates = ON",
        ),
        (
            changed(MYSQL, grants=(Grant(frozenset({"SELECT"}), "*.*"),)),
            "grants",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'wormhole'@'%';",
        ),
        (
            changed(MARIADB, grants=(Grant(frozenset({"REPLICATION SLAVE"}), "*.*"),)),
            "grants",
            "GRANT BINLOG MONITOR ON *.* TO 'wormhole'@'%';",
        ),
        (
            changed(MYSQL, grants=(Grant(frozenset({"ALL PRIVILEGES"}), "shop.*"),)),
            "grants",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.*",
        ),
        (
            changed(MYSQL, account="@localhost", login="reader@localhost", grants=()),
            "account",
            (
                "DROP USER ''@'localhost';\nor, if it is needed, with the grants of docs/mysql.md:\n"
                "CREATE USER 'reader'@'localhost'"
            ),
        ),
    ],
)
def test_what_is_refused_and_what_to_run(settings: Settings, check: str, says: str) -> None:
    [finding] = fatal(settings)
    assert (finding.check, finding.severity) == (check, Severity.PROBLEM)
    assert says in finding.next_step
    with pytest.raises(UsageError if check in ("account", "grants") else UnsupportedLog) as caught:
        refuse(settings, "u@db1:3306")
    assert finding.what in caught.value.message
    assert finding.because in caught.value.message
    assert caught.value.hint == finding.next_step  # each statement to paste on a line of its own
    assert "\n" not in str(caught.value), "an error is one line of a log"
    assert caught.value.message.startswith("u@db1:3306: ")


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    settings = changed(MYSQL, variables={"binlog_format": "MIXED", "binlog_row_metadata": "MINIMAL"}, grants=())
    with pytest.raises(UnsupportedLog) as caught:
        refuse(settings, "db1")
    for part in ("binlog_format=MIXED", "binlog_row_metadata=MINIMAL", "lacks REPLICATION SLAVE"):
        assert part in caught.value.message
    for sql in ("binlog_format = 'ROW';", "binlog_row_metadata = 'FULL';", "GRANT REPLICATION SLAVE"):
        assert sql in (caught.value.hint or "")


def test_a_server_that_is_no_replica_need_not_log_what_comes_from_others() -> None:
    assert fatal(changed(MYSQL, variables={"log_replica_updates": "OFF"})) == []
    assert fatal(changed(MYSQL, variables={"log_replica_updates": "OFF"}, replicas=None)) == []


def test_a_variable_that_is_gone_is_as_its_last_default() -> None:
    assert fatal(changed(MYSQL, "binlog_format")) == []


def test_all_privileges_hold_the_others() -> None:
    assert fatal(changed(MYSQL, grants=(Grant(frozenset({"ALL PRIVILEGES"}), "*.*"),))) == []


def test_settings_are_made_where_the_flavour_makes_them() -> None:
    assert to_set(MYSQL, "x", "'A'") == "SET PERSIST x = 'A';"
    assert to_set(MARIADB, "x", "'A'") == "SET GLOBAL x = 'A';\nand in my.cnf under [mysqld]: x = A"
    amazon = changed(MYSQL, variables={"basedir": "/rdsdbbin/mysql-8.4.3.R1/"})
    assert to_set(amazon, "x", "'A'") == "in the instance's parameter group: x = A"


def test_the_account_is_as_the_server_knows_it() -> None:
    assert grant_to(changed(MYSQL, account="a@b@10.%"), "SELECT") == "GRANT SELECT ON *.* TO 'a@b'@'10.%';"
