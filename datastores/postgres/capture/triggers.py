"""Reads which tables the triggers record, and what prevents the recording of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from datastores.postgres.capture.statements import TRIGGER, TRUNCATES
from datastores.postgres.server.connection import Connection, Row
from datastores.postgres.server.key_indexes import KEY_INDEX
from datastores.postgres.sql_text import quote_literal
from wormhole.model.problem import Problem

__all__ = ["TableState", "captured_tables", "read_tables", "troubles"]

_FIRES_ALWAYS: Final = "A"
_SYSTEM: Final = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in the catalogue. ``root``: it is no partition. ``rows``, ``truncates``: when its two triggers fire;
    empty: it has no such trigger. ``obstacle``: why its changes cannot be recorded; empty: they can. ``earlier``:
    another trigger whose name sorts before ours.
    """

    schema: str
    table: str
    root_schema: str
    root_table: str
    partitioned: bool
    rows: str
    truncates: str
    key_columns: int
    estimate: int | None
    obstacle: str
    earlier: str

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.table}"

    @property
    def root(self) -> bool:
        """Whether it is no partition of another table."""
        return (self.schema, self.table) == (self.root_schema, self.root_table)

    @property
    def lacks_rows(self) -> bool:
        """Whether the row trigger is missing or does not always fire."""
        return self.rows != _FIRES_ALWAYS

    @property
    def lacks_truncates(self) -> bool:
        """Whether the TRUNCATE trigger is missing or does not always fire."""
        return self.truncates != _FIRES_ALWAYS


def read_tables(connection: Connection, schema: str) -> list[TableState]:
    """The database's tables by name, without the system's and ours."""

    def fires(name: str, function: str) -> str:
        return (
            f"(SELECT t.tgenabled FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace m "  # noqa: S608
            f"ON m.oid = p.pronamespace WHERE t.tgrelid = c.oid AND t.tgname = {quote_literal(name)} AND "
            f"p.proname = '{function}' AND m.nspname = {quote_literal(schema)})"
        )

    rows = connection.query(
        f"""SELECT n.nspname, c.relname, m.nspname, r.relname, (c.relkind = 'p')::int,
  {fires(TRIGGER, "record")}, {fires(TRUNCATES, "truncated")},
  coalesce((SELECT i.indnkeyatts FROM pg_index i WHERE i.indrelid = r.oid AND
    {KEY_INDEX.replace("c.", "r.")}), 0),
  CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END,
  CASE WHEN c.relpersistence <> 'p' THEN 'it is unlogged or temporary, and loses rows without a trigger'
    WHEN NOT pg_has_role(c.relowner, 'USAGE') THEN 'it belongs to ' || pg_get_userbyid(c.relowner)
    WHEN n.nspname LIKE '%.%' OR c.relname LIKE '%.%' THEN 'its name has a dot' ELSE '' END,
  coalesce((SELECT min(t.tgname) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 2 = 0
    AND t.tgname < {quote_literal(TRIGGER)}), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class r ON r.oid = coalesce(pg_partition_root(c.oid), c.oid) JOIN pg_namespace m ON m.oid = r.relnamespace
WHERE c.relkind IN ('r', 'p') AND {_SYSTEM} AND n.nspname <> {quote_literal(schema)}
ORDER BY 1, 2"""  # noqa: S608
    )
    return [_state(row) for row in rows]


def _state(row: Row) -> TableState:
    schema, table, root_schema, root_table, partitioned, fires, truncates, keys, estimate, obstacle, earlier = row
    return TableState(
        schema or "",
        table or "",
        root_schema or "",
        root_table or "",
        partitioned == "1",
        fires or "",
        truncates or "",
        int(keys or 0),
        None if estimate is None else int(estimate),
        obstacle or "",
        earlier or "",
    )


def captured_tables(connection: Connection, schema: str) -> list[tuple[str, str]]:
    """Schema and name, as in updates, of the tables whose changes are recorded."""
    found = read_tables(connection, schema)
    return sorted({(one.root_schema, one.root_table) for one in found if one.rows})


def troubles(connection: Connection, schema: str) -> tuple[Problem, ...]:
    """The problems of the triggers: of a table that is recorded in part, one is missing or disabled."""
    found = read_tables(connection, schema)
    ours = {(one.root_schema, one.root_table) for one in found if one.rows or one.truncates}
    meant = [one for one in found if (one.root_schema, one.root_table) in ours]
    lacking = [one.name for one in meant if one.lacks_rows or one.lacks_truncates]
    early = [one.name for one in meant if one.earlier]
    problems = []
    if lacking:
        problems.append(
            Problem(
                f"changes of {_named(lacking)} are not recorded, or not all of them: a trigger is missing or disabled",
                "run `wormholectl capture install`, and compare the rows (docs/postgres-capture.md)",
                code="objects-missing",
            )
        )
    if early:
        problems.append(
            Problem(
                f"triggers of {_named(early)} have names that sort before {TRIGGER}",
                "rename them: changes that they make are recorded before the change that fired them",
                code="objects-missing",
            )
        )
    return tuple(problems)


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} others" if len(names) > _SHOWN else shown
