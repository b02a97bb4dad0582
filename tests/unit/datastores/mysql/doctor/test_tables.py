from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from datastores.mysql.doctor import tables as mysql_tables
from datastores.mysql.doctor.tables import Cascade, TableFacts, findings, parse_cascades, read_tables
from datastores.mysql.server.settings import Settings
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.findings import Finding, Severity

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
