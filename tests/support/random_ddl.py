"""Random statements of a server's DDL with rows between them, and what a copy that follows the log holds.

After each few statements the copy is as ``SELECT`` shows, or it was reported that rows changed, or the difference is of
a statement that the page names. Then the copy is made equal, as a backfill does, and it goes on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pymysql

from tests.support.keyed_copy import Rows, differences, rows_of
from tests.support.postgres_scene import PostgresScene
from tests.support.table_scene import Scene, TableScene
from wormhole.model.errors import SourceUnavailable, UnreadableTable

__all__ = ["MARIADB", "MYSQL", "POSTGRES", "Dialect", "Round"]

_MOST: Final = 4


@dataclass(frozen=True, slots=True)
class Dialect:
    """``tables``: which are compared. In a statement ``{t}`` is one of them, ``{u}`` another one or one that may come,
    ``{c}`` a column, ``{p}`` a partition, ``{n}`` a small number and ``{i}`` a new one. ``rows``: statements that are
    in the log. ``ddl``: the others, most of which a server refuses at most times. ``documented``: those of which the
    page says that nothing reports them.
    """

    made: tuple[str, ...]
    tables: tuple[str, ...]
    rows: tuple[str, ...]
    ddl: tuple[str, ...]
    transactional: bool
    documented: str = "(?!)"


class Round:
    """One seed's. ``name``: the schema or database of its own; ``sql``: executes statements in one session."""

    def __init__(self, scene: Scene, dialect: Dialect, name: str, seed: int, sql: Callable[..., Any]) -> None:
        self._random = random.Random(seed)
        self._scene = scene
        self._dialect = dialect
        self._name = name
        self._sql = sql
        self._next = 100
        self._since: list[str] = []  # since the last comparison
        self._unlogged: set[str] = set()  # tables that had an unlogged partition then
        self.executed: list[str] = []
        self.reported = 0

    def go(self, steps: int) -> list[str]:
        """Every difference that nothing explains, with the statements since it was not there."""
        self._sql(*(one.format(s=self._name) for one in self._dialect.made))
        self._follow()
        wrong = self._compare()
        for _ in range(steps):
            for _ in range(self._random.randrange(1, _MOST)):
                self._step()
            self._follow()
            wrong += self._compare()
        return wrong

    def _step(self) -> None:
        kinds = (self._dialect.rows, self._dialect.ddl)
        count = self._random.choice((1, 1, 1, 3)) if self._dialect.transactional else 1
        some = [self._filled(self._random.choice(self._random.choice(kinds))) for _ in range(count)]
        whole = ["BEGIN", *some, "COMMIT"] if count > 1 else some
        try:
            self._sql(*whole)
        except (psycopg.Error, pymysql.err.MySQLError):
            return  # refused: nothing of it counts, and a transaction of which it is a part is rolled back
        self._since += some
        self.executed += some

    def _filled(self, template: str) -> str:
        chance, self._next = self._random, self._next + 1
        names = [f"{self._name}.{one}" for one in self._dialect.tables]
        return template.format(
            s=self._name,
            t=chance.choice(names),
            u=chance.choice([*names, f"{self._name}.x", f"{self._name}.y"]),
            c=chance.choice(("v", "w", "n", "id")),
            p=chance.choice(("p1", "p2", "p3")),
            n=chance.randrange(6),
            i=self._next,
        )

    def _follow(self) -> None:
        if isinstance(self._scene, PostgresScene):
            self._scene.notice()
        else:
            assert isinstance(self._scene, TableScene)
            self._scene.follow()

    def _compare(self) -> list[str]:
        wrong, copy = [], self._scene.copy.tables
        for table in (f"{self._name}.{one}" for one in (*self._dialect.tables, "x", "y")):
            shown = self._shown(table)
            if shown is None:
                copy.pop(table, None)
                continue
            documented = self._is_documented(table)
            if found := differences(copy.get(table, {}), shown):
                told = table in self._scene.replaced or documented
                self.reported += told
                wrong += [] if told else [f"{table}: {found[0]} after {self._since}"]
            copy[table] = shown
        self._scene.replaced.clear()
        self._since.clear()
        return wrong

    def _is_documented(self, table: str) -> bool:
        """Whether the page has a difference of this table: rows of unlogged partitions, also of one that is gone."""
        unlogged = (
            "SELECT 1 FROM pg_inherits JOIN pg_class ON oid = inhrelid "
            f"WHERE relpersistence = 'u' AND inhparent = '{table}'::regclass"
        )
        had = table in self._unlogged
        self._unlogged.discard(table)
        if self._dialect.transactional and self._sql(unlogged):
            self._unlogged.add(table)
            return True
        return had or any(re.search(self._dialect.documented, one) for one in self._since)

    def _shown(self, table: str) -> Rows | None:
        """``None`` where there is no such table, or it has no key. Where its key is another one it begins again."""
        while True:
            found: Rows = {}
            try:
                self._scene.tables.tables(lambda name: name == table)
                for chunk in self._scene.chunks(table):
                    found |= rows_of(chunk.rows, chunk.schema)
            except UnreadableTable:
                return None
            except SourceUnavailable:
                continue
            return found


_PARTS: Final = "FOR VALUES FROM ({n}0) TO ({n}9)"
POSTGRES: Final = Dialect(
    (
        "CREATE SCHEMA {s}",
        "CREATE TYPE {s}.mood AS ENUM ('one', 'two')",
        "CREATE TYPE {s}.pair AS (a int, b int)",
        "CREATE TABLE {s}.a (id int PRIMARY KEY, v text, n int, w {s}.mood)",
        "CREATE TABLE {s}.b (id int PRIMARY KEY, v {s}.pair, n int NOT NULL DEFAULT 5, w text)",
        "CREATE TABLE {s}.p (id int PRIMARY KEY, v text, n int DEFAULT 7, w text) PARTITION BY RANGE (id)",
        "CREATE TABLE {s}.p1 PARTITION OF {s}.p FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE {s}.p2 PARTITION OF {s}.p DEFAULT",
        "INSERT INTO {s}.a VALUES (1, 'a', 1, 'one'), (2, 'b', 2, 'two')",
        "INSERT INTO {s}.b VALUES (1, '(1,2)', 1, 'x'), (2, '(3,4)', 2, 'y')",
        "INSERT INTO {s}.p VALUES (1, 'a'), (22, 'b')",
    ),
    ("a", "b", "p"),
    (
        "INSERT INTO {t} (id) VALUES ({i})",
        "INSERT INTO {t} (id, n) VALUES ({n}, {n})",
        "UPDATE {t} SET n = {i} WHERE id % 3 = {n} % 3",
        "UPDATE {t} SET id = {i} WHERE id = {n}",
        "DELETE FROM {t} WHERE id % 5 = {n}",
        "INSERT INTO {s}.p{n} (id) VALUES ({n}5)",
        "TRUNCATE {t}",
        "TRUNCATE {t} RESTART IDENTITY CASCADE",
        "MERGE INTO {t} t USING {u} u ON t.id = u.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING",
        "INSERT INTO {t} (id, n) SELECT id + 100 + {i}, {n} FROM {t}",
    ),
    (
        "ALTER TABLE {t} SET UNLOGGED",
        "ALTER TABLE {t} SET LOGGED",
        "ALTER TABLE {s}.p{n} SET UNLOGGED",
        "ALTER TABLE {s}.p{n} SET LOGGED",
        "ALTER TABLE {t} ADD x{i} int",
        "ALTER TABLE {t} ADD x{i} int DEFAULT {n}",
        "ALTER TABLE {t} ADD x{i} int DEFAULT random() * 10",
        "ALTER TABLE {t} ADD x{i} bigserial",
        "ALTER TABLE {t} ADD x{i} int GENERATED ALWAYS AS (id * {n}) STORED",
        "ALTER TABLE {t} ADD {c} text",
        "ALTER TABLE {t} DROP {c}",
        "ALTER TABLE {t} RENAME {c} TO z{i}",
        "ALTER TABLE {t} RENAME {c} TO w",
        "ALTER TABLE {t} ALTER {c} TYPE text",
        "ALTER TABLE {t} ALTER {c} TYPE int USING {n}",
        "ALTER TABLE {t} ALTER {c} TYPE numeric USING id + {n}",
        "ALTER TABLE {t} ALTER {c} TYPE varchar(50)",
        "ALTER TABLE {t} ALTER {c} SET DEFAULT '{n}'",
        "ALTER TABLE {t} ALTER {c} DROP DEFAULT",
        "ALTER TABLE {t} ALTER {c} SET NOT NULL",
        "ALTER TABLE {t} ALTER {c} DROP EXPRESSION",
        "ALTER TABLE {t} ALTER {c} SET EXPRESSION AS (id + {n})",
        "ALTER TABLE {t} ALTER {c} SET STORAGE external",
        "ALTER TABLE {t} ALTER {c} ADD GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE {t} DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (n)",
        "ALTER TABLE {t} DROP CONSTRAINT b_pkey, ADD PRIMARY KEY (n, id)",
        "ALTER TABLE {t} ADD PRIMARY KEY (id)",
        "ALTER TABLE {t} REPLICA IDENTITY FULL",
        "ALTER TABLE {t} REPLICA IDENTITY DEFAULT",
        "CREATE UNIQUE INDEX i{i} ON {t} (n)",
        "ALTER TABLE {t} RENAME TO x",
        "ALTER TABLE {s}.x RENAME TO a",
        "ALTER TABLE {s}.x RENAME TO b",
        "DROP TABLE {u} CASCADE",
        "CREATE TABLE {u} (id int PRIMARY KEY, v text, n int, w text)",
        "CREATE TABLE {u} AS SELECT * FROM {t}",
        "CREATE TABLE {u} (LIKE {t} INCLUDING ALL)",
        "ALTER TYPE {s}.mood RENAME VALUE 'one' TO 'one{i}'",
        "ALTER TYPE {s}.mood ADD VALUE 'v{i}'",
        "ALTER TYPE {s}.pair ADD ATTRIBUTE a{i} int",
        "ALTER TYPE {s}.pair DROP ATTRIBUTE IF EXISTS b",
        "ALTER TYPE {s}.pair RENAME ATTRIBUTE a TO a{i}",
        "DROP TYPE {s}.mood CASCADE",
        "ALTER TABLE {s}.p ATTACH PARTITION {u} " + _PARTS,
        "ALTER TABLE {s}.p ATTACH PARTITION {s}.p{n} " + _PARTS,
        "ALTER TABLE {s}.p DETACH PARTITION {s}.{p}",
        "CREATE TABLE {s}.p{n} PARTITION OF {s}.p " + _PARTS,
        "CREATE TABLE {s}.p{n} (LIKE {s}.p INCLUDING ALL)",
        "DROP TABLE {s}.{p}",
        "TRUNCATE {s}.{p}",
        "VACUUM FULL {t}",
        "CLUSTER {t} USING a_pkey",
        "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {t} CLUSTER ON a_pkey",
        "ALTER TABLE {t} SET (fillfactor = 5{n})",
        "ALTER TABLE {u} INHERIT {t}",
        "CREATE RULE r{i} AS ON UPDATE TO {t} DO INSTEAD NOTHING",
    ),
    transactional=True,
    documented=r"CREATE TABLE \S+ AS ",
)
NOTHING: Final = "(?!)"
"""Every statement that changes rows is noticed, or its rows are in the log."""
_MYSQL_PARTS: Final = (
    "PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN (99999))"
)
MYSQL: Final = Dialect(
    (
        "CREATE DATABASE {s}",
        "CREATE TABLE {s}.a (id int PRIMARY KEY, v varchar(50), n int, w enum('one', 'two'))",
        "CREATE TABLE {s}.b (id int PRIMARY KEY, v text, n int NOT NULL DEFAULT 5, w varchar(20))",
        "CREATE TABLE {s}.p (id int PRIMARY KEY, v varchar(50), n int, w varchar(20)) " + _MYSQL_PARTS,
        "INSERT INTO {s}.a VALUES (1, 'a', 1, 'one'), (2, 'b', 2, 'two')",
        "INSERT INTO {s}.b VALUES (1, 'a', 1, 'one'), (2, 'b', 2, 'two')",
        "INSERT INTO {s}.p VALUES (1, 'a', 1, 'one'), (22, 'b', 2, 'two')",
    ),
    ("a", "b", "p"),
    (
        "INSERT INTO {t} (id) VALUES ({i})",
        "INSERT INTO {t} (id, n) VALUES ({n}, {n})",
        "UPDATE {t} SET n = {i} WHERE id % 3 = {n} % 3",
        "UPDATE {t} SET id = {i} WHERE id = {n}",
        "DELETE FROM {t} WHERE id % 5 = {n}",
        "REPLACE INTO {t} (id, n) VALUES ({n}, {n})",
        "INSERT INTO {t} (id, n) VALUES ({n}, 1) ON DUPLICATE KEY UPDATE n = {i}",
        "INSERT INTO {t} (id, n) SELECT id + 100 + {i}, {n} FROM {t} WHERE id < 1000",
        "TRUNCATE {t}",
    ),
    (
        "ALTER TABLE {t} ADD x{i} int",
        "ALTER TABLE {t} ADD x{i} int NOT NULL DEFAULT {n}",
        "ALTER TABLE {t} ADD x{i} timestamp DEFAULT current_timestamp",
        "ALTER TABLE {t} DROP COLUMN {c}",
        "ALTER TABLE {t} MODIFY {c} bigint",
        "ALTER TABLE {t} MODIFY {c} varchar(3)",
        "ALTER TABLE {t} MODIFY {c} int NOT NULL",
        "ALTER TABLE {t} CHANGE {c} z{i} varchar(40)",
        "ALTER TABLE {t} RENAME COLUMN {c} TO z{i}",
        "ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE {t} ALTER {c} SET DEFAULT 4",
        "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (n)",
        "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)",
        "ALTER TABLE {t} ADD UNIQUE INDEX (v)",
        "ALTER TABLE {t} ENGINE = InnoDB",
        "ALTER TABLE {t} ENGINE = BLACKHOLE",
        "ALTER TABLE {t} RENAME TO {u}",
        "RENAME TABLE {t} TO {s}.x, {u} TO {t}",
        "RENAME TABLE {s}.x TO {u}",
        "DROP TABLE IF EXISTS {u}",
        "CREATE TABLE {u} (id int PRIMARY KEY, v text, n int, w text)",
        "CREATE TABLE {u} (PRIMARY KEY (id)) SELECT * FROM {t}",
        "CREATE TABLE {u} LIKE {t}",
        "ALTER TABLE {s}.p TRUNCATE PARTITION {p}",
        "ALTER TABLE {s}.p DROP PARTITION {p}",
        "ALTER TABLE {s}.p EXCHANGE PARTITION {p} WITH TABLE {u}",
        "ALTER TABLE {s}.p REMOVE PARTITIONING",
        "ALTER TABLE {s}.p " + _MYSQL_PARTS,
        "OPTIMIZE TABLE {t}",
        "ANALYZE TABLE {t}",
    ),
    transactional=False,
    documented=NOTHING,
)
MARIADB: Final = Dialect(
    MYSQL.made,
    MYSQL.tables,
    MYSQL.rows,
    (
        *MYSQL.ddl,
        "CREATE OR REPLACE TABLE {u} (id int PRIMARY KEY, v text, n int)",
        "CREATE OR REPLACE TABLE {u} (PRIMARY KEY (id)) SELECT * FROM {t}",
        "ALTER IGNORE TABLE {t} ADD UNIQUE (n)",
        "ALTER TABLE {s}.p CONVERT PARTITION {p} TO TABLE {s}.x",
    ),
    transactional=False,
    documented=NOTHING,
)
