"""The doctor's findings about a server's tables. :func:`read_tables` queries the server; :func:`findings` is pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from datastores.mysql.server.bounded_connection import MOST_LISTING_BYTES
from datastores.mysql.server.connection import query
from datastores.mysql.server.settings import Settings
from datastores.mysql.sql_text import quoted
from wormhole.model.findings import Finding, Severity

__all__ = ["Cascade", "TableFacts", "findings", "parse_cascades", "read_tables"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM

_SHOWN: Final = 5
_SYSTEM: Final = ("mysql", "sys", "information_schema", "performance_schema")
_TRANSACTIONAL: Final = frozenset({"INNODB", "ROCKSDB", "TOKUDB", "NDBCLUSTER"})
# Character sets without a codec in Python. Their columns are delivered as bytes.
_UNREADABLE: Final = ("armscii8", "dec8", "eucjpms", "geostd8", "keybcs2", "swe7")
_CASCADED_ROWS_LOGGED: Final = (9, 6, 0)
_CHANGING: Final = ("CASCADE", "SET NULL", "SET DEFAULT")
_MORE: Final = "docs/mysql.md lists what else changes rows without a row in the log"
_RULE: Final = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT|RESTRICT|NO ACTION)")
_FOREIGN_KEY: Final = re.compile(
    rf"^ *CONSTRAINT `(?P<name>(?:[^`]|``)+)` FOREIGN KEY \(.+?\) REFERENCES (?P<parent>\S+) \(.+?\)(?P<rules>(?: {_RULE.pattern})*)",  # noqa: E501
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key by which InnoDB changes this table's rows.

    ``rules``: the rules that change rows, such as ``ON DELETE CASCADE``."""

    name: str
    parent: str
    rules: str


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table outside the system's databases.

    ``key_columns``: the number of columns of the key in the log; 0: no key. ``unreadable``: columns whose character set
    cannot be decoded, with its name. ``rows``: the server's estimate; ``None``: it has none.
    """

    database: str
    table: str
    engine: str = "InnoDB"
    key_columns: int = 1
    cascades: tuple[Cascade, ...] = ()
    unreadable: tuple[str, ...] = ()
    rows: int | None = None

    @property
    def name(self) -> str:
        """``database.table``, for people."""
        return f"{self.database}.{self.table}"

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return ".".join(quoted(part) for part in (self.database, self.table))


def findings(settings: Settings, tables: Sequence[TableFacts]) -> Iterator[Finding]:
    """Findings on the tables that the account can see."""
    yield from _keys(settings, tables)
    yield from _cascades(settings, tables)
    yield from _engines(tables)
    yield from _charsets(tables)


def _keys(settings: Settings, tables: Sequence[TableFacts]) -> Iterator[Finding]:
    keyless = [table for table in tables if not table.key_columns]
    if not keyless:
        yield Finding("primary_key", OK, f"all {len(tables)} tables have a key")
        return
    hidden = not settings.mariadb and settings.version >= (8, 0, 23)
    column = "my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT" + (" INVISIBLE" if hidden else "") + " PRIMARY KEY"
    yield Finding(
        "primary_key",
        WARN,
        f"without a primary key, or a unique one that is NOT NULL: {_some([table.name for table in keyless])}",
        "their updates have no key: they contain whole rows, in one shard, and equal rows cannot be distinguished",
        f"ALTER TABLE {keyless[0].sql} ADD COLUMN {column};\nor make a column that is unique already the key",
    )


def _cascades(settings: Settings, tables: Sequence[TableFacts]) -> Iterator[Finding]:
    logged = (
        not settings.mariadb
        and settings.version >= _CASCADED_ROWS_LOGGED
        and not settings.flag("innodb_native_foreign_keys")
    )
    found = [(table, cascade) for table in tables for cascade in table.cascades]
    if not found:
        yield Finding("foreign_keys", OK, "no foreign key changes rows of other tables")
    elif logged:
        yield Finding("foreign_keys", OK, f"{len(found)} foreign keys change rows of other tables, which are logged")
    else:
        texts = [f"{table.name}.{cascade.name} ({cascade.rules}, from {cascade.parent})" for table, cascade in found]
        table, first = found[0]
        ever = "MariaDB's log never has them" if settings.mariadb else "they are not logged before MySQL 9.6"
        yield Finding(
            "foreign_keys",
            PROBLEM,
            f"foreign keys that change rows of other tables: {_some(texts)}",
            f"InnoDB makes these changes below the log ({ever}): no subscriber gets them, and nothing reports it",
            f"ALTER TABLE {table.sql} DROP FOREIGN KEY {quoted(first.name)};\nand add it again without {first.rules}; "
            "change the rows in the application"
            + ("" if settings.mariadb else ", or upgrade to MySQL 9.6")
            + f"; {_MORE}",
        )


def _engines(tables: Sequence[TableFacts]) -> Iterator[Finding]:
    others: dict[str, list[TableFacts]] = defaultdict(list)
    for table in tables:
        if table.engine.upper() not in _TRANSACTIONAL:
            others[table.engine].append(table)
    for engine, found in sorted(others.items()):
        memory = engine.upper() == "MEMORY"
        yield Finding(
            "engine",
            WARN,
            f"{engine} is not transactional: {_some([table.name for table in found])}",
            "the table is empty after a restart of the server, which subscribers get as a truncate"
            if memory
            else "a statement that fails or is rolled back leaves rows behind, and a crash may lose rows that were "
            "delivered",
            f"ALTER TABLE {found[0].sql} ENGINE = InnoDB;",
        )
    if not others:
        yield Finding("engine", OK, "all tables are transactional")


def _charsets(tables: Sequence[TableFacts]) -> Iterator[Finding]:
    columns = [f"{table.name}.{column}" for table in tables for column in table.unreadable]
    if columns:
        table = next(table for table in tables if table.unreadable)
        yield Finding(
            "character_set",
            WARN,
            f"columns of character sets that cannot be decoded: {_some(columns)}",
            "they reach subscribers as bytes",
            f"ALTER TABLE {table.sql} CONVERT TO CHARACTER SET utf8mb4;",
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def read_tables(connection: Connection[DictCursor]) -> list[TableFacts]:
    """The tables outside the system's databases that the account can see.

    Raises :class:`~wormhole.model.errors.WormholeError`."""
    key_columns = Counter(
        (row["db"], row["tab"])
        for row in query(
            connection,
            # Without a primary key, the first unique index without NULL or prefix is the logged key, marked here.
            "SELECT table_schema AS db, table_name AS tab FROM information_schema.columns"
            " WHERE column_key = 'PRI' AND table_schema NOT IN %s",
            (_SYSTEM,),
            most_bytes=MOST_LISTING_BYTES,
        )
    )
    cascades = _read_cascades(connection)
    unreadable: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in query(
        connection,
        "SELECT table_schema AS db, table_name AS tab, column_name AS col, character_set_name AS charset"
        " FROM information_schema.columns WHERE character_set_name IN %s AND table_schema NOT IN %s"
        " ORDER BY table_schema, table_name, ordinal_position",
        (_UNREADABLE, _SYSTEM),
        most_bytes=MOST_LISTING_BYTES,
    ):
        unreadable[row["db"], row["tab"]].append(f"{row['col']} ({row['charset']})")
    tables = query(
        connection,
        "SELECT table_schema AS db, table_name AS tab, engine AS engine, table_rows AS amount"
        " FROM information_schema.tables"
        " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND table_schema NOT IN %s ORDER BY 1, 2",
        (_SYSTEM,),
        most_bytes=MOST_LISTING_BYTES,
    )
    return [
        TableFacts(
            database=row["db"],
            table=row["tab"],
            engine=row["engine"] or "unknown",
            key_columns=key_columns[row["db"], row["tab"]],
            cascades=cascades.get((row["db"], row["tab"]), ()),
            unreadable=tuple(unreadable[row["db"], row["tab"]]),
            rows=row["amount"],
        )
        for row in tables
    ]


def _read_cascades(connection: Connection[DictCursor]) -> dict[tuple[str, str], tuple[Cascade, ...]]:
    # An account with only SELECT cannot read the table of the rules. It can read which tables have foreign keys, and
    # the definitions of tables.
    rows = query(
        connection,
        "SELECT DISTINCT table_schema AS db, table_name AS tab FROM information_schema.key_column_usage"
        " WHERE referenced_table_name IS NOT NULL AND table_schema NOT IN %s",
        (_SYSTEM,),
        most_bytes=MOST_LISTING_BYTES,
    )
    found = {}
    for row in rows:
        shown = query(connection, f"SHOW CREATE TABLE {quoted(row['db'])}.{quoted(row['tab'])}")
        found[row["db"], row["tab"]] = parse_cascades(str(shown[0]["Create Table"]))
    return found


def parse_cascades(create_table: str) -> tuple[Cascade, ...]:
    """The foreign keys in a ``SHOW CREATE TABLE`` whose rules change rows."""
    return tuple(
        Cascade(match["name"].replace("``", "`"), match["parent"].replace("`", ""), rules)
        for match in _FOREIGN_KEY.finditer(create_table)
        if (rules := " ".join(rule for rule in _RULE.findall(match["rules"]) if rule.endswith(_CHANGING)))
    )
