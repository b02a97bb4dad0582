"""Finds the effect of a logged statement on tables and transactions from its first words and the names.

In row format only ends of transactions, XA, and changes of the schema are logged as text. A statement that changes rows
(`Kind.DML`) shows that a server or a session logs statements, whose updates the log does not show.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from datastores.mysql.decode.lexer import Dialect, Name, Tokens
from datastores.mysql.decode.name_folding import savepoint_key
from datastores.mysql.decode.rare_events import Xid
from wormhole.model.errors import DecodeError

__all__ = ["Kind", "Statement", "classify"]


class Kind(enum.Enum):
    """The kind of a statement, by its effect."""

    BEGIN = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    SAVEPOINT = enum.auto()
    """A savepoint is set or released, which changes nothing."""
    ROLLBACK_TO = enum.auto()
    """The transaction's changes since a savepoint are undone, as far as the tables' engines permit."""
    XA_START = enum.auto()
    XA_END = enum.auto()
    XA_PREPARE = enum.auto()
    XA_COMMIT = enum.auto()
    XA_ROLLBACK = enum.auto()
    TRUNCATE = enum.auto()
    """All rows of the table are removed."""
    DELETE_ALL = enum.auto()
    """A ``DELETE`` of all rows, from a server that empties a MEMORY table after a restart, or from a session. A
    session's triggers may change more."""
    DROP_TABLE = enum.auto()
    """The tables or sequences are dropped, also by ``CREATE OR REPLACE``."""
    DROP_DATABASE = enum.auto()
    """The database is dropped, also by ``CREATE OR REPLACE DATABASE``."""
    RENAME_TABLE = enum.auto()
    """The tables are renamed, and no table has their old names any more.

    A name that another table gets in the same statement (a swap) is not in ``tables``."""
    TRUNCATE_PARTITION = enum.auto()
    DROP_PARTITION = enum.auto()
    ROWS_REPLACED = enum.auto()
    """Rows appear or disappear without being logged: a partition is exchanged or converted, a tablespace is discarded
    or imported, or the engine keeps no rows."""
    OTHER_DDL = enum.auto()
    DML = enum.auto()
    OTHER = enum.auto()


@dataclass(frozen=True, slots=True)
class Statement:
    """``tables``: (database, table) of tables that lose rows. For a dropped database the table is empty.

    ``unread``: the same for names that cannot be read; a database of ``None`` may be any. ``made``: tables that get
    their name with this statement. ``xid`` and ``one_phase``: the fields of XA; an ``xid`` of ``None`` cannot be read.
    ``savepoint``: the savepoint that is set or rolled back to. ``rows_follow``: the transaction continues with rows
    after this DDL (``CREATE TABLE ... START TRANSACTION``).
    """

    kind: Kind
    tables: tuple[tuple[str, str], ...] = ()
    unread: tuple[Name, ...] = ()
    made: tuple[tuple[str, str], ...] = ()
    xid: Xid | None = None
    one_phase: bool = False
    savepoint: str = ""
    rows_follow: bool = False


_ROWS_FOLLOW: Final = re.compile(r"\bSTART\s+TRANSACTION[\s;]*\Z", re.IGNORECASE)

# The words between ANALYZE and its tables. In MariaDB any other statement may follow ANALYZE.
_STATISTICS: Final = frozenset({"TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"})
_DML: Final = frozenset({"INSERT", "UPDATE", "REPLACE", "LOAD", "CALL", "WITH", "DO", "SELECT", "VALUES", "("})
_XA: Final = {
    "START": Kind.XA_START,
    "BEGIN": Kind.XA_START,
    "END": Kind.XA_END,
    "PREPARE": Kind.XA_PREPARE,
    "COMMIT": Kind.XA_COMMIT,
    "ROLLBACK": Kind.XA_ROLLBACK,
}
# The first words of alterations. After CHANGE or ADD, these words are names of columns.
_ALTERATIONS: Final = {
    ("TRUNCATE", "PARTITION"): Kind.TRUNCATE_PARTITION,
    ("DROP", "PARTITION"): Kind.DROP_PARTITION,
    ("EXCHANGE", "PARTITION"): Kind.ROWS_REPLACED,
    ("CONVERT", "PARTITION"): Kind.ROWS_REPLACED,
    ("CONVERT", "TABLE"): Kind.ROWS_REPLACED,
    ("DISCARD", "PARTITION"): Kind.ROWS_REPLACED,
    ("IMPORT", "PARTITION"): Kind.ROWS_REPLACED,
    ("DISCARD", "TABLESPACE"): Kind.ROWS_REPLACED,
    ("IMPORT", "TABLESPACE"): Kind.ROWS_REPLACED,
}
_OF_COLUMNS: Final = frozenset({"ADD", "ALTER", "CHANGE", "DROP", "MODIFY", "ORDER", "RENAME"})
_NOT_OF_THE_TABLE: Final = frozenset({"COLUMN", "INDEX", "KEY"})
_ANY_DATABASE: Final[tuple[Name, ...]] = ((None, None),)


def _lost(kind: Kind, names: Iterable[Name], *, made: Iterable[Name] = (), rows_follow: bool = False) -> Statement:
    tables: list[tuple[str, str]] = []
    unread: list[Name] = []
    for database, table in names:
        if database is None or table is None:
            unread.append((database, table))
        else:
            tables.append((database, table))
    return Statement(kind, tuple(tables), tuple(unread), _readable(made), rows_follow=rows_follow)


def _readable(names: Iterable[Name]) -> tuple[tuple[str, str], ...]:
    return tuple((database, table) for database, table in names if database is not None and table is not None)


def _xa(tokens: Tokens) -> Statement:
    kind = _XA.get(tokens.word)
    if kind is None:
        return Statement(Kind.OTHER)
    tokens.next()
    try:
        xid = _xid(tokens)
    except DecodeError:
        xid = None
    return Statement(kind, xid=xid, one_phase=tokens.word == "ONE")


def _xid(tokens: Tokens) -> Xid:
    gtrid = tokens.value()
    bqual = tokens.value() if tokens.skip(",") else b""
    format_id = 1
    if tokens.skip(","):
        if not tokens.word.isdecimal():
            raise DecodeError("the xid's format is no number")
        format_id = int(tokens.word[:20])
        tokens.next()
    return Xid(gtrid, bqual, format_id)


def _database(tokens: Tokens) -> Statement:
    tokens.skip("IF", "EXISTS")
    name = tokens.name()
    return Statement(Kind.DROP_DATABASE, ((name, ""),)) if name else Statement(Kind.DROP_DATABASE, unread=_ANY_DATABASE)


def _drop(tokens: Tokens, database: str) -> Statement:
    if tokens.skip("DATABASE") or tokens.skip("SCHEMA"):
        return _database(tokens)
    if tokens.skip("TABLE") or tokens.skip("TABLES") or tokens.skip("SEQUENCE"):
        tokens.skip("IF", "EXISTS")
        return _lost(Kind.DROP_TABLE, tokens.tables(database))
    return Statement(Kind.OTHER_DDL)


def _create(tokens: Tokens, database: str) -> Statement:
    replaces = tokens.skip("OR", "REPLACE")
    if replaces and (tokens.skip("DATABASE") or tokens.skip("SCHEMA")):
        return _database(tokens)
    if not (tokens.skip("TABLE") or tokens.skip("SEQUENCE")):
        return Statement(Kind.OTHER_DDL)
    rows_follow = _ROWS_FOLLOW.search(tokens.sql) is not None
    tokens.skip("IF", "NOT", "EXISTS")
    table = tokens.table(database)
    if _has_query(tokens):
        return Statement(Kind.DML, made=_readable([table]))
    if replaces:
        return _lost(Kind.DROP_TABLE, [table], made=[table], rows_follow=rows_follow)
    return Statement(Kind.OTHER_DDL, made=_readable([table]), rows_follow=rows_follow)


def _has_query(tokens: Tokens) -> bool:
    """Whether the rest of a ``CREATE TABLE`` is a query that fills the table. In row format the log has its rows."""
    while tokens.kind:
        word = tokens.word
        tokens.next()
        if word in ("SELECT", "TABLE") or (word == "VALUES" and tokens.word in ("(", "ROW")):
            return True
        if word == ".":  # the next word is a name
            tokens.next()
    return False


def _rename(tokens: Tokens, database: str) -> Statement:
    if not (tokens.skip("TABLE") or tokens.skip("TABLES")):
        return Statement(Kind.OTHER_DDL)
    tokens.skip("IF", "EXISTS")
    gone: list[Name] = []
    made: list[Name] = []
    more = True
    while more:
        old = tokens.table(database)
        _wait(tokens)
        if not tokens.skip("TO"):
            # The rest is unreadable, so other tables may get the old names.
            return Statement(Kind.RENAME_TABLE, unread=(*gone, old, (None, None)), made=_readable(made))
        new = tokens.table(database)
        if old in made:
            made.remove(old)  # the name existed within this statement only
        else:
            gone.append(old)
        made.append(new)
        more = tokens.skip(",")
    return _lost(Kind.RENAME_TABLE, [name for name in gone if name not in made], made=made)


def _wait(tokens: Tokens) -> None:
    """Skip MariaDB's clause with the time limit for the table's lock."""
    if tokens.skip("WAIT"):
        tokens.next()
    else:
        tokens.skip("NOWAIT")


def _alter(tokens: Tokens, database: str) -> Statement:
    while tokens.skip("ONLINE") or tokens.skip("IGNORE"):
        pass
    if not tokens.skip("TABLE"):
        return Statement(Kind.OTHER_DDL)
    tokens.skip("IF", "EXISTS")
    table = tokens.table(database)
    _wait(tokens)
    kind, lost, made = Kind.OTHER_DDL, [table], []
    for first, second in _alterations(tokens):
        found = _ALTERATIONS.get((first, second))
        if found is not None:
            kind = found
            if first == "EXCHANGE" and _go_to(tokens, "TABLE"):
                lost.append(tokens.table(database))
            elif (first, second) == ("CONVERT", "PARTITION") and _go_to(tokens, "TABLE"):
                made.append(tokens.table(database))
            elif (first, second) == ("CONVERT", "TABLE"):
                tokens.next()
                lost = [tokens.table(database)]  # the table becomes a partition, and its rows move to the altered table
        elif first == "RENAME" and second not in _NOT_OF_THE_TABLE:
            for word in ("TO", "AS", "="):
                tokens.skip(word)
            made = [tokens.table(database)]
            if made != lost:
                kind = Kind.RENAME_TABLE
        elif first not in _OF_COLUMNS and _keeps_nothing(tokens, first) and not tokens.dialect.substitutes_engines:
            kind = Kind.ROWS_REPLACED
    return _lost(kind, lost, made=made) if kind is not Kind.OTHER_DDL else Statement(kind)


def _alterations(tokens: Tokens) -> Iterator[tuple[str, str]]:
    """The first two words of each item between commas. The present token is then the second word."""
    while tokens.kind:
        first = tokens.word
        if first != ",":
            tokens.next()
            yield first, tokens.word
        _go_to(tokens, ",")
        tokens.next()


def _go_to(tokens: Tokens, word: str) -> bool:
    """Skip to ``word``, but not past a comma or the end. Returns whether the word was found.

    A found word is skipped too, unless it is a comma."""
    depth = 0
    while tokens.kind and (depth > 0 or tokens.word not in (word, ",")):
        depth += {"(": 1, ")": -1}.get(tokens.word, 0)
        tokens.next()
    return tokens.word == word and (word == "," or tokens.skip(word))


def _keeps_nothing(tokens: Tokens, before: str) -> bool:
    """Whether the options of a table up to the next comma name an engine that keeps no rows."""
    depth = 0
    while tokens.kind and (depth > 0 or tokens.word != ","):
        if before == "ENGINE" and depth == 0:
            tokens.skip("=")
            if tokens.text.strip("`'\"").upper() == "BLACKHOLE":
                return True
        before = tokens.word
        depth += {"(": 1, ")": -1}.get(before, 0)
        tokens.next()
    return False


def _delete(tokens: Tokens, database: str) -> Statement:
    if tokens.skip("FROM") and tokens.kind in ("word", "quoted"):
        name = tokens.table(database)
        tokens.skip(";")
        if not tokens.kind:
            return _lost(Kind.DELETE_ALL, [name])
    return Statement(Kind.DML)


def _truncate(tokens: Tokens, database: str) -> Statement:
    tokens.skip("TABLE")
    return _lost(Kind.TRUNCATE, [tokens.table(database)])


_OF_TABLES: Final[dict[str, Callable[[Tokens, str], Statement]]] = {
    "TRUNCATE": _truncate,
    "DROP": _drop,
    "CREATE": _create,
    "ALTER": _alter,
    "RENAME": _rename,
    "DELETE": _delete,
}


def _savepoint(kind: Kind, tokens: Tokens) -> Statement:
    name = tokens.rest()
    return Statement(kind, savepoint=savepoint_key(tokens.name() or name))


def classify(sql: str, database: str, dialect: Dialect = Dialect()) -> Statement:  # noqa: B008 - it is frozen
    """The effect of ``sql`` in ``database``. Never fails: names that cannot be read are in ``unread``."""
    tokens = Tokens(sql, dialect)
    first = tokens.word
    tokens.next()
    if first == "SET" and tokens.word == "STATEMENT":  # MariaDB's prefix that sets variables for one statement
        while tokens.kind and not tokens.skip("FOR"):
            tokens.next()
        first = tokens.word
        tokens.next()
    if first == "BEGIN" or (first == "START" and tokens.word == "TRANSACTION"):
        return Statement(Kind.BEGIN)
    if first == "COMMIT":
        return Statement(Kind.COMMIT)
    if first == "ROLLBACK":
        tokens.skip("WORK")
        if not tokens.skip("TO"):
            return Statement(Kind.ROLLBACK)
        tokens.skip("SAVEPOINT")
        return _savepoint(Kind.ROLLBACK_TO, tokens)
    if first == "SAVEPOINT":
        return _savepoint(Kind.SAVEPOINT, tokens)
    if first == "RELEASE" and tokens.word == "SAVEPOINT":
        return Statement(Kind.SAVEPOINT)
    if first == "XA":
        return _xa(tokens)
    if first in _OF_TABLES:
        return _OF_TABLES[first](tokens, database)
    runs = first == "ANALYZE" and tokens.word not in _STATISTICS
    return Statement(Kind.DML if first in _DML or runs else Kind.OTHER)
