"""A table's definition for a backfill: its columns, its key, and why its rows may be unreadable in chunks. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from datastores.postgres.decode.encodings import UTF8, Encoding
from datastores.postgres.decode.kinds import kind_of
from datastores.postgres.decode.messages import DEFAULT, INDEX, Relation, RelationColumn, TypeName
from datastores.postgres.decode.table import Table
from datastores.postgres.decode.tables import Tables, skips
from datastores.postgres.existing_rows.keys import PLAIN, PORTABLE, KeyColumn, column_of_row
from datastores.postgres.sql_text import quote_identifier, sql_name
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding

__all__ = ["Definition", "Wanted", "definition_of", "sql_name", "without_name"]

_PARTITIONED: Final = "p"
_TABLES: Final = frozenset({"r", _PARTITIONED})
_WORDS: Final = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
}
_PERMANENT: Final = "p"
_SIZED: Final = frozenset({"text", "varchar", "bpchar", "bytea", "citext"})
"""Types whose values' sizes the server knows without reading the values."""
_NOTHING: Final = Schema("", (), ())
_NO_TABLE: Final = Table("", (), (), (), (), schema=0, shard=0, barrier_schema=0, barrier_shard=0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The configuration that decides whether a table is read. ``account``: the session's account, for a GRANT."""

    log: str
    sharding: Sharding
    account: str
    publication: str
    skip_tables: frozenset[str] = frozenset()
    encoding: Encoding = UTF8


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's columns and key.

    ``source``: the FROM clause of a SELECT. ``asked``: the selected columns. ``filter``: the publication's row filter;
    empty: none. ``long``: columns, as SQL, whose values may exceed an update's limit. ``table`` and ``key_table``: how
    rows and keys are encoded. ``refused``: why the rows cannot be read; then only the names are valid.
    """

    name: str
    partitioned: bool = False
    source: str = ""
    rows: int | None = None
    asked: tuple[str, ...] = ()
    filter: str = ""
    long: frozenset[str] = frozenset()
    key: tuple[KeyColumn, ...] = ()
    schema: Schema = _NOTHING
    table: Table = field(default=_NO_TABLE, compare=False)
    key_table: Table = field(default=_NO_TABLE, compare=False)
    fingerprint: str = ""
    refused: Problem = NO_PROBLEM

    @property
    def portable(self) -> bool:
        """Whether the keys are ordered as integers or bytes."""
        return all(column.kind in PORTABLE and column.place == at for at, column in enumerate(self.key))


def without_name(name: str) -> Definition:
    """The definition of a table whose name cannot be used in a query."""
    return Definition(
        name,
        refused=Problem(
            f"{name}: its name has bytes that are no text in the database's encoding, shown as %81",
            "rename it, or copy its rows some other way",
            code="table-unreadable",
        ),
    )


def definition_of(row: Mapping[str, Any], wanted: Wanted) -> Definition:
    """The definition in a row of the catalogues (`datastores.postgres.existing_rows.catalogue`)."""
    schema, table = str(row["schema"]), str(row["table"])
    name = f"{schema}.{table}"
    partitioned = row["kind"] == _PARTITIONED
    rows = None if row["rows"] is None else int(row["rows"])
    published = _published(row["columns"], row["listed"], row["generated"])
    refused = (
        _not_published(row, wanted)
        or _left_out(schema, table, wanted)
        or _not_allowed(row, wanted)
        or _no_key(row, {column["number"] for column in published})
    )
    if refused:
        return Definition(name, partitioned, rows=rows, refused=refused)
    key_numbers = sorted(part["number"] for part in row["key"])
    by_number = {column["number"]: column for column in published}
    tables, relation = _learnt(schema, table, published, key_numbers, wanted)
    alone = [by_number[number] for number in key_numbers]
    key = tuple(_key_column(by_number[part["number"]], key_numbers, part) for part in row["key"])
    return Definition(
        name,
        partitioned,
        sql_name(schema, table) if partitioned else f"ONLY {sql_name(schema, table)}",
        rows,
        tuple(column_of_row(column["name"]) for column in published),
        row["filter"] or "",
        frozenset(
            column_of_row(column["name"])
            for column in published
            if _base(column)[1] in _SIZED and column["number"] not in key_numbers
        ),
        key,
        tables.schemas[relation.schema],
        relation,
        _learnt(schema, table, alone, key_numbers, wanted)[1],
        _fingerprint(row["number"], key),
    )


def _published(
    columns: Sequence[Mapping[str, Any]], listed: Sequence[int] | None, generated: str | None
) -> list[Mapping[str, Any]]:
    """The columns in the log. ``listed``: the publication's column list; ``None``: all columns that are not generated
    or are generated in the way that ``generated`` names.
    """
    if listed is None:
        return [column for column in columns if column["generated"] in {"", generated}]
    return [column for column in columns if column["number"] in listed]


def _not_published(row: Mapping[str, Any], wanted: Wanted) -> Problem:
    name, publication = f"{row['schema']}.{row['table']}", quote_identifier(wanted.publication)
    if row["kind"] not in _TABLES:
        return Problem(
            f"{name} is {_WORDS.get(row['kind'], 'no table')}, of which the log has nothing",
            "name the tables that its rows come from",
            code="table-left-out",
        )
    if row["persistence"] != _PERMANENT:
        return Problem(
            f"{name} is unlogged or temporary: the log has nothing of it",
            f"ALTER TABLE {sql_name(row['schema'], row['table'])} SET LOGGED;",
            code="table-left-out",
        )
    if row["root"]:
        return Problem(
            f"{name} is a partition, whose rows are delivered as those of {row['root']} (publish_via_partition_root)",
            f"name {row['root']}",
            code="table-left-out",
        )
    if row["kind"] == _PARTITIONED and row["published"] and not row["via_root"]:
        return Problem(
            f"{name} is partitioned, and its rows are delivered as those of its partitions",
            f"name the partitions, or: ALTER PUBLICATION {publication} SET (publish_via_partition_root = true);",
            code="table-left-out",
        )
    if not row["published"]:
        return Problem(
            f"{name} is not in the publication {wanted.publication}: the log has none of its changes",
            f"ALTER PUBLICATION {publication} ADD TABLE {sql_name(row['schema'], row['table'])};",
            code="table-left-out",
        )
    return NO_PROBLEM


def _left_out(schema: str, table: str, wanted: Wanted) -> Problem:
    name = f"{schema}.{table}"
    if "." in schema or "." in table:
        return Problem(
            f"{name}: the schema or the table has a dot in its name, and another table may have this name",
            "rename it, or copy its rows some other way",
            code="table-unreadable",
        )
    if skips(wanted.skip_tables, schema, table):
        return Problem(
            f"{name} is in skip_tables: nothing of it is delivered", "take it out of skip_tables", code="table-left-out"
        )
    return NO_PROBLEM


def _not_allowed(row: Mapping[str, Any], wanted: Wanted) -> Problem:
    name, account = f"{row['schema']}.{row['table']}", quote_identifier(wanted.account)
    grants = [
        *([] if row["usage"] else [f"GRANT USAGE ON SCHEMA {quote_identifier(row['schema'])} TO {account};"]),
        *([] if row["select"] else [f"GRANT SELECT ON {sql_name(row['schema'], row['table'])} TO {account};"]),
    ]
    if grants:
        return Problem(
            f"{name}: the account {wanted.account} may not read its rows",
            "\n".join(grants),
            code="account-lacks-rights",
        )
    if row["row_security"]:
        return Problem(
            f"{name}: row-level security hides rows from the account {wanted.account}",
            f"ALTER ROLE {account} BYPASSRLS;",
            code="account-lacks-rights",
        )
    return NO_PROBLEM


def _no_key(row: Mapping[str, Any], published: set[int]) -> Problem:
    name, alter = f"{row['schema']}.{row['table']}", f"ALTER TABLE {sql_name(row['schema'], row['table'])}"
    key = row["key"]
    if not key and row["identity"] == INDEX:
        return Problem(
            f"{name}: the index of its REPLICA IDENTITY is gone, so that the log has no key of its rows",
            f"{alter} REPLICA IDENTITY DEFAULT; for the primary key, or USING INDEX with another one",
            code="key-missing",
        )
    if not key:
        return Problem(
            f"{name} has no primary key that is checked at once: its rows cannot be read in chunks",
            f"{alter} ADD PRIMARY KEY (...); or, with a unique index of columns that are NOT NULL: {alter} REPLICA "
            "IDENTITY USING INDEX ...;",
            code="key-missing",
        )
    if not published.issuperset(part["number"] for part in key):
        return Problem(
            f"{name}: the publication leaves out a column of its key",
            "add the key to the publication's columns",
            code="key-missing",
        )
    return NO_PROBLEM


def _learnt(
    schema: str, table: str, columns: Sequence[Mapping[str, Any]], key: Sequence[int], wanted: Wanted
) -> tuple[Tables, Table]:
    """The columns and the table as the log's decoder builds them from a Relation message."""
    tables = Tables(wanted.log, wanted.sharding, encoding=wanted.encoding)
    for column in columns:
        if not column["built_in"]:
            tables.learn_type(TypeName(int(column["type"]), *_base(column)))
    described = tuple(
        RelationColumn(str(column["name"]), int(column["type"]), -1, column["number"] in key) for column in columns
    )
    return tables, tables.learn(Relation(0, schema, table, DEFAULT, described))


def _base(column: Mapping[str, Any]) -> tuple[str, str]:
    """Schema and name of a column type's base type. The schema of a built-in type is empty."""
    return str(column["base_schema"]), str(column["base"])


def _kind(column: Mapping[str, Any]) -> int:
    return kind_of(int(column["type"]), None if column["built_in"] else _base(column))


def _key_column(column: Mapping[str, Any], numbers: Sequence[int], part: Mapping[str, Any]) -> KeyColumn:
    return KeyColumn(
        str(column["name"]),
        numbers.index(column["number"]),
        _kind(column),
        str(column["cast"]),
        str(part["collation"] or ""),
        f"{column['declared']} {part['version'] or ''}",
        tuple(column["labels"] or ()),
        tuple(map(_operator, part["operators"])),
        str(column["under"] or ""),
    )


def _operator(name: str) -> str:
    """The operator ``schema.sign`` as SQL. A built-in operator is the sign alone."""
    sign = name.removeprefix("pg_catalog.")
    return sign if sign in PLAIN else f"OPERATOR({name})"


def _fingerprint(number: int, key: Sequence[KeyColumn]) -> str:
    """A key's fingerprint. ``number``: the table's OID, which distinguishes tables of the same name."""
    parts = [
        str(number),
        *(f"{one.name}\0{one.place}\0{one.declared}\0{one.collation}\0{one.labels}\0{one.operators}" for one in key),
    ]
    return hashlib.sha256("\1".join(parts).encode()).hexdigest()[:32]
