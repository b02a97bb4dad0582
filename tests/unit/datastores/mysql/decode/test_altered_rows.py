from __future__ import annotations

import pytest

from datastores.mysql.decode.altered_rows import altered_tables
from datastores.mysql.decode.lexer import Dialect

MARIADB = Dialect(True)


@pytest.mark.parametrize(
    "alterations",
    [
        "MODIFY v TINYINT",
        "COMMENT 'x', CHANGE COLUMN v w INT",
        "RENAME COLUMN v TO w",
        "CONVERT TO CHARACTER SET latin1",
        "ADD COLUMN w INT NOT NULL",
        "ADD w INT DEFAULT 7",
        "ADD (w INT, x INT DEFAULT (1 + 2))",
        "ADD IF NOT EXISTS w INT AS (v + 1) VIRTUAL",
        "ADD w TIMESTAMP FIRST",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
        "ADD CONSTRAINT c PRIMARY KEY (v)",
        "ADD SYSTEM VERSIONING",
        "TRUNCATE PARTITION p",
        "DROP PARTITION p",
        "CONVERT PARTITION p TO TABLE u",
        "CONVERT TABLE u TO PARTITION p VALUES LESS THAN (5)",
        "IMPORT TABLESPACE",
    ],
)
def test_what_changes_rows(alterations: str) -> None:
    assert altered_tables(f"ALTER TABLE b.t {alterations}", "d", MARIADB) == [("b", "t")]
    assert altered_tables(f"alter online table if exists t nowait {alterations}", "d", MARIADB) == [("d", "t")]


def test_both_tables_of_an_exchange() -> None:
    sql = "ALTER TABLE b.t EXCHANGE PARTITION p WITH TABLE u WITHOUT VALIDATION"
    assert altered_tables(sql, "d", MARIADB) == [("b", "t"), ("d", "u")]


def test_duplicates_that_are_deleted() -> None:
    assert altered_tables("ALTER IGNORE TABLE t ADD UNIQUE (v)", "d", MARIADB) == [("d", "t")]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD w INT",
        "ALTER TABLE t ADD w INT DEFAULT NULL AFTER v, DROP COLUMN x",
        "ALTER TABLE t ADD w VARCHAR(5) COMMENT 'NOT NULL DEFAULT 7'",
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS w INT",
        "ALTER TABLE t ADD UNIQUE KEY k (v), ADD INDEX (v), ADD CONSTRAINT c CHECK (v IS NOT NULL)",
        "ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (v) REFERENCES p (id) ON DELETE SET DEFAULT",
        "ALTER TABLE t ALTER v SET DEFAULT 4, DROP INDEX k, RENAME INDEX a TO b",
        "ALTER TABLE t ENGINE = InnoDB, ORDER BY v",
        "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3",
        "ALTER TABLE t ADD PARTITION (PARTITION p9 VALUES LESS THAN (5))",
        "ALTER TABLE t RENAME TO u",
        "ALTER DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE t (a INT NOT NULL)",
        "",
    ],
)
def test_what_changes_none(sql: str) -> None:
    assert altered_tables(sql, "d", MARIADB) == []


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("ALTER TABLE b.t ADD UNIQUE (v)", True),
        ("ALTER TABLE b.t ADD INDEX (v), ADD CONSTRAINT c UNIQUE KEY k (v)", True),
        ("ALTER TABLE b.t ADD COLUMN w INT UNIQUE", True),
        ("CREATE UNIQUE INDEX k USING BTREE ON b.t (v)", True),
        ("CREATE OR REPLACE UNIQUE INDEX IF NOT EXISTS `on` ON b.t (v)", True),
        ("ALTER TABLE b.t ADD INDEX (v), ADD COLUMN w INT COMMENT 'UNIQUE'", False),
        ("CREATE INDEX k ON b.t (v)", False),
        ("CREATE TABLE b.t (v INT UNIQUE)", False),
    ],
)
def test_a_unique_index_may_become_the_key_of_a_table_without_one(sql: str, changes: bool) -> None:
    keyless = {("b", "t")}
    assert altered_tables(sql, "d", MARIADB, lambda *name: name in keyless) == [("b", "t")] * changes
    assert altered_tables(sql, "d", MARIADB, lambda *name: name not in keyless) == []
