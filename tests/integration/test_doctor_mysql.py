"""``wormholectl doctor`` against real servers: what is wrong with one, and that the SQL it prints puts it right."""

from __future__ import annotations

import json
import re
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from typer.testing import CliRunner

from datastores.mysql.server import handshake
from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect, login_of, query
from datastores.mysql.server.login import Login
from datastores.mysql.server.settings import read_settings
from datastores.mysql.server.url import TlsMode
from tests.support.certificates import Authority
from tests.support.databases import DURABLE, DatabaseServer, NewServer
from wormhole.model.errors import SourceUnavailable, UsageError
from wormholectl.app import app

_SQL = re.compile(r"(?:SET|GRANT|ALTER|FLUSH|DROP USER) [^;]+;")


class Doctor:
    """Asks ``wormholectl doctor`` of a server, with its account's password in a file."""

    def __init__(self, server: DatabaseServer, folder: Path) -> None:
        self.url = f"{server.flavour}://{server.user}@{server.host}:{server.port}"
        self.password_file = folder / "password"
        self.password_file.write_text(server.password)
        self.password_file.chmod(0o600)

    def run(self, *options: str, url: str = "") -> tuple[int, str]:
        result = CliRunner().invoke(
            app, ["doctor", url or self.url, "--password-file", str(self.password_file), *options]
        )
        assert "a hole" not in result.output
        return result.exit_code, result.output

    def report(self) -> tuple[int, dict[str, dict[str, Any]]]:
        code, output = self.run("--json")
        return code, {finding["check"]: finding for finding in json.loads(output)["findings"]}


@pytest.fixture
def doctor(database_server: DatabaseServer, tmp_path: Path) -> Doctor:
    return Doctor(database_server, tmp_path)


def follow(server: DatabaseServer, finding: dict[str, Any]) -> None:
    """What an administrator does with a finding: run the SQL in it."""
    statements = _SQL.findall(finding["next_step"])
    assert statements, finding
    server.sql(*statements)


def test_a_good_server(new_server: NewServer, tmp_path: Path) -> None:
    options = {name.replace("-", "_"): value for name, value in DURABLE.items()}
    server = new_server(**options)
    if server.flavour == "mariadb":
        server.sql(
            "SET GLOBAL gtid_strict_mode = ON", f"GRANT REPLICA MONITOR ON *.* TO '{server.user}'@'{server.host}'"
        )
        server.sql("GRANT INSERT, DROP ON test.* TO PUBLIC")
    else:
        server.sql(
            "CREATE ROLE everybody",
            "GRANT INSERT, DROP ON test.* TO everybody",
            "SET GLOBAL mandatory_roles = 'everybody', GLOBAL activate_all_roles_on_login = ON",
        )
    code, found = Doctor(server, tmp_path).report()
    assert code == 0
    assert [name for name, finding in found.items() if finding["severity"] != "ok"] == ["sql_log_bin"]


def test_what_it_says_to_a_person(doctor: Doctor, database_server: DatabaseServer) -> None:
    code, output = doctor.run()
    assert code == 0
    assert output.splitlines()[0] == doctor.url
    assert f"  account: {database_server.user}@127.0.0.1" in output
    assert "0 problems" in output
    # A young server shows only that the time at which its file was begun was read.
    assert re.search(r"log grows: (not measured: its binlog files are younger|.* sizes and times of \d)", output)


def test_what_is_broken_is_found_and_its_sql_repairs_it(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server()
    doctor = Doctor(server, tmp_path)
    broken = {
        "binlog_format": ("'MIXED'", "problem"),
        "binlog_row_metadata": ("'MINIMAL'", "problem"),
        "binlog_row_image": ("'NOBLOB'", "warn"),
        "binlog_checksum": ("'NONE'", "warn"),
        "sync_binlog": ("0", "warn"),
        "innodb_flush_log_at_trx_commit": ("2", "warn"),
        "max_allowed_packet": (str(256 << 20), "warn"),
    }
    server.sql(*(f"SET GLOBAL {name} = {value}" for name, (value, _) in broken.items()))
    server.sql("SET GLOBAL binlog_expire_logs_seconds = 3600")
    code, found = doctor.report()
    assert code == 1
    wrong = {name: severity for name, (_, severity) in broken.items()} | {"retention": "warn"}
    assert {name: found[name]["severity"] for name in wrong} == wrong
    for name in wrong:
        follow(server, found[name])
    code, found = doctor.report()
    assert code == 0
    assert {found[name]["severity"] for name in wrong} == {"ok"}


def test_gtids_are_turned_on_by_the_steps_it_prints(tmp_path: Path, new_server: NewServer, flavour: str) -> None:
    server = new_server(**({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if flavour == "mysql" else {}))
    check = "gtid_mode" if flavour == "mysql" else "gtid_strict_mode"
    doctor = Doctor(server, tmp_path)
    _, found = doctor.report()
    assert found[check]["severity"] == "warn"
    follow(server, found[check])
    assert doctor.report()[1][check]["severity"] == "ok"


def test_a_server_without_a_log(new_server: NewServer, flavour: str, tmp_path: Path) -> None:
    server = new_server(**({"skip_log_bin": None} if flavour == "mysql" else {"log_bin": "OFF", "skip_log_bin": None}))
    doctor = Doctor(server, tmp_path)
    code, found = doctor.report()
    assert (code, found["log_bin"]["severity"]) == (1, "problem")
    assert "retention" not in found
    assert "may not see" not in doctor.run()[1]


@pytest.mark.parametrize("grants", ["USAGE", "SELECT", "REPLICATION SLAVE"])
def test_missing_grants_are_printed_and_enough(
    grants: str, database_server: DatabaseServer, doctor: Doctor, tmp_path: Path
) -> None:
    server = database_server
    user = f"poor_{grants.split()[0].lower()}"
    server.sql(
        f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY '{server.password}'",
        f"GRANT {grants} ON *.* TO '{user}'@'127.0.0.1'",
    )
    try:
        doctor.url = doctor.url.replace(server.user, user)
        code, found = doctor.report()
        assert (code, found["grants"]["severity"]) == (1, "problem")
        for name in ("grants", "replica", "select"):
            if name in found and found[name]["severity"] != "ok":
                follow(server, found[name])
        code, found = doctor.report()
        assert (code, found["grants"]["severity"], found["replica"]["severity"] if "replica" in found else "ok") == (
            0,
            "ok",
            "ok",
        )
        assert "select" not in found
    finally:
        server.sql(f"DROP USER '{user}'@'127.0.0.1'")


def test_tables_as_an_account_with_select_alone_sees_them(database_server: DatabaseServer, doctor: Doctor) -> None:
    server = database_server
    server.sql(
        "CREATE DATABASE doctor_tables",
        "CREATE TABLE doctor_tables.users (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE doctor_tables.orders (id INT PRIMARY KEY, user INT, CONSTRAINT of_user FOREIGN KEY (user)"
        " REFERENCES doctor_tables.users (id) ON DELETE CASCADE) ENGINE=InnoDB",
        "CREATE TABLE doctor_tables.keyless (a INT UNIQUE) ENGINE=InnoDB",
        "CREATE TABLE doctor_tables.natural_key (a INT NOT NULL UNIQUE) ENGINE=InnoDB",
        "CREATE TABLE doctor_tables.unsafe (id INT PRIMARY KEY, t VARCHAR(9) CHARACTER SET dec8) ENGINE=MyISAM",
        "CREATE VIEW doctor_tables.v AS SELECT id FROM doctor_tables.users",
    )
    try:
        _, found = doctor.report()
        assert "doctor_tables.keyless" in found["primary_key"]["what"]
        assert "doctor_tables.users" not in found["primary_key"]["what"]
        assert "doctor_tables.natural_key" not in found["primary_key"]["what"]
        assert "doctor_tables.v" not in found["primary_key"]["what"]
        assert "doctor_tables.unsafe" in found["engine"]["what"]
        assert "doctor_tables.unsafe.t (dec8)" in found["character_set"]["what"]
        for name in ("primary_key", "engine", "character_set"):
            follow(server, found[name])
        if found["foreign_keys"]["severity"] != "ok":
            assert "doctor_tables.orders.of_user (ON DELETE CASCADE, from users)" in found["foreign_keys"]["what"]
            follow(server, found["foreign_keys"])
        _, found = doctor.report()
        assert {found[name]["severity"] for name in ("primary_key", "engine", "foreign_keys")} == {"ok"}
        assert "character_set" not in found
    finally:
        server.sql("DROP DATABASE doctor_tables")


def test_what_it_says_of_cascades_is_what_the_server_does(database_server: DatabaseServer, doctor: Doctor) -> None:
    server = database_server
    server.sql(
        "CREATE DATABASE doctor_cascades",
        "CREATE TABLE doctor_cascades.users (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE doctor_cascades.orders (id INT PRIMARY KEY, user INT, FOREIGN KEY (user)"
        " REFERENCES doctor_cascades.users (id) ON DELETE CASCADE) ENGINE=InnoDB",
        "INSERT INTO doctor_cascades.users VALUES (1)",
        "INSERT INTO doctor_cascades.orders VALUES (1, 1)",
        "FLUSH BINARY LOGS",
        "DELETE FROM doctor_cascades.users",
    )
    try:
        file = server.sql("SHOW BINARY LOGS")[-1][0]
        events = server.sql(f"SHOW BINLOG EVENTS IN '{file}'")
        # The child is mapped in any case, since it is locked; what counts is whether its rows follow.
        tables = {number_in(info): info for _, _, kind, _, _, info in events if kind == "Table_map"}
        changed = {tables[number_in(info)] for _, _, kind, _, _, info in events if kind.startswith("Delete_rows")}
        assert any("doctor_cascades.users" in table for table in changed)
        logged = any("doctor_cascades.orders" in table for table in changed)
        _, found = doctor.report()
        assert found["foreign_keys"]["severity"] == ("ok" if logged else "problem")
    finally:
        server.sql("DROP DATABASE doctor_cascades")


def number_in(info: str) -> int:
    found = re.match(r"table_id: (\d+)", info)
    assert found
    return int(found[1])


def test_a_wrong_account_is_a_wrong_request(doctor: Doctor) -> None:
    doctor.password_file.write_text("guessed")
    code, output = doctor.run()
    assert code == 2
    assert f"the password came from {doctor.password_file}" in output
    assert "guessed" not in output
    code, output = doctor.run(url=doctor.url.replace("wormhole@", "nobody@"))
    assert (code, "the server refuses the account" in output) == (2, True)
    code, output = doctor.run(url=f"{doctor.url}/shop")
    assert (code, "one log for all its databases" in output) == (2, True)


def test_an_anonymous_account_shadows_the_one_that_is_meant(database_server: DatabaseServer, doctor: Doctor) -> None:
    server = database_server
    doctor.url = doctor.url.replace(server.user, "shadowed")
    grants = "REPLICATION CLIENT" if server.flavour == "mysql" else "BINLOG MONITOR, REPLICA MONITOR"
    server.sql(
        f"CREATE USER 'shadowed'@'%' IDENTIFIED BY '{server.password}'",
        f"GRANT SELECT, REPLICATION SLAVE, {grants} ON *.* TO 'shadowed'@'%'",
        "CREATE USER ''@'127.0.0.1'",
    )
    try:
        code, output = doctor.run()
        text = " ".join(output.split())
        assert (code, "the server refuses the account" in text) == (2, True)
        shown = re.search(r"SELECT User, Host FROM mysql.user WHERE User IN \('', 'shadowed'\);", text)
        assert shown
        assert {("", "127.0.0.1"), ("shadowed", "%")} == {tuple(map(str, row)) for row in server.sql(shown[0])}
        assert "DROP USER ''@'127.0.0.1';" in text
        # Without a password the server lets the login in, as the anonymous account.
        result = CliRunner().invoke(app, ["doctor", doctor.url, "--json"])
        found = {finding["check"]: finding for finding in json.loads(result.output)["findings"]}
        assert (result.exit_code, "grants" in found, "TO ''@" in result.output) == (1, False, False)
        assert "the login as 'shadowed' got the anonymous account ''@'127.0.0.1'" in found["account"]["what"]
        follow(server, found["account"])
        code, found = doctor.report()
        assert (code, found["grants"]["severity"], "account" in found) == (0, "ok", False)
    finally:
        server.sql("DROP USER IF EXISTS 'shadowed'@'%'", "DROP USER IF EXISTS ''@'127.0.0.1'")


def test_a_server_that_is_not_there(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    code, output = doctor.run(url=f"mysql://wormhole@127.0.0.1:{port}")
    assert code == 3
    assert "refused" in output


def test_a_password_in_the_url_works_and_is_warned_about(database_server: DatabaseServer, doctor: Doctor) -> None:
    url = doctor.url.replace("wormhole@", "wormhole:a%20hole@")
    result = CliRunner().invoke(app, ["doctor", url])
    assert result.exit_code == 0
    assert "warning: a password on the command line" in result.stderr
    assert "hole@" not in result.output.replace("wormhole@", "")
    assert "a%20hole" not in result.output


def test_tls(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server()
    files = Authority(server.folder / "tls").issue("db1")
    other = Authority(tmp_path / "other").issue("db1")
    server.restart(ssl_ca=server.seen(files.ca), ssl_cert=server.seen(files.cert), ssl_key=server.seen(files.key))

    def cipher(tls: TlsMode, ca: Path | None = None) -> str:
        # What caching_sha2_password has seen is forgotten with this: the whole exchange takes place, without TLS by
        # RSA.
        server.sql("FLUSH PRIVILEGES")
        address = Address(server.host, server.port, server.user, server.password, tls=tls, ca=str(ca) if ca else None)
        with closing(connect(address)) as connection:
            assert query(connection, "SELECT 'x%s' AS x, CHAR(0xC3A9 USING utf8mb4) AS e") == [{"x": "x%s", "e": "é"}]
            return read_settings(connection).tls

    assert cipher("off") == ""
    assert cipher("prefer")
    assert cipher("require")
    assert cipher("verify-ca", files.ca)
    assert cipher("verify", files.ca)
    for mode in ("verify-ca", "verify"):
        with pytest.raises(UsageError, match="certificate is not accepted"):
            cipher(mode, other.ca)


def test_from_another_host_the_password_needs_a_proof(
    mysql_server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server, as if no process of this host answered."""
    server = mysql_server
    monkeypatch.setattr(handshake, "doubt_local", lambda *_: None)
    key = tmp_path / "public_key.pem"
    [[_, pem]] = server.sql("SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'")
    key.write_text(str(pem))

    def login(*, forgotten: bool, **options: Any) -> Login:
        if forgotten:
            server.sql("FLUSH PRIVILEGES")
        with closing(connect(Address(server.host, server.port, server.user, server.password, **options))) as connection:
            return login_of(connection)

    for tls in ("off", "prefer", "require"):
        with pytest.raises(UsageError, match="asks for the password itself") as error:
            login(forgotten=True, tls=tls)
        assert server.password not in str(error.value)
        assert "/?tls=verify&ca=" in str(error.value.hint)
        assert login(forgotten=True, tls=tls, exposed=True).gave_password
        known = login(forgotten=False, tls=tls)
        assert not known.gave_password
        assert known.risk(), "it works until the server forgets, which doctor reports"
    assert login(forgotten=True, tls="off", server_public_key=str(key)).gave_password
    ca = server.data / "ca.pem"
    assert login(forgotten=True, tls="verify-ca", ca=str(ca)).gave_password
    own = server.data / "server-cert.pem"
    assert login(forgotten=True, tls="verify-ca", ca=str(own)).gave_password, "pinned"


def test_a_socket(database_server: DatabaseServer) -> None:
    server = database_server
    server.sql("CREATE USER 'by_socket'@'localhost' IDENTIFIED BY 'a hole'")
    try:
        address = Address("localhost", 3306, "by_socket", "a hole", socket=str(server.socket))
        for _ in range(2):  # the whole exchange of caching_sha2_password, and the short one
            connection = connect(address)
            assert query(connection, "SELECT CURRENT_USER() AS u") == [{"u": "by_socket@localhost"}]
            connection.close()
    finally:
        server.sql("DROP USER 'by_socket'@'localhost'")


def test_a_connection_that_is_killed_passes_by_itself(database_server: DatabaseServer) -> None:
    server = database_server
    connection = connect(Address(server.host, server.port, server.user, server.password))
    [thread] = query(connection, "SELECT CONNECTION_ID() AS id")
    server.sql(f"KILL {thread['id']}")
    with pytest.raises(SourceUnavailable):
        query(connection, "SELECT 1")
    with pytest.raises(SourceUnavailable):
        query(connection, "SELECT 1")
    with pytest.raises(pymysql.Error):
        connection.ping(reconnect=False)
