"""Reads a database's tables: whether each is published, and whether its key reaches the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from datastores.postgres.server.connection import Connection
from datastores.postgres.server.key_indexes import KEY_INDEX
from datastores.postgres.server.versions import FILTERS_SINCE, GENERATED_SINCE
from datastores.postgres.sql_text import quote_literal, sql_name

__all__ = [
    "MOST_NAMED",
    "Published",
    "Refusal",
    "Relation",
    "TableIdentity",
    "named",
    "read_tables",
    "refusal_of",
]

MOST_NAMED: Final = 8
"""The most tables that a message names."""
_TIMEOUT_S: Final = 60.0
_KEY_HIDDEN: Final = (
    "a generated column in the key, which a server before 18 leaves out of the log: its shard would halt at the first "
    "change"
)


class Refusal(Enum):
    """Why the server refuses UPDATE and DELETE of a table that is published."""

    NO_KEY = "no primary key, and REPLICA IDENTITY DEFAULT"
    DEFERRABLE = "a DEFERRABLE primary key, which does not identify a row"
    NOTHING = "REPLICA IDENTITY NOTHING"
    INDEX_GONE = "a REPLICA IDENTITY whose index is gone"
    ROW_FILTER = "a row filter of the publication that uses columns outside of the key"
    COLUMN_LIST = "a column list of the publication without the whole key"
    GENERATED = "generated columns that the publication leaves out"
    VIRTUAL = "virtual generated columns and REPLICA IDENTITY FULL"


@dataclass(frozen=True, slots=True)
class Published:
    """A publication's entry for a relation. ``columns``: its column list; ``None``: none. ``filtered_by``: the columns
    that its row filter uses. ``generated``: whether stored generated columns are sent.
    """

    changes: bool = True
    columns: frozenset[str] | None = None
    filtered_by: frozenset[str] = frozenset()
    generated: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table with its own rows: a partition, or a table without partitions. ``identity``: ``d`` default, ``n``
    nothing, ``f`` full, ``i`` an index. ``key``: the columns of the index that the server uses for this identity.
    """

    schema: str
    name: str
    identity: str
    key: frozenset[str] = frozenset()
    deferrable: bool = False
    stored: frozenset[str] = frozenset()
    virtual: bool = False

    @property
    def sql_name(self) -> str:
        """The table's name in SQL."""
        return sql_name(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """``identity``: see :class:`Relation`. ``key_columns``: the number of columns of the log's key; with FULL, of the
    primary key. ``rows``: the approximate number. ``published``: by this publication. ``readable``: the account has
    SELECT. ``key_hidden``: the key has a generated column, which this server version leaves out of the log.

    ``refusal``: why the server refuses changes of the table as published now; ``None``: it does not, or the table is
    not published. ``would_refuse``: why the server would refuse changes if the table were added. ``culprit``: the
    partition or table with that reason. ``only``: other tables inherit from this one, and are listed separately.
    """

    schema: str
    name: str
    identity: str
    key_columns: int
    rows: int
    published: bool
    readable: bool
    refusal: Refusal | None = None
    would_refuse: Refusal | None = None
    culprit: Relation | None = None
    only: bool = False
    key_hidden: bool = False

    @property
    def obstacle(self) -> str:
        """Why the setup does not publish the table; empty: it may publish it."""
        if self.would_refuse is not None:
            return f"{self.would_refuse.value}: the server would refuse every UPDATE and DELETE"
        return _KEY_HIDDEN if self.key_hidden else ""

    @property
    def sql_name(self) -> str:
        """The table's name in SQL."""
        return sql_name(self.schema, self.name)

    @property
    def listed_name(self) -> str:
        """The table's name in a publication's list: with ONLY if other tables inherit from it, because these would be
        added too.
        """
        return f"ONLY {self.sql_name}" if self.only else self.sql_name


def refusal_of(table: Relation, published: Published, version: int) -> Refusal | None:
    """Why a server of this ``version`` refuses UPDATE or DELETE of a table that is ``published``; ``None``: it does
    not.

    The rules and their order are from the server's source: ``CheckCmdReplicaIdentity`` and, since 15,
    ``pub_rf_contains_invalid_column`` and ``pub_contains_invalid_column``.
    """
    if not published.changes:
        return None
    full = table.identity == "f"
    if published.filtered_by and not full and not published.filtered_by <= table.key:
        return Refusal.ROW_FILTER
    if published.columns is not None and (full or not table.key <= published.columns):
        return Refusal.COLUMN_LIST
    if version >= GENERATED_SINCE:
        if full and table.virtual:
            return Refusal.VIRTUAL
        hidden = frozenset() if published.generated or published.columns is not None else table.stored
        if hidden and (full or hidden & table.key):
            return Refusal.GENERATED
    if full or table.key:
        return None
    if table.identity == "d":
        return Refusal.DEFERRABLE if table.deferrable else Refusal.NO_KEY
    return Refusal.NOTHING if table.identity == "n" else Refusal.INDEX_GONE


# The identity's index must be valid, unique, immediate and not partial.
_TABLES: Final = """\
WITH listed AS (SELECT p.oid AS publication, g.relid, p.pubupdate OR p.pubdelete AS changes, {generated} AS generated
    FROM pg_publication p CROSS JOIN LATERAL pg_get_publication_tables(p.pubname) g WHERE p.pubname = {publication}),
sent AS (SELECT DISTINCT ON (m.part) m.part, l.publication, l.relid, l.changes, l.generated
    FROM (SELECT oid AS part, oid AS listed FROM pg_class WHERE relkind IN ('r', 'p')
        UNION SELECT c.oid, a.relid FROM pg_class c CROSS JOIN LATERAL pg_partition_ancestors(c.oid) a
        WHERE c.relispartition) m
    JOIN listed l ON l.relid = m.listed ORDER BY m.part, m.listed <> m.part)
SELECT json_build_object(
'number', c.oid::bigint, 'root', CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::oid::bigint END,
'schema', n.nspname, 'name', c.relname, 'partitioned', c.relkind = 'p', 'identity', c.relreplident,
'only', c.relhassubclass AND c.relkind = 'r', 'rows', greatest(c.reltuples, 0)::bigint,
'readable', has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
'key', (SELECT json_agg(a.attname) FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, at)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number WHERE i.indrelid = c.oid
    AND k.at <= i.indnkeyatts AND i.indisvalid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END),
'key_columns', (SELECT i.indnkeyatts FROM pg_index i
    WHERE i.indrelid = c.oid AND c.relreplident <> 'n' AND {key_index}),
'generated_key', EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attgenerated <> ''
    AND a.attnum = ANY (i.indkey) WHERE i.indrelid = c.oid
    AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),
'deferrable', EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate),
'sends_generated', (SELECT {generated} FROM pg_publication p WHERE p.pubname = {publication}),
'generated', (SELECT json_agg(json_build_array(a.attname, a.attgenerated)) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''),
'published', CASE WHEN l.part IS NOT NULL THEN json_build_object('changes', l.changes, 'generated', l.generated,
    'columns', {columns}, 'filtered_by', {filtered_by}) END)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN sent l ON l.part = c.oid
LEFT JOIN pg_publication_rel r ON r.prpubid = l.publication AND r.prrelid = l.relid
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY n.nspname, c.relname"""
_COLUMNS: Final = """\
(SELECT json_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = l.relid AND a.attnum = ANY (r.prattrs::int2[]))"""
# PostgreSQL stores an expression as a tree of nodes. Its `:varattno` is a column's number; 0: the whole row.
_FILTERED_BY: Final = """\
(SELECT json_agg(coalesce(a.attname, '')) FROM regexp_matches(r.prqual::text, ':varattno (-?[0-9]+)', 'g') AS v (number)
    LEFT JOIN pg_attribute a ON a.attrelid = l.relid AND a.attnum = v.number[1]::int2)"""


def read_tables(connection: Connection, publication: str) -> list[TableIdentity]:
    """The permanent tables outside the system's schemas. A partitioned table is represented by its root.

    Raises as :meth:`~datastores.postgres.server.connection.Connection.query`, and ``ValueError`` for a malformed
    answer.
    """
    version = connection.version
    rows = connection.query(
        _TABLES.format(
            publication=quote_literal(publication),
            key_index=KEY_INDEX,
            columns=_COLUMNS if version >= FILTERS_SINCE else "NULL",
            filtered_by=_FILTERED_BY if version >= FILTERS_SINCE else "NULL",
            generated="p.pubgencols = 's'" if version >= GENERATED_SINCE else "false",
        ),
        timeout_s=_TIMEOUT_S,
    )
    found = [json.loads(text or "") for (text,) in rows]
    partitions: dict[int, list[dict[str, Any]]] = {}
    for one in found:
        if one["root"] is not None:
            partitions.setdefault(one["root"], []).append(one)
    return [_table(one, partitions.get(one["number"], []), version) for one in found if one["root"] is None]


def _table(root: dict[str, Any], partitions: Sequence[dict[str, Any]], version: int) -> TableIdentity:
    relation = _relation(root)
    parts = [root, *partitions]
    # A partitioned table has no rows. It still needs a key, because its partitions' rows are sent as its rows.
    with_rows = [one for one in partitions if not one["partitioned"]] if root["partitioned"] else [root]
    whole = [(relation, _identity_alone(relation))] if root["partitioned"] else []
    now = [(part, refusal_of(part, how, version)) for part, how in _as_published(with_rows)]
    # If no publication exists yet, the one that will be created sends generated columns.
    as_added = Published(generated=root["sends_generated"] is not False)
    added = [(part, refusal_of(part, as_added, version)) for part in map(_relation, with_rows)]
    published = any(one["published"] for one in parts)
    refused, culprit = _first([*now, *(whole if published else ())])
    would_refuse, would_be = _first([*added, *whole])
    return TableIdentity(
        relation.schema,
        relation.name,
        relation.identity,
        int(root["key_columns"] or 0),
        root["rows"],
        published,
        root["readable"],
        refused,
        would_refuse,
        culprit or would_be,
        root["only"],
        root["generated_key"] and version < GENERATED_SINCE,
    )


def _identity_alone(relation: Relation) -> Refusal | None:
    return refusal_of(relation, Published(generated=True), 0)


def _as_published(relations: Iterable[dict[str, Any]]) -> Iterable[tuple[Relation, Published]]:
    for one in relations:
        if how := one["published"]:
            columns = None if how["columns"] is None else frozenset(how["columns"])
            filtered_by = frozenset(how["filtered_by"] or ())
            yield _relation(one), Published(how["changes"], columns, filtered_by, how["generated"])


def _first(refusals: Iterable[tuple[Relation, Refusal | None]]) -> tuple[Refusal | None, Relation | None]:
    return next(((refusal, part) for part, refusal in refusals if refusal is not None), (None, None))


def _relation(facts: dict[str, Any]) -> Relation:
    generated = facts["generated"] or ()
    return Relation(
        facts["schema"],
        facts["name"],
        facts["identity"],
        frozenset(facts["key"] or ()),
        facts["deferrable"],
        frozenset(name for name, kind in generated if kind == "s"),
        any(kind == "v" for _, kind in generated),
    )


def named(tables: Sequence[TableIdentity]) -> str:
    """The names of the first tables, and the number of the others."""
    names = [f"{one.schema}.{one.name}" for one in tables[:MOST_NAMED]]
    more = len(tables) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
