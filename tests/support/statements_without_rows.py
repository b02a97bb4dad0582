"""Statements that may change what ``SELECT`` shows and log no rows, of each server, and what becomes of a copy.

They are every form of ``ALTER``, ``CREATE``, ``DROP``, ``TRUNCATE``, ``VACUUM`` and ``CLUSTER`` of PostgreSQL's
grammar that reaches a table's rows, columns, key, types, partitions or name; of the grammars of MySQL and MariaDB also
``RENAME``, ``REPAIR``, ``IMPORT``, ``OPTIMIZE``, ``SET`` and the changes of rows. The page has the same lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["MARIADB", "MYSQL", "POSTGRES", "Case", "Outcome"]


class Outcome(Enum):
    """``LOGGED``: the copy is as ``SELECT`` shows; ``NOTICED``: it is reported that rows changed; ``SILENT``: the copy
    differs, and the page says so."""

    LOGGED = "logged"
    NOTICED = "noticed"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Case:
    """``made``: before the log is read; ``run``: while it is. ``{s}``: a schema of the case's own. ``table``: which is
    compared, in it. ``since``: the server's version that has the statement. ``verified``: whether the table's rows can
    be read, so that a verification finds what differs. A line ``cp A B`` copies a file of the data folder.
    """

    name: str
    run: tuple[str, ...]
    outcome: Outcome
    made: tuple[str, ...] = ("CREATE TABLE {s}.t (id int PRIMARY KEY, v text)", "INSERT INTO {s}.t VALUES (1, 'a')")
    table: str = "t"
    since: int = 13
    verified: bool = True


_LOGGED, _NOTICED, _SILENT = Outcome.LOGGED, Outcome.NOTICED, Outcome.SILENT
_PARTS: Final = (
    "CREATE TABLE {s}.t (id int PRIMARY KEY, v text DEFAULT 'x') PARTITION BY RANGE (id)",
    "CREATE TABLE {s}.t1 PARTITION OF {s}.t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE {s}.t2 PARTITION OF {s}.t FOR VALUES FROM (10) TO (20)",
    "INSERT INTO {s}.t VALUES (1, 'a'), (11, 'b')",
)
_OTHER: Final = "CREATE TABLE {s}.u (id int PRIMARY KEY, v text DEFAULT 'x')"
_ATTACH: Final = "ALTER TABLE {s}.t ATTACH PARTITION {s}.u FOR VALUES FROM (20) TO (30)"
_COMPOSITE: Final = (
    "CREATE TYPE {s}.pair AS (a int, b int)",
    "CREATE TABLE {s}.t (id int PRIMARY KEY, v {s}.pair)",
    "INSERT INTO {s}.t VALUES (1, '(1,2)')",
)
_NESTED: Final = (
    "CREATE TYPE {s}.pair AS (a int, b int)",
    "CREATE DOMAIN {s}.pairs AS {s}.pair[]",
    "CREATE TYPE {s}.outer AS (inner_pairs {s}.pairs)",
    "CREATE TABLE {s}.t (id int PRIMARY KEY, v {s}.outer)",
    "INSERT INTO {s}.t VALUES (1, ROW(ARRAY[ROW(1, 2)::{s}.pair]))",
)
_ENUM: Final = (
    "CREATE TYPE {s}.mood AS ENUM ('sad', 'fine')",
    "CREATE TABLE {s}.t (id int PRIMARY KEY, v {s}.mood, many {s}.mood[])",
    "INSERT INTO {s}.t VALUES (1, 'sad', '{{sad}}')",
)
_GENERATED: Final = (
    "CREATE TABLE {s}.t (id int PRIMARY KEY, n int, v int GENERATED ALWAYS AS (n * 2) STORED)",
    "INSERT INTO {s}.t (id, n) VALUES (1, 5)",
)

_RELOADED: Final = (
    "TRUNCATE {s}.t",
    "ALTER TABLE {s}.t SET UNLOGGED",
    "INSERT INTO {s}.t VALUES (2), (3)",
    "ALTER TABLE {s}.t SET LOGGED",
)
_RENAMED_KEY: Final = "ALTER INDEX {s}.t_pkey RENAME TO key"

POSTGRES: Final = (
    # The rows themselves.
    Case(
        "unlogged",
        ("ALTER TABLE {s}.t SET UNLOGGED", "INSERT INTO {s}.t VALUES (2)", "ALTER TABLE {s}.t SET LOGGED"),
        _NOTICED,
    ),
    Case(
        "unlogged at once",
        ("BEGIN", "ALTER TABLE {s}.t SET UNLOGGED", "DELETE FROM {s}.t", "ALTER TABLE {s}.t SET LOGGED", "COMMIT"),
        _NOTICED,
    ),
    Case(
        "truncate and load unlogged",
        (
            "BEGIN",
            "TRUNCATE {s}.t",
            "ALTER TABLE {s}.t SET UNLOGGED",
            "INSERT INTO {s}.t VALUES (2)",
            "ALTER TABLE {s}.t SET LOGGED",
            "COMMIT",
        ),
        _NOTICED,
    ),
    Case("truncate and load unlogged in several transactions", _RELOADED, _NOTICED),
    Case("truncate and load unlogged, then rename the key", (*_RELOADED, _RENAMED_KEY), _NOTICED),
    Case(
        "truncate and load unlogged, then change a row", (*_RELOADED, "UPDATE {s}.t SET v = 'c' WHERE id = 2"), _NOTICED
    ),
    Case(
        "truncate and load unlogged in a savepoint",
        ("BEGIN", "SAVEPOINT a", *_RELOADED, "RELEASE a", "COMMIT"),
        _NOTICED,
    ),
    Case(
        "truncate and load unlogged without large values",
        _RELOADED,
        _NOTICED,
        ("CREATE TABLE {s}.t (id int PRIMARY KEY)", "INSERT INTO {s}.t VALUES (1)"),
    ),
    Case("load unlogged and truncate", (*_RELOADED, "TRUNCATE {s}.t", "INSERT INTO {s}.t VALUES (4)"), _LOGGED),
    Case(
        "truncate a partitioned table and load a part unlogged",
        tuple(one.replace("{s}.t ", "{s}.t1 ") if "ALTER" in one else one for one in _RELOADED),
        _NOTICED,
        _PARTS,
    ),
    Case("truncate", ("TRUNCATE {s}.t RESTART IDENTITY CASCADE", "INSERT INTO {s}.t VALUES (2)"), _LOGGED),
    Case(
        "truncate and write in a savepoint",
        ("BEGIN", "SAVEPOINT a", "TRUNCATE {s}.t", "INSERT INTO {s}.t VALUES (2)", "RELEASE a", "COMMIT"),
        _LOGGED,
    ),
    Case(
        "truncate and load with an index and a check made behind",
        (
            "CREATE INDEX i ON {s}.t (v)",
            "BEGIN",
            "TRUNCATE {s}.t",
            "DROP INDEX {s}.i",
            "INSERT INTO {s}.t SELECT n, 'x' FROM generate_series(1, 99) n",
            "CREATE INDEX i ON {s}.t (v)",
            "ALTER TABLE {s}.t ADD CHECK (id > 0)",
            "GRANT SELECT ON {s}.t TO PUBLIC",
            "COMMIT",
            "DELETE FROM {s}.t WHERE id > 5",
        ),
        _LOGGED,
    ),
    Case(
        "truncate twice and write",
        (
            "TRUNCATE {s}.t",
            "INSERT INTO {s}.t VALUES (2)",
            "BEGIN",
            "TRUNCATE {s}.t",
            "COPY {s}.t (id) FROM PROGRAM 'echo 7'",
            "COMMIT",
        ),
        _LOGGED,
    ),
    Case("truncate and write", ("BEGIN", "TRUNCATE {s}.t", "INSERT INTO {s}.t VALUES (2)", "COMMIT"), _LOGGED),
    Case("vacuum full", ("VACUUM FULL {s}.t",), _NOTICED),
    Case("cluster", ("CLUSTER {s}.t USING t_pkey",), _NOTICED),
    Case(
        "copy freeze",
        ("BEGIN", "TRUNCATE {s}.t", "COPY {s}.t (id) FROM PROGRAM 'echo 7' WITH (FREEZE)", "COMMIT"),
        _LOGGED,
    ),
    Case(
        "create as",
        ("CREATE TABLE {s}.u AS SELECT * FROM {s}.t", "ALTER TABLE {s}.u ADD PRIMARY KEY (id)"),
        _NOTICED,
        table="u",
    ),
    Case(
        "create as and key at once",
        ("BEGIN", "CREATE TABLE {s}.u AS SELECT * FROM {s}.t", "ALTER TABLE {s}.u ADD PRIMARY KEY (id)", "COMMIT"),
        _SILENT,
        table="u",
    ),
    Case("create", (_OTHER, "INSERT INTO {s}.u VALUES (5)"), _LOGGED, table="u"),
    Case(
        "created unlogged",
        (_OTHER.replace("TABLE", "UNLOGGED TABLE"), "INSERT INTO {s}.u VALUES (5)", "ALTER TABLE {s}.u SET LOGGED"),
        _NOTICED,
        table="u",
    ),
    Case(
        "origin",
        (
            "SELECT pg_replication_origin_create('{s}')",
            "SELECT pg_replication_origin_session_setup('{s}')",
            "INSERT INTO {s}.t VALUES (2)",
        ),
        _LOGGED,
    ),
    Case(
        "row security",
        ("ALTER TABLE {s}.t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON {s}.t USING (id > 5)"),
        _LOGGED,
    ),
    Case(
        "rule",
        ("CREATE RULE r AS ON INSERT TO {s}.t DO ALSO DELETE FROM {s}.t", "INSERT INTO {s}.t VALUES (3)"),
        _LOGGED,
    ),
    Case(
        "inherit",
        (
            "CREATE TABLE {s}.u () INHERITS ({s}.t)",
            "INSERT INTO {s}.u VALUES (5)",
            "ALTER TABLE {s}.u NO INHERIT {s}.t",
        ),
        _LOGGED,
    ),
    # Partitions.
    Case("attach", (_ATTACH,), _NOTICED, (*_PARTS, _OTHER, "INSERT INTO {s}.u VALUES (25)")),
    Case("attach new", ("BEGIN", _OTHER, "INSERT INTO {s}.u VALUES (25)", _ATTACH, "COMMIT"), _NOTICED, _PARTS),
    Case("attach empty", (_OTHER, _ATTACH, "INSERT INTO {s}.t VALUES (25)"), _NOTICED, _PARTS),
    Case("attach none", (_OTHER, _ATTACH), _LOGGED, _PARTS),
    Case(
        "partition",
        ("CREATE TABLE {s}.u PARTITION OF {s}.t FOR VALUES FROM (20) TO (30)", "INSERT INTO {s}.t VALUES (25)"),
        _LOGGED,
        _PARTS,
    ),
    Case(
        "partition of",
        (
            "BEGIN",
            "CREATE TABLE {s}.u PARTITION OF {s}.t (v DEFAULT 'y' NOT NULL) FOR VALUES FROM (20) TO (30)",
            "INSERT INTO {s}.t VALUES (25)",
            "COMMIT",
        ),
        _LOGGED,
        _PARTS,
    ),
    Case("detach", ("ALTER TABLE {s}.t DETACH PARTITION {s}.t2",), _NOTICED, _PARTS),
    Case("drop partition", ("DROP TABLE {s}.t2",), _NOTICED, _PARTS),
    Case("truncate partition", ("TRUNCATE {s}.t2",), _NOTICED, _PARTS),
    Case("truncate all partitions", ("TRUNCATE {s}.t",), _LOGGED, _PARTS),
    Case(
        "unlogged partition",
        ("ALTER TABLE {s}.t2 SET UNLOGGED", "DELETE FROM {s}.t", "ALTER TABLE {s}.t2 SET LOGGED"),
        _NOTICED,
        _PARTS,
    ),
    # Keys.
    Case("another key", ("ALTER TABLE {s}.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)",), _NOTICED),
    Case(
        "wider key", ("ALTER TABLE {s}.t DROP CONSTRAINT t_pkey", "ALTER TABLE {s}.t ADD PRIMARY KEY (id, v)"), _NOTICED
    ),
    Case(
        "identity index",
        (
            "ALTER TABLE {s}.t ALTER v SET NOT NULL",
            "CREATE UNIQUE INDEX u ON {s}.t (v)",
            "ALTER TABLE {s}.t REPLICA IDENTITY USING INDEX u",
        ),
        _NOTICED,
    ),
    Case("identity full", ("ALTER TABLE {s}.t REPLICA IDENTITY FULL", "UPDATE {s}.t SET v = 'b'"), _LOGGED),
    # Columns.
    Case("add a default", ("ALTER TABLE {s}.t ADD n int DEFAULT 5",), _NOTICED),
    Case("add a default to partitions", ("ALTER TABLE {s}.t ADD n int DEFAULT 5",), _NOTICED, _PARTS),
    Case("add a volatile default", ("ALTER TABLE {s}.t ADD n float DEFAULT random()",), _NOTICED),
    Case("add serial", ("ALTER TABLE {s}.t ADD n bigserial",), _NOTICED),
    Case(
        "add null",
        ("ALTER TABLE {s}.t ADD n int", "ALTER TABLE {s}.t ALTER n SET DEFAULT 5", "INSERT INTO {s}.t VALUES (2)"),
        _LOGGED,
    ),
    Case("drop column", ("ALTER TABLE {s}.t DROP v",), _LOGGED),
    Case("drop by type", ("DROP TYPE {s}.pair CASCADE",), _LOGGED, _COMPOSITE),
    Case("rename column", ("ALTER TABLE {s}.t RENAME v TO w",), _NOTICED),
    Case(
        "swap columns",
        ("ALTER TABLE {s}.t RENAME v TO x", "ALTER TABLE {s}.t RENAME w TO v", "ALTER TABLE {s}.t RENAME x TO w"),
        _NOTICED,
        ("CREATE TABLE {s}.t (id int PRIMARY KEY, v text, w text)", "INSERT INTO {s}.t VALUES (1, 'a', 'b')"),
    ),
    Case("type by using", ("ALTER TABLE {s}.t ALTER v TYPE text USING v || '!'",), _NOTICED),
    Case("type", ("ALTER TABLE {s}.t ALTER id TYPE text",), _NOTICED),
    Case("wider type", ("ALTER TABLE {s}.t ALTER v TYPE varchar",), _LOGGED),
    Case(
        "storage",
        (
            "ALTER TABLE {s}.t ALTER v SET STORAGE external",
            "ALTER TABLE {s}.t ALTER v SET NOT NULL",
            "ALTER TABLE {s}.t SET (fillfactor = 50)",
        ),
        _LOGGED,
    ),
    Case("collation", ('ALTER TABLE {s}.t ALTER v TYPE text COLLATE "POSIX"',), _LOGGED),
    Case("drop expression", ("ALTER TABLE {s}.t ALTER v DROP EXPRESSION",), _NOTICED, _GENERATED),
    Case("set expression", ("ALTER TABLE {s}.t ALTER v SET EXPRESSION AS (n * 3)",), _NOTICED, _GENERATED, since=17),
    Case("add virtual", ("ALTER TABLE {s}.t ADD n int GENERATED ALWAYS AS (id * 2) VIRTUAL",), _LOGGED, since=18),
    # Types.
    Case("add attribute", ("ALTER TYPE {s}.pair ADD ATTRIBUTE c int",), _NOTICED, _COMPOSITE),
    Case("drop attribute", ("ALTER TYPE {s}.pair DROP ATTRIBUTE a",), _NOTICED, _COMPOSITE),
    Case(
        "rename attribute",
        ("ALTER TYPE {s}.pair RENAME ATTRIBUTE a TO z", "ALTER TYPE {s}.pair RENAME TO two"),
        _LOGGED,
        _COMPOSITE,
    ),
    Case("nested attribute", ("ALTER TYPE {s}.pair ADD ATTRIBUTE c int",), _NOTICED, _NESTED),
    Case(
        "row type",
        ("ALTER TABLE {s}.u ADD c int",),
        _NOTICED,
        (_OTHER, "CREATE TABLE {s}.t (id int PRIMARY KEY, v {s}.u)", "INSERT INTO {s}.t VALUES (1, '(1,a)')"),
    ),
    Case("rename value", ("ALTER TYPE {s}.mood RENAME VALUE 'sad' TO 'blue'",), _NOTICED, _ENUM),
    Case(
        "add value",
        ("ALTER TYPE {s}.mood ADD VALUE 'so so' BEFORE 'fine'", "ALTER TYPE {s}.mood RENAME TO moods"),
        _LOGGED,
        _ENUM,
    ),
    Case(
        "domain",
        ("ALTER DOMAIN {s}.d ADD CHECK (VALUE > 0)", "ALTER DOMAIN {s}.d SET DEFAULT 5"),
        _LOGGED,
        (
            "CREATE DOMAIN {s}.d AS int",
            "CREATE TABLE {s}.t (id int PRIMARY KEY, v {s}.d)",
            "INSERT INTO {s}.t VALUES (1, 5)",
        ),
    ),
    # Names.
    Case("rename", ("ALTER TABLE {s}.t RENAME TO u",), _NOTICED, table="u"),
    Case(
        "swap",
        ("BEGIN", "ALTER TABLE {s}.t RENAME TO x", "ALTER TABLE {s}.u RENAME TO t", "COMMIT"),
        _NOTICED,
        (_OTHER, "CREATE TABLE {s}.t (LIKE {s}.u INCLUDING ALL)", "INSERT INTO {s}.t VALUES (1)"),
    ),
    Case(
        "drop and create",
        ("DROP TABLE {s}.t", "CREATE TABLE {s}.t (id int PRIMARY KEY)", "INSERT INTO {s}.t VALUES (9)"),
        _NOTICED,
    ),
    Case("schema", ("ALTER SCHEMA {s} RENAME TO {s}_new",), _NOTICED, table="_new.t"),
    Case(
        "set schema", ("CREATE SCHEMA {s}_other", "ALTER TABLE {s}.t SET SCHEMA {s}_other"), _NOTICED, table="_other.t"
    ),
    Case(
        "regclass",
        ("ALTER TABLE {s}.u RENAME TO w",),
        _SILENT,
        (_OTHER, "CREATE TABLE {s}.t (id int PRIMARY KEY, v regclass)", "INSERT INTO {s}.t VALUES (1, '{s}.u')"),
    ),
    Case(
        "aclitem",
        ("ALTER ROLE {s} RENAME TO {s}_new",),
        _SILENT,
        (
            "CREATE ROLE {s}",
            "CREATE TABLE {s}.t (id int PRIMARY KEY, v aclitem)",
            "INSERT INTO {s}.t VALUES (1, '{s}=r/postgres')",
        ),
    ),
)

_MY_ROWS: Final = (
    "CREATE TABLE {s}.t (id int PRIMARY KEY, v varchar(20))",
    "INSERT INTO {s}.t VALUES (1, 'abcdef'), (2, '7'), (3, '7')",
)
_MY_NUMBERS: Final = ("CREATE TABLE {s}.t (id int PRIMARY KEY, v int)", "INSERT INTO {s}.t VALUES (1, 300), (2, 300)")
_MY_PARTS: Final = (
    (
        "CREATE TABLE {s}.t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    ),
    "CREATE TABLE {s}.u (id int PRIMARY KEY, v int)",
    "INSERT INTO {s}.t VALUES (1, 1), (11, 11)",
    "INSERT INTO {s}.u VALUES (2, 2)",
)
_MY_KEYLESS: Final = ("CREATE TABLE {s}.t (id int NOT NULL, v int)", "INSERT INTO {s}.t VALUES (1, 1), (2, 2)")
_MY_CHILDREN: Final = (
    "CREATE TABLE {s}.parent (id int PRIMARY KEY)",
    "INSERT INTO {s}.parent VALUES (1), (2)",
    "CREATE TABLE {s}.t (id int PRIMARY KEY, p int DEFAULT 2, FOREIGN KEY (p) REFERENCES {s}.parent (id) {r})",
    "INSERT INTO {s}.t VALUES (1, 1)",
)


def _children(rule: str) -> tuple[str, ...]:
    return tuple(one.replace("{r}", rule) for one in _MY_CHILDREN)


_OF_BOTH: Final = (
    # Columns.
    Case("modify", ("ALTER TABLE {s}.t MODIFY v varchar(3)",), _NOTICED, _MY_ROWS),
    Case("modify type", ("ALTER TABLE {s}.t MODIFY v tinyint",), _NOTICED, _MY_NUMBERS),
    Case("change", ("ALTER TABLE {s}.t CHANGE v w int",), _NOTICED, _MY_NUMBERS),
    Case("rename column", ("ALTER TABLE {s}.t RENAME COLUMN v TO w",), _NOTICED, _MY_NUMBERS),
    Case(
        "convert",
        ("ALTER TABLE {s}.t CONVERT TO CHARACTER SET ascii",),
        _NOTICED,
        (
            "CREATE TABLE {s}.t (id int PRIMARY KEY, v varchar(20) CHARACTER SET utf8mb4)",
            "INSERT INTO {s}.t VALUES (1, 'ö')",
        ),
    ),
    Case("add", ("ALTER TABLE {s}.t ADD w int",), _LOGGED, _MY_NUMBERS),
    Case("add default", ("ALTER TABLE {s}.t ADD w int DEFAULT 7",), _NOTICED, _MY_NUMBERS),
    Case("add not null", ("ALTER TABLE {s}.t ADD w int NOT NULL",), _NOTICED, _MY_NUMBERS),
    Case("add generated", ("ALTER TABLE {s}.t ADD w int AS (v + 1)",), _NOTICED, _MY_NUMBERS),
    Case("drop column", ("ALTER TABLE {s}.t DROP v",), _LOGGED, _MY_NUMBERS),
    Case("drop the key", ("ALTER TABLE {s}.t DROP id",), _NOTICED, _MY_NUMBERS, verified=False),
    Case("alter default", ("ALTER TABLE {s}.t ALTER v SET DEFAULT 9",), _LOGGED, _MY_NUMBERS),
    # Keys.
    Case(
        "another primary key",
        ("ALTER TABLE {s}.t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)",),
        _NOTICED,
        (
            "CREATE TABLE {s}.t (id int PRIMARY KEY, v int NOT NULL)",
            "INSERT INTO {s}.t VALUES (1, 2)",
        ),
    ),
    Case("add primary key", ("ALTER TABLE {s}.t ADD PRIMARY KEY (id)",), _NOTICED, _MY_KEYLESS),
    Case("add unique key", ("ALTER TABLE {s}.t ADD UNIQUE (id)",), _NOTICED, _MY_KEYLESS),
    Case("create unique index", ("CREATE UNIQUE INDEX i ON {s}.t (id)",), _NOTICED, _MY_KEYLESS),
    Case(
        "drop index",
        ("DROP INDEX i ON {s}.t",),
        _SILENT,
        (
            "CREATE TABLE {s}.t (id int NOT NULL, v int NOT NULL, UNIQUE i (id), UNIQUE j (v))",
            "INSERT INTO {s}.t VALUES (1, 2)",
        ),
    ),
    Case(
        "drop primary index",
        ("DROP INDEX `PRIMARY` ON {s}.t",),
        _NOTICED,
        (
            "CREATE TABLE {s}.t (id int PRIMARY KEY, v int NOT NULL, UNIQUE (v))",
            "INSERT INTO {s}.t VALUES (1, 2)",
        ),
    ),
    # Partitions.
    Case("exchange", ("ALTER TABLE {s}.t EXCHANGE PARTITION p0 WITH TABLE {s}.u",), _NOTICED, _MY_PARTS),
    Case("exchanged", ("ALTER TABLE {s}.t EXCHANGE PARTITION p0 WITH TABLE {s}.u",), _NOTICED, _MY_PARTS, table="u"),
    Case("truncate partition", ("ALTER TABLE {s}.t TRUNCATE PARTITION p0",), _NOTICED, _MY_PARTS),
    Case("drop partition", ("ALTER TABLE {s}.t DROP PARTITION p0",), _NOTICED, _MY_PARTS),
    Case(
        "other partitions",
        (
            "ALTER TABLE {s}.t ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))",
            "ALTER TABLE {s}.t REORGANIZE PARTITION p0, p1 INTO (PARTITION p0 VALUES LESS THAN (20))",
            "ALTER TABLE {s}.t REBUILD PARTITION p0",
            "ALTER TABLE {s}.t REMOVE PARTITIONING",
            "ALTER TABLE {s}.t PARTITION BY HASH (id) PARTITIONS 4",
            "ALTER TABLE {s}.t COALESCE PARTITION 2",
        ),
        _LOGGED,
        _MY_PARTS,
    ),
    # The table.
    Case("truncate", ("TRUNCATE TABLE {s}.t",), _LOGGED, _MY_ROWS),
    Case("drop", ("DROP TABLE {s}.t", "CREATE TABLE {s}.t (id int PRIMARY KEY)"), _LOGGED, _MY_ROWS),
    Case("drop database", ("DROP DATABASE {s}", "CREATE DATABASE {s}", _MY_ROWS[0]), _LOGGED, _MY_ROWS),
    Case("create select", ("CREATE TABLE {s}.u (PRIMARY KEY (id)) SELECT * FROM {s}.t",), _LOGGED, _MY_ROWS, table="u"),
    Case("rename", ("RENAME TABLE {s}.t TO {s}.u",), _NOTICED, _MY_ROWS, table="u"),
    Case("rename by alter", ("ALTER TABLE {s}.t RENAME {s}.u",), _NOTICED, _MY_ROWS, table="u"),
    Case(
        "swap", ("RENAME TABLE {s}.t TO {s}.x, {s}.u TO {s}.t",), _NOTICED, (*_MY_ROWS, "CREATE TABLE {s}.u LIKE {s}.t")
    ),
    Case("engine", ("ALTER TABLE {s}.t ENGINE = MyISAM", "ALTER TABLE {s}.t ENGINE = InnoDB"), _LOGGED, _MY_ROWS),
    Case(
        "order", ("ALTER TABLE {s}.t ORDER BY v", "ALTER TABLE {s}.t FORCE", "OPTIMIZE TABLE {s}.t"), _LOGGED, _MY_ROWS
    ),
    Case("blackhole", ("ALTER TABLE {s}.t ENGINE = BLACKHOLE", "ALTER TABLE {s}.t ENGINE = InnoDB"), _LOGGED, _MY_ROWS),
    Case("discard", ("ALTER TABLE {s}.t DISCARD TABLESPACE", "DROP TABLE {s}.t", _MY_ROWS[0]), _LOGGED, _MY_ROWS),
    Case(
        "import",
        (
            "ALTER TABLE {s}.t DISCARD TABLESPACE",
            "FLUSH TABLES {s}.u FOR EXPORT",
            "cp {s}/u.ibd {s}/t.ibd",
            "ALTER TABLE {s}.t IMPORT TABLESPACE",
        ),
        _NOTICED,
        ("CREATE TABLE {s}.t (id int PRIMARY KEY)", "CREATE TABLE {s}.u LIKE {s}.t", "INSERT INTO {s}.u VALUES (7)"),
    ),
    # What engines other than InnoDB do: existing rows of their tables are refused, so nothing can verify them.
    Case(
        "repair",
        ("REPAIR TABLE {s}.t QUICK",),
        _LOGGED,
        (_MY_ROWS[0] + " ENGINE = MyISAM", _MY_ROWS[1]),
        verified=False,
    ),
    Case(
        "union",
        ("ALTER TABLE {s}.t UNION = ({s}.a, {s}.b)",),
        _SILENT,
        (
            "CREATE TABLE {s}.a (id int PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE {s}.b LIKE {s}.a",
            "INSERT INTO {s}.b VALUES (2)",
            "CREATE TABLE {s}.t (id int PRIMARY KEY) ENGINE = MERGE UNION = ({s}.a)",
        ),
        verified=False,
    ),
    Case(
        "merge",
        ("CREATE TABLE {s}.t (id int PRIMARY KEY) ENGINE = MERGE UNION = ({s}.a)",),
        _SILENT,
        (
            "CREATE TABLE {s}.a (id int PRIMARY KEY) ENGINE = MyISAM",
            "INSERT INTO {s}.a VALUES (2)",
        ),
        verified=False,
    ),
    Case(
        "below a merge",
        ("INSERT INTO {s}.a VALUES (3)",),
        _SILENT,
        (
            "CREATE TABLE {s}.a (id int PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE {s}.t (id int PRIMARY KEY) ENGINE = MERGE UNION = ({s}.a)",
        ),
        verified=False,
    ),
    # Sessions.
    Case("without the log", ("SET SESSION sql_log_bin = 0", "UPDATE {s}.t SET v = 'x'"), _SILENT, _MY_ROWS),
    Case("prepared", ("PREPARE p FROM 'DELETE FROM {s}.t WHERE id = 1'", "EXECUTE p"), _LOGGED, _MY_ROWS),
)
MYSQL: Final = (
    *_OF_BOTH,
    Case(
        "drop a part of the key",  # MariaDB refuses it
        ("ALTER TABLE {s}.t DROP id",),
        _NOTICED,
        ("CREATE TABLE {s}.t (n int, id int, PRIMARY KEY (n, id))", "INSERT INTO {s}.t VALUES (1, 2)"),
    ),
    Case("cascade", ("DELETE FROM {s}.parent",), _LOGGED, _children("ON DELETE CASCADE")),
    Case("cascaded update", ("UPDATE {s}.parent SET id = 9 WHERE id = 1",), _LOGGED, _children("ON UPDATE CASCADE")),
    Case("set null", ("DELETE FROM {s}.parent",), _LOGGED, _children("ON DELETE SET NULL")),
    Case(
        "invisible key",
        ("SET SESSION sql_generate_invisible_primary_key = 1", "CREATE TABLE {s}.u SELECT 1 AS a"),
        _LOGGED,
        table="u",
    ),
    Case(
        "create table",
        ("CREATE TABLE {s}.u TABLE {s}.t", "ALTER TABLE {s}.u ADD PRIMARY KEY (id)"),
        _NOTICED,
        _MY_ROWS,
        table="u",
    ),
)
MARIADB: Final = (
    *_OF_BOTH,
    Case("cascade", ("DELETE FROM {s}.parent",), _SILENT, _children("ON DELETE CASCADE")),
    Case("cascaded update", ("UPDATE {s}.parent SET id = 9 WHERE id = 1",), _SILENT, _children("ON UPDATE CASCADE")),
    Case("set null", ("DELETE FROM {s}.parent",), _SILENT, _children("ON DELETE SET NULL")),
    Case("ignore", ("ALTER IGNORE TABLE {s}.t ADD UNIQUE (v)",), _NOTICED, _MY_NUMBERS),
    Case("replace", ("CREATE OR REPLACE TABLE {s}.t (id int PRIMARY KEY)",), _LOGGED, _MY_ROWS),
    Case("replace select", ("CREATE OR REPLACE TABLE {s}.t (PRIMARY KEY (id)) SELECT 5 AS id",), _LOGGED, _MY_ROWS),
    Case("convert partition", ("ALTER TABLE {s}.t CONVERT PARTITION p0 TO TABLE {s}.x",), _NOTICED, _MY_PARTS),
    Case(
        "converted partition",
        ("ALTER TABLE {s}.t CONVERT PARTITION p0 TO TABLE {s}.x",),
        _NOTICED,
        _MY_PARTS,
        table="x",
    ),
    Case(
        "convert table",
        ("ALTER TABLE {s}.t CONVERT TABLE {s}.u TO PARTITION p2 VALUES LESS THAN (30)",),
        _NOTICED,
        (*_MY_PARTS[:3], "INSERT INTO {s}.u VALUES (22, 2)"),
    ),
    Case("system versioning", ("ALTER TABLE {s}.t ADD SYSTEM VERSIONING",), _NOTICED, _MY_ROWS),
    Case(
        "no system versioning",
        ("ALTER TABLE {s}.t DROP SYSTEM VERSIONING",),
        _LOGGED,
        (_MY_ROWS[0] + " WITH SYSTEM VERSIONING", _MY_ROWS[1]),
    ),
    Case(
        "delete history",
        ("UPDATE {s}.t SET v = 'x'", "DELETE HISTORY FROM {s}.t"),
        _LOGGED,
        (_MY_ROWS[0] + " WITH SYSTEM VERSIONING", _MY_ROWS[1]),
    ),
    Case(
        "period",
        (
            "ALTER TABLE {s}.t ADD a date DEFAULT '2020-01-01', ADD b date DEFAULT '2021-01-01'",
            "ALTER TABLE {s}.t MODIFY a date NOT NULL, MODIFY b date NOT NULL, ADD PERIOD FOR p (a, b)",
        ),
        _NOTICED,
        _MY_ROWS,
    ),
    Case("immediate", ("EXECUTE IMMEDIATE 'DELETE FROM {s}.t WHERE id = 1'",), _LOGGED, _MY_ROWS),
    Case("analyze", ("ANALYZE DELETE FROM {s}.t WHERE id = 1",), _LOGGED, _MY_ROWS),
    Case(
        "alter sequence",
        ("ALTER SEQUENCE {s}.t RESTART 500",),
        _SILENT,
        ("CREATE SEQUENCE {s}.t NOCACHE",),
        verified=False,
    ),
)
