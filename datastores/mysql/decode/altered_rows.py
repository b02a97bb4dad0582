"""Finds each statement after which a table's rows differ from those in its log. Reads the words of its alterations, as
`datastores.mysql.decode.statement` does.

These changes are in the log only as statements, without rows: the values of a new column or of a column with a new
type, another key, and the rows that a partition adds or removes. An alteration that may change no rows (a column that
becomes longer) is included, because the statement lacks the column's former type. A dropped column is included if it
may be part of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from datastores.mysql.decode.lexer import Dialect, Name, Tokens
from datastores.mysql.decode.name_folding import fold_newest

__all__ = ["altered_tables"]

_ALWAYS: Final = frozenset(
    {("CONVERT", "TO"), ("CONVERT", "PARTITION"), ("CONVERT", "TABLE"), ("RENAME", "COLUMN")}
    | {("EXCHANGE", "PARTITION"), ("IMPORT", "PARTITION"), ("IMPORT", "TABLESPACE"), ("DROP", "PRIMARY")}
    # No barrier, because it would empty the table, and the rows of other partitions remain.
    | {("TRUNCATE", "PARTITION"), ("DROP", "PARTITION"), ("ADD", "SYSTEM")}
)
_PRIMARY: Final = frozenset({"PRIMARY"})
_UNIQUE: Final = frozenset({"UNIQUE"})
_NO_COLUMN: Final = frozenset(
    {"INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "FOREIGN", "CHECK", "PARTITION", "PERIOD", "VECTOR"}
)
_INDEXES: Final = frozenset({"INDEX", "KEY", "CONSTRAINT"})
_MAYBE_NO_COLUMN: Final = frozenset({"FOREIGN", "CHECK", "PERIOD", "SYSTEM"})
_GIVES_VALUES: Final = frozenset({"DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "TIMESTAMP", "SERIAL"})
"""The words after which a new column has values that are not NULL. Some servers give a TIMESTAMP a value themselves."""


def altered_tables(
    sql: str,
    database: str,
    dialect: Dialect,
    keyless: Callable[[str, str], bool] = lambda *_: False,
    key: Callable[[str, str], frozenset[str] | None] = lambda *_: None,
) -> list[tuple[str, str]]:
    """The tables whose rows change, as (database, table), unless the name is unreadable.

    ``keyless``: returns whether a table was seen without a key; a new unique index may become its key. ``key``: returns
    the folded names of the key's columns; ``None``: unknown.
    """
    tokens = Tokens(sql, dialect)
    if tokens.skip("DROP"):
        return _unindexed(tokens, database)
    if tokens.skip("CREATE"):
        return _indexed(tokens, database, keyless)
    if not tokens.skip("ALTER"):
        return []
    changes = False
    while tokens.word in ("ONLINE", "IGNORE"):  # IGNORE deletes duplicates
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
    keyed = [key(*name) for name in _readable(names)]
    columns = keyed[0] if keyed else None
    while tokens.kind and not changes:
        exchanges = tokens.word == "EXCHANGE"
        changes = _changes(tokens, words, columns)
        while exchanges and tokens.kind and not tokens.skip("TABLE"):
            tokens.next()
        if exchanges:
            names.append(tokens.table(database))
    return _readable(names) if changes else []


def _indexed(tokens: Tokens, database: str, keyless: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """The table of ``CREATE [OR REPLACE] UNIQUE INDEX ... ON table`` if the index may become its key."""
    tokens.skip("OR", "REPLACE")
    if not tokens.skip("UNIQUE"):
        return []
    while tokens.kind and not tokens.skip("ON"):
        tokens.next()
    return [name for name in _readable([tokens.table(database)]) if keyless(*name)]


def _unindexed(tokens: Tokens, database: str) -> list[tuple[str, str]]:
    """The table of ``DROP INDEX `PRIMARY` ON table``."""
    if tokens.word != "INDEX" or not _drops_primary(tokens) or not tokens.skip("ON"):
        return []
    return _readable([tokens.table(database)])


def _drops_primary(tokens: Tokens) -> bool:
    """Read the word ``INDEX`` and a name. Returns whether that is the name of a primary key."""
    tokens.next()
    tokens.skip("IF", "EXISTS")
    return (tokens.name() or "").upper() == "PRIMARY"


def _drops_of_key(tokens: Tokens, key: frozenset[str] | None) -> bool:
    """Read the object of ``DROP``. Returns whether the rows may have another key afterwards. A unique index that lost a
    column may become the key of a table without a key."""
    if tokens.word in _INDEXES:
        return _drops_primary(tokens)
    if not key and tokens.word in _MAYBE_NO_COLUMN:
        return False
    tokens.skip("COLUMN")
    tokens.skip("IF", "EXISTS")
    name = tokens.name()
    return name is None or not key or fold_newest(name) in key


def _readable(names: Iterable[Name]) -> list[tuple[str, str]]:
    return [(database, table) for database, table in names if database is not None and table is not None]


def _changes(tokens: Tokens, keys: frozenset[str], key: frozenset[str] | None) -> bool:
    """Read one alteration and the comma after it. Returns whether it changes rows. ``keys``: words that begin a key's
    constraint. ``key``: see :func:`altered_tables`."""
    first = tokens.word
    tokens.next()
    if (first, tokens.word) in _ALWAYS or first in ("MODIFY", "CHANGE") or (first == "ADD" and tokens.word in keys):
        return True
    if first == "DROP" and _drops_of_key(tokens, key):
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
