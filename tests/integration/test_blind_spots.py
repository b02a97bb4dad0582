"""What changes rows and writes none into the log, as docs/mysql.md lists it, on real servers: the page claims no
more and no less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from scripts.prepare import ROOT
from tests.support.databases import DatabaseServer

PAGE = (ROOT / "docs" / "mysql.md").read_text(encoding="utf-8")

_TABLES = (
    "CREATE TABLE blind.t (id INT PRIMARY KEY, v INT)",
    "INSERT INTO blind.t VALUES (1, 1), (2, 1), (3, 300)",
    "CREATE TABLE blind.parent (id INT PRIMARY KEY)",
    (
        "CREATE TABLE blind.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES blind.parent (id) ON "
        "DELETE CASCADE)"
    ),
    "INSERT INTO blind.parent VALUES (1)",
    "INSERT INTO blind.child VALUES (1, 1)",
    "CREATE TABLE blind.parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
    "CREATE TABLE blind.swap (id INT PRIMARY KEY, v INT)",
    "INSERT INTO blind.swap VALUES (5, 5)",
    "CREATE TABLE blind.noted (id INT PRIMARY KEY)",
    "CREATE TABLE blind.watched (id INT PRIMARY KEY)",
    "CREATE TRIGGER blind.note AFTER INSERT ON blind.watched FOR EACH ROW INSERT INTO blind.noted VALUES (NEW.id)",
)


@dataclass(frozen=True, slots=True)
class Spot:
    """``says``: what the page calls it. ``rows``: how many events of rows the log gets, by flavour."""

    says: str
    statements: tuple[str, ...]
    mariadb: int | None = 0
    mysql: int | None = 0


SPOTS = (
    # The parent's row is logged; the child's on MySQL since 9.6.
    Spot("a foreign key with `CASCADE`", ("DELETE FROM blind.parent",), mariadb=1, mysql=2),
    Spot("`ALTER IGNORE TABLE ... ADD UNIQUE`", ("ALTER IGNORE TABLE blind.t ADD UNIQUE (v)",), mysql=None),
    Spot("`ALTER TABLE ... MODIFY`", ("SET SESSION sql_mode = ''", "ALTER TABLE blind.t MODIFY v TINYINT")),
    Spot("`ALTER TABLE ... ADD COLUMN ... DEFAULT`", ("ALTER TABLE blind.t ADD COLUMN w INT NOT NULL DEFAULT 7",)),
    Spot(
        "`ALTER TABLE ... EXCHANGE PARTITION`", ("ALTER TABLE blind.parts EXCHANGE PARTITION p0 WITH TABLE blind.swap",)
    ),
    Spot("`RENAME TABLE`", ("RENAME TABLE blind.swap TO blind.swapped",)),
    Spot("`SET sql_log_bin = 0`", ("SET SESSION sql_log_bin = 0", "INSERT INTO blind.t (id, v) VALUES (9, 9)")),
    Spot("triggers", ("INSERT INTO blind.watched VALUES (1)",), mariadb=2, mysql=2),
    Spot("`REPLACE`", ("REPLACE INTO blind.t (id, v) VALUES (1, 2)",), mariadb=1, mysql=1),
)


@pytest.fixture
def blind(database_server: DatabaseServer) -> Iterator[DatabaseServer]:
    database_server.sql("CREATE DATABASE blind", *_TABLES)
    yield database_server
    database_server.sql("DROP DATABASE blind")


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: spot.says.strip("`"))
def test_what_a_log_cannot_show(blind: DatabaseServer, spot: Spot) -> None:
    assert spot.says in PAGE
    wanted: int | None = getattr(spot, blind.flavour)
    if wanted is None:
        return  # the server has no such statement
    assert rows_logged(blind, spot.statements) == wanted


def rows_logged(server: DatabaseServer, statements: tuple[str, ...]) -> int:
    """How many events of rows the statements write, in one session."""
    server.sql("FLUSH BINARY LOGS")
    name = server.binlogs[-1].name
    server.sql(*statements)
    kinds = [str(kind) for _, _, kind, *_ in server.sql(f"SHOW BINLOG EVENTS IN '{name}'")]
    return sum("_rows" in kind and not kind.startswith("Annotate") for kind in kinds)
