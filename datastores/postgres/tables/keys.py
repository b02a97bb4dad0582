"""Reads from the catalogue those keys that the log lacks or holds incompletely."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from datastores.postgres.decode.catalogue_keys import CatalogueColumn, CatalogueKey, LoggedKeys
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.key_indexes import AT_ONCE
from datastores.postgres.server.lsn import format_lsn, parse_lsn
from datastores.postgres.sql_text import quote_literal

__all__ = ["SeenKeys", "generated_keys", "logged_keys_until", "read_key"]

_NEVER: Final = (1 << 31) - 1
# A catalogue row has the id of the transaction that wrote it (xmin). After 2^31 transactions such an id seems to be in
# the future. The row of a table's `ctid` column is as old as the table. The rows of constraints and indexes are written
# again, but the rows of a constraint's dependencies on its columns are not. Every transaction before a slot's
# `catalog_xmin` ended before the slot's confirmed place.
_KEY: Final = """\
WITH known AS (SELECT coalesce(min(age(s.catalog_xmin)), {never}) AS age FROM pg_replication_slots s
    WHERE s.slot_type = 'logical' AND s.confirmed_flush_lsn <= {place}),
made AS (SELECT m.xmin AS id FROM pg_attribute m WHERE m.attrelid = {number} AND m.attnum = -1),
key AS (SELECT k.oid, k.conkey, (SELECT d.xmin FROM pg_depend d WHERE d.classid = 'pg_constraint'::regclass
    AND d.objid = k.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.conrelid AND d.refobjsubid > 0
    LIMIT 1) AS id FROM pg_constraint k JOIN pg_index i ON i.indexrelid = k.conindid
    WHERE k.conrelid = {number} AND k.contype = 'p' AND {at_once})
SELECT a.attnum, a.attname, a.atttypid, a.attnum = ANY (key.conkey),
    age(a.xmin) NOT BETWEEN 0 AND known.age OR a.xmin = made.id, a.attisdropped, a.attgenerated <> '',
    a.xmin = key.id, key.oid, age(key.id) NOT BETWEEN 0 AND known.age OR key.id = made.id
FROM pg_class c CROSS JOIN known CROSS JOIN made LEFT JOIN key ON true
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.oid = {number} ORDER BY a.attnum"""


def read_key(connection: Connection, number: int, place: int, seen: SeenKeys) -> CatalogueKey | None:
    """The columns and the primary key of the table with the OID ``number``; ``None``: the table no longer exists.

    The OID is used because another table may now have the name. ``place``: the LSN of the decoded transaction's commit.

    Raises as :meth:`~datastores.postgres.server.connection.Connection.query`, and ``ValueError`` for a malformed
    answer.
    """
    at = quote_literal(format_lsn(place))
    rows = connection.query(_KEY.format(place=at, never=_NEVER, number=number, at_once=AT_ONCE))
    if not rows:
        return None
    columns = tuple(
        CatalogueColumn(int(at), name or "", int(kind or 0), *(flag == "t" for flag in flags))
        for at, name, kind, *flags, _, _ in rows
        if at is not None
    )
    *_, constraint, settled = rows[0]
    key = int(constraint or 0)
    return CatalogueKey(columns, key, settled == "t" or seen.was_there(number, key, place))


def generated_keys(connection: Connection) -> dict[int, tuple[str, tuple[str, ...]]]:
    """The tables whose key in the log has generated columns: by OID, the name (``schema.table``) and these columns.

    Servers before 18 leave generated columns out of the log. Later servers do so unless the publication includes them.

    Raises as :meth:`~datastores.postgres.server.connection.Connection.query`, and ``ValueError`` for a malformed
    answer.
    """
    rows = connection.query(
        "SELECT c.oid, n.nspname, c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_index i ON i.indrelid = c.oid "
        "AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attgenerated <> '' AND a.attnum = ANY (i.indkey) "
        "WHERE c.relkind IN ('r', 'p') ORDER BY 2, 3, a.attnum"
    )
    found: dict[int, tuple[str, tuple[str, ...]]] = {}
    for number, schema, table, column in rows:
        _, before = found.get(int(number or 0), ("", ()))
        found[int(number or 0)] = (f"{schema}.{table}", (*before, column or ""))
    return found


def logged_keys_until(connection: Connection) -> tuple[int, LoggedKeys]:
    """A place of the log, and the keys that held for transactions committed before it. Raises as
    :func:`generated_keys`.
    """
    ((end,),) = connection.query("SELECT pg_current_wal_insert_lsn()")
    generated = {number: columns for number, (_, columns) in generated_keys(connection).items()}
    repeated = connection.query(
        "SELECT c.oid FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid "  # noqa: S608
        "AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END "
        f"WHERE c.relkind = 'p' AND NOT {AT_ONCE}"
    )
    return parse_lsn(end or ""), LoggedKeys(generated, frozenset(int(number or 0) for (number,) in repeated))


_MOST_LOST: Final = 1 << 16


class SeenKeys:
    """The places since which tables have their keys, for keys that the log does not contain. The decoded log does not
    show a change of such a key.

    Each reading of the server's state records the log's end, and the primary keys of tables with REPLICA IDENTITY FULL
    and NOTHING. A change of a key waits for the transactions that wrote the table, and these wait for the change. So a
    key that existed when the log ended at a place applies to every transaction committed after that place, as long as
    it exists. Tables and constraints are identified by OID. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnation = 0
        self._since: dict[int, tuple[int, int]] = {}  # by table: a place, and the key; 0: the key was dropped

    def note(self, incarnation: int, end: int, keys: Mapping[int, int]) -> None:
        """Record the keys that exist while the log ends at ``end`` or shortly before it reaches ``end``."""
        with self._lock:
            if incarnation != self._incarnation:
                self._since.clear()
                self._incarnation = incarnation
            for table, key in keys.items():
                if self._since.get(table, (0, 0))[1] != key:
                    self._since[table] = end, key
            lost = [table for table, (_, key) in self._since.items() if key and table not in keys]
            self._since.update((table, (end, 0)) for table in lost)
            if len(self._since) - len(keys) > _MOST_LOST:
                self._since = {table: since for table, since in self._since.items() if since[1]}

    def was_there(self, table: int, key: int, place: int) -> bool | None:
        """Whether the table's present key (0: none) was its key in a transaction committed at ``place``; ``None``:
        unknown."""
        with self._lock:
            since, seen = self._since.get(table, (0, -1))
        if seen == key:
            return since <= place
        return False if seen > 0 and not key else None
