"""What ``doctor`` reports of a server, of its tables and of how fast its log grows."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from datastores.mysql.doctor import examination as doctor
from datastores.mysql.doctor import tables as mysql_tables
from datastores.mysql.doctor.growth import begun_s, growth_of, measure_growth
from datastores.mysql.doctor.tables import Cascade, TableFacts, findings, parse_cascades, read_tables
from datastores.mysql.server.address import Address
from datastores.mysql.server.login import Login
from datastores.mysql.server.settings import BinaryLog, Settings
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError
from wormhole.model.findings import Finding, Report, SeenTable, Severity

# --- examination ---


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


# --- tables ---


OK, WARN, PROBLEM = Severity.OK, Severity.WARN, Severity.PROBLEM
USERS = TableFacts("shop", "users")
CASCADE = Cascade("fk", "users", "ON DELETE CASCADE")


def examine(*tables: TableFacts, settings: Settings = MYSQL) -> dict[str, Finding]:
    found = list(findings(settings, tables))
    for finding in found:
        assert finding.severity is OK or (finding.because and finding.next_step)
    return {finding.check: finding for finding in found}


def test_tables_as_they_should_be() -> None:
    assert {finding.severity for finding in examine(USERS).values()} == {OK}
    assert {finding.severity for finding in examine().values()} == {OK}


def test_a_table_without_a_key() -> None:
    keyless = [TableFacts("shop", f"log`{i}", key_columns=0) for i in range(7)]
    finding = examine(*keyless)["primary_key"]
    assert finding.severity is WARN
    assert "shop.log`0, shop.log`1" in finding.what
    assert finding.what.endswith("and 2 more")
    assert "ALTER TABLE `shop`.`log``0` ADD COLUMN my_row_id" in finding.next_step
    assert "INVISIBLE" in finding.next_step
    assert "INVISIBLE" not in examine(*keyless, settings=MARIADB)["primary_key"].next_step


@pytest.mark.parametrize(
    ("settings", "severity"),
    [
        (MYSQL, PROBLEM),
        (MARIADB, PROBLEM),
        (changed(MARIADB, version=(11, 8, 1)), PROBLEM),
        (changed(MYSQL, version=(9, 5, 0)), PROBLEM),
        (changed(MYSQL, version=(9, 6, 0)), OK),
        (changed(MYSQL, version=(9, 6, 0), variables={"innodb_native_foreign_keys": "ON"}), PROBLEM),
    ],
)
def test_cascades_are_in_the_log_or_not(settings: Settings, severity: Severity) -> None:
    orders = TableFacts("shop", "orders", cascades=(CASCADE,))
    finding = examine(USERS, orders, settings=settings)["foreign_keys"]
    assert finding.severity is severity
    if severity is PROBLEM:
        assert "shop.orders.fk (ON DELETE CASCADE, from users)" in finding.what
        assert "ALTER TABLE `shop`.`orders` DROP FOREIGN KEY `fk`;" in finding.next_step


def test_engines() -> None:
    finding = examine(USERS, TableFacts("shop", "old", "MyISAM"))["engine"]
    assert (finding.severity, finding.next_step) == (WARN, "ALTER TABLE `shop`.`old` ENGINE = InnoDB;")
    assert "empty after a restart" in examine(TableFacts("shop", "m", "MEMORY"))["engine"].because
    assert examine(TableFacts("shop", "r", "ROCKSDB"))["engine"].severity is OK


def test_character_sets() -> None:
    finding = examine(USERS, replace(USERS, table="t", unreadable=("c (dec8)",)))["character_set"]
    assert finding.severity is WARN
    assert "shop.t.c (dec8)" in finding.what
    assert finding.next_step == "ALTER TABLE `shop`.`t` CONVERT TO CHARACTER SET utf8mb4;"


CREATE = """CREATE TABLE `orders` (
  `id` int NOT NULL COMMENT 'CONSTRAINT `no` FOREIGN KEY (`a`) REFERENCES `b` (`c`) ON DELETE CASCADE',
  `a` int DEFAULT NULL,
  PRIMARY KEY (`id`),
  CONSTRAINT `plain` FOREIGN KEY (`a`) REFERENCES `users` (`id`),
  CONSTRAINT `none` FOREIGN KEY (`a`) REFERENCES `users` (`id`) ON DELETE RESTRICT ON UPDATE NO ACTION,
  CONSTRAINT `both` FOREIGN KEY (`a`, `id`) REFERENCES `users` (`id`, `b`) ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT `od``d` FOREIGN KEY (`a`) REFERENCES `other`.`users` (`id`) ON DELETE RESTRICT ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"""


def test_the_rules_of_foreign_keys_are_read_from_the_table() -> None:
    assert parse_cascades(CREATE) == (
        Cascade("both", "users", "ON DELETE SET NULL ON UPDATE CASCADE"),
        Cascade("od`d", "other.users", "ON UPDATE CASCADE"),
    )


def test_tables_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(_: object, sql: str, args: Any = (), **__: Any) -> list[dict[str, Any]]:
        orders = {"db": "shop", "tab": "orders"}
        if sql.startswith("SHOW CREATE TABLE"):
            assert sql == "SHOW CREATE TABLE `shop`.`orders`"
            return [{"Table": "orders", "Create Table": CREATE}]
        if "column_key" in sql:
            return [orders, orders]
        if "key_column_usage" in sql:
            return [orders]
        if "character_set_name IN" in sql:
            return [{"db": "shop", "tab": "old", "col": "c", "charset": "dec8"}]
        return [
            {**orders, "engine": "InnoDB", "amount": 7},
            {"db": "shop", "tab": "old", "engine": None, "amount": None},
        ]

    monkeypatch.setattr(mysql_tables, "query", query)
    orders, old = read_tables(None)  # type: ignore[arg-type]  # the statements are answered above
    assert orders == TableFacts("shop", "orders", "InnoDB", 2, parse_cascades(CREATE), rows=7)
    assert old == TableFacts("shop", "old", "unknown", 0, unreadable=("c (dec8)",))


# --- growth: how fast a binlog grows: from sizes, and from the times at which a few files were begun ---


HOUR = 3600.0
NOW = 1000 * HOUR


def grown(*hours_ago: float) -> tuple[int, float, str, int]:
    """Files of 10 bytes each, begun so long ago, ascending; with how many were asked for."""
    files = [BinaryLog(f"binlog.{number:06}", 10) for number, _ in enumerate(hours_ago)]
    asked: list[str] = []

    def begun(file: BinaryLog) -> float:
        asked.append(file.name)
        return NOW - hours_ago[files.index(file)] * HOUR

    found = growth_of(files, begun, NOW)
    return found.bytes, found.seconds / HOUR, found.how or found.unknown, len(asked)


def test_what_was_written_in_about_a_day() -> None:
    assert grown(72, 48, 30, 20, 10, 1)[:3] == (40, 30.0, "sizes and times of 4 binlog files")
    assert grown(20, 10, 1)[:3] == (30, 20.0, "sizes and times of 3 binlog files")
    assert grown(100)[:3] == (10, 100.0, "sizes and times of 1 binlog file")


def test_few_files_are_read_of_many() -> None:
    assert grown(*(float(hour) for hour in range(1000, 0, -1)))[3] < 15


def test_what_cannot_be_measured_says_why() -> None:
    assert grown()[2] == "the account may not see the binlog files"
    assert grown(0.1)[2] == "its binlog files are younger than ten minutes"


def test_without_a_log_nothing_is_asked_for() -> None:
    settings = changed(MYSQL, variables={"log_bin": "OFF"}, logs=())
    growth = measure_growth(Address("db1", 3306, "wormhole", ""), settings, timeout_s=1.0)
    assert growth.unknown == "the server writes no binary log (log_bin=OFF)"


class Stream:
    """What a server sends, in pieces of a few bytes."""

    def __init__(self, data: bytes) -> None:
        self._rest = data
        self.data, self.at = b"", 0

    def more(self, need: int, wait_s: float) -> bool:
        if not self._rest:
            raise SourceUnavailable("the server closed the binlog stream", hint="again")
        self.data, self.at = self.data[self.at :] + self._rest[:7], 0
        self._rest = self._rest[7:]
        return True

    @staticmethod
    def refused(payload: bytes) -> WormholeError:
        return UsageError(repr(payload), hint="grant it")


def packet(when: int, kind: int, first: int = 0) -> bytes:
    payload = struct.pack("<BIB", first, when, kind) + b"x" * 30
    return struct.pack("<I", len(payload)) + payload


def test_a_file_was_begun_when_its_description_was_written() -> None:
    assert begun_s(Stream(packet(0, 4) + packet(77, 15))) == 77.0  # type: ignore[arg-type]


def test_a_stream_that_is_refused_or_ends_raises() -> None:
    with pytest.raises(UsageError):
        begun_s(Stream(packet(0, 0, first=255)))  # type: ignore[arg-type]
    with pytest.raises(SourceUnavailable):
        begun_s(Stream(packet(0, 4)))  # type: ignore[arg-type]
