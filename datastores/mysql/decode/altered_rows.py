"""Which ALTER TABLE leaves a table with other rows than its log has: by the words of its alterations, as
`datastores.mysql.decode.statement`.

Values of a column of another type, a new column's values, another key, and what a partition brings or leaves: the log
has the statement alone. What only may change nothing (a column that gets longer) counts as well: the statement does not
contain what the column was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from datastores.mysql.decode.lexer import Dialect, Name, Tokens

__all__ = ["altered_tables"]

_ALWAYS: Final = frozenset(
    {("CONVERT", "TO"), ("CONVERT", "PARTITION"), ("CONVERT", "TABLE"), ("RENAME", "COLUMN")}
    | {("EXCHANGE", "PARTITION"), ("IMPORT", "PARTITION"), ("IMPORT", "TABLESPACE"), ("DROP", "PRIMARY")}
    # The barrier stands for an empty table, and the rows of other partitions are there.
    | {("TRUNCATE", "PARTITION"), ("DROP", "PARTITION"), ("ADD", "SYSTEM")}
)
_PRIMARY: Final = frozenset({"PRIMARY"})
_UNIQUE: Final = frozenset({"UNIQUE"})
_NO_COLUMN: Final = frozenset(
    {"INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "FOREIGN", "CHECK", "PARTITION", "PERIOD", "VECTOR"}
)
_GIVES_VALUES: Final = frozenset({"DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "TIMESTAMP", "SERIAL"})
"""What a new column has whose values are not NULL. Some servers give a TIMESTAMP one by themselves."""


def altered_tables(
    sql: str, database: str, dialect: Dialect, keyless: Callable[[str, str], bool] = lambda *_: False
) -> list[tuple[str, str]]:
    """The tables whose rows change, as (database, table), where the name can be read.

    ``keyless``: whether a table was seen without a key. A unique index may be the key of its rows from now on.
    """
    tokens = Tokens(sql, dialect)
    if tokens.skip("CREATE"):
        return _indexed(tokens, database, keyless)
    if not tokens.skip("ALTER"):
        return []
    changes = False
    while tokens.word in ("ONLINE", "IGNORE"):  # duplicates are deleted
        changes |= tokens.word == "IGNORE"
        tokens.next()
    if not tokens.skip("TABLE"):
        return []
    tokens.skip("IF", "EXISTS")
    names = [tokens.table(database)]
    if tokens.skip("WAIT"):
        tokens.next()
    else:
        tokens.skip("NOWAIT")
    words = _PRIMARY | _UNIQUE if any(keyless(*name) for name in _readable(names)) else _PRIMARY
    while tokens.kind and not changes:
        exchanges = tokens.word == "EXCHANGE"
        changes = _changes(tokens, words)
        while exchanges and tokens.kind and not tokens.skip("TABLE"):
            tokens.next()
        if exchanges:
            names.append(tokens.table(database))
    return _readable(names) if changes else []


def _indexed(tokens: Tokens, database: str, keyless: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """``CREATE [OR REPLACE] UNIQUE INDEX ... ON table``."""
    tokens.skip("OR", "REPLACE")
    if not tokens.skip("UNIQUE"):
        return []
    while tokens.kind and not tokens.skip("ON"):
        tokens.next()
    return [name for name in _readable([tokens.table(database)]) if keyless(*name)]


def _readable(names: Iterable[Name]) -> list[tuple[str, str]]:
    return [(database, table) for database, table in names if database is not None and table is not None]


def _changes(tokens: Tokens, keys: frozenset[str]) -> bool:
    """Read one alteration and the comma behind it; whether it changes rows. ``keys``: words of constraints that make a
    key."""
    first = tokens.word
    tokens.next()
    if (first, tokens.word) in _ALWAYS or first in ("MODIFY", "CHANGE") or (first == "ADD" and tokens.word in keys):
        return True
    wanted = frozenset[str]()
    if first == "ADD" and tokens.skip("CONSTRAINT"):
        wanted = keys
    elif first == "ADD" and tokens.word not in _NO_COLUMN:
        wanted = _GIVES_VALUES | (keys & _UNIQUE)
        tokens.skip("COLUMN")
        tokens.skip("IF", "NOT", "EXISTS")
    depth = 0
    while tokens.kind and (depth > 0 or tokens.word != ","):
        word = tokens.word
        depth += {"(": 1, ")": -1}.get(word, 0)
        tokens.next()
        if word in wanted and not (word == "DEFAULT" and tokens.word == "NULL"):
            return True
    tokens.next()
    return False
