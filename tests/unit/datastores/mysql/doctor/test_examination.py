from __future__ import annotations

from typing import Any

import pytest

from datastores.mysql.doctor import examination as doctor
from datastores.mysql.doctor import tables as mysql_tables
from datastores.mysql.doctor.tables import TableFacts
from datastores.mysql.server.address import Address
from datastores.mysql.server.login import Login
from datastores.mysql.server.settings import Settings
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.findings import Finding, Report, SeenTable, Severity

ACCEPTED = Login(Address("db1", 3306, "u", "x"), secure=True, doubt=lambda: "")
FAR = Address("db1", 3306, "wormhole", "top secret", tls="verify")


class Connection:
    closed = False

    def close(self) -> None:
        self.closed = True


def check(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings = MYSQL,
    address: Address = FAR,
    tables: tuple[TableFacts, ...] = (),
    login: Login | None = None,
) -> Report:
    connection = Connection()

    def connect(_: Address, **__: Any) -> Connection:
        return connection

    monkeypatch.setattr(doctor, "connect", connect)
    monkeypatch.setattr(doctor, "login_of", lambda _: login or ACCEPTED)
    monkeypatch.setattr(doctor, "show_all", lambda _: None)
    monkeypatch.setattr(doctor, "read_settings", lambda _: settings)
    monkeypatch.setattr(mysql_tables, "read_tables", lambda _: list(tables))
    report = doctor.check(address)
    assert connection.closed
    assert "top secret" not in report.to_json()
    return report


def finding(report: Report, check: str) -> Finding:
    return next(finding for finding in report.findings if finding.check == check)


@pytest.mark.parametrize(("settings", "server"), [(MYSQL, "MySQL 8.4.3"), (MARIADB, "MariaDB 10.11.6-MariaDB-log")])
def test_a_server_as_it_should_be(settings: Settings, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(monkeypatch, settings)
    assert report.severity is Severity.WARN, "sql_log_bin can never be seen"
    assert report.facts["server"] == server
    assert report.facts["log ends at"] == "binlog.000002:157"
    assert report.facts["GTID"]
    assert report.url == "mysql://wormhole@db1:3306"
    names = [found.check for found in report.findings]
    assert {
        "binlog_format",
        "grants",
        "gtid_mode" if settings is MYSQL else "gtid_strict_mode",
        "primary_key",
        "tls",
    } <= {*names}


def test_what_is_refused_and_what_is_in_tables_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(
        monkeypatch,
        changed(MYSQL, variables={"binlog_format": "MIXED"}),
        tables=(TableFacts("shop", "t", key_columns=0),),
    )
    assert report.severity is Severity.PROBLEM
    assert finding(report, "binlog_format").severity is Severity.PROBLEM
    assert finding(report, "primary_key").severity is Severity.WARN
    assert report.tables == [SeenTable("shop", "t", key_columns=0)]


@pytest.mark.parametrize(
    ("address", "cipher", "severity", "says"),
    [
        (FAR, "TLS_X", Severity.OK, "the certificate is checked (tls=verify)"),
        (Address("db1", 3306, "u", tls="prefer"), "TLS_X", Severity.WARN, "certificate is not checked"),
        (Address("db1", 3306, "u", tls="prefer"), "", Severity.WARN, "the connection is not encrypted"),
        (Address("127.0.0.1", 3306, "u"), "", Severity.OK, "stays on this host"),
        (Address("::1", 3306, "u"), "", Severity.OK, "stays on this host"),
        (Address("localhost", 3306, "u"), "", Severity.OK, "stays on this host"),
        (Address("db1", 3306, "u", socket="/run/x.sock"), "", Severity.OK, "stays on this host"),
    ],
)
def test_the_way_to_the_server(
    address: Address, cipher: str, severity: Severity, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = finding(check(monkeypatch, changed(MYSQL, tls=cipher), address), "tls")
    assert found.severity is severity
    assert says in found.what


def test_how_the_password_was_given_is_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("localhost", 3306, "u", remarks=("/p can be read by every user of this host",))
    assert finding(check(monkeypatch, address=address), "password").severity is Severity.WARN


def test_who_may_get_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("db1", 3306, "u", "x")
    login = Login(address, secure=True, doubt=lambda: "its certificate is not checked (tls=prefer)")
    login.begin("caching_sha2_password", b"1" * 20)
    found = finding(check(monkeypatch, address=address, login=login), "password")
    assert found.severity is Severity.WARN
    assert "knew the password from an earlier login (caching_sha2_password); its certificate" in found.what
    assert 'source = "mysql://u@db1:3306/?tls=verify&ca=' in found.next_step
    assert "password" not in [found.check for found in check(monkeypatch, address=address).findings]
