"""Statements that may change what ``SELECT`` shows and log no rows, of each server, and what becomes of a copy.

They are every form of ``ALTER``, ``CREATE``, ``DROP``, ``TRUNCATE``, ``VACUUM`` and ``CLUSTER`` of the server's
grammar that reaches a table's rows, columns, key, types, partitions or name. The table in ``docs/existing-rows.md`` has
the same list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["POSTGRES", "Case", "Outcome"]


class Outcome(Enum):
    """``LOGGED``: the copy is as ``SELECT`` shows; ``NOTICED``: it is reported that rows changed; ``SILENT``: the copy
    differs, and the page says so."""

    LOGGED = "logged"
    NOTICED = "noticed"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Case:
    """``made``: before the log is read; ``run``: while it is. ``{s}``: a schema of the case's own. ``table``: which is
    compared, in it. ``since``: the server's version that has the statement.
    """

    name: str
    run: tuple[str, ...]
    outcome: Outcome
    made: tuple[str, ...] = ("CREATE TABLE {s}.t (id int PRIMARY KEY, v text)", "INSERT INTO {s}.t VALUES (1, 'a')")
    table: str = "t"
    since: int = 13


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
    Case("truncate", ("TRUNCATE {s}.t RESTART IDENTITY CASCADE", "INSERT INTO {s}.t VALUES (2)"), _LOGGED),
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
