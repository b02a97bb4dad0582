"""What a logged statement does, as far as it matters to a reader of rows: no SQL parser, a tokenizer and the first words.

In row format only these are logged as text: the ends of transactions, XA, and what changes the schema. A statement that
changes rows (`Kind.DML`) says that a server or a session logs statements, whose updates nobody can see in the log.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from wormhole.decode.mysql.rare import Xid
from wormhole.errors import DecodeError

__all__ = ["Kind", "Statement", "classify"]


class Kind(enum.Enum):
    """What a statement does."""

    BEGIN = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    SAVEPOINT = enum.auto()
    """A savepoint is set or released: nothing changes."""
    ROLLBACK_TO = enum.auto()
    """What the transaction did since a savepoint is undone, as far as its tables can."""
    XA_START = enum.auto()
    XA_END = enum.auto()
    XA_PREPARE = enum.auto()
    XA_COMMIT = enum.auto()
    XA_ROLLBACK = enum.auto()
    TRUNCATE = enum.auto()
    """All rows of the table are gone; also a ``DELETE`` of everything, which servers write for a MEMORY table after a restart."""
    DROP_TABLE = enum.auto()
    """The tables are gone; also by ``CREATE OR REPLACE TABLE``."""
    DROP_DATABASE = enum.auto()
    TRUNCATE_PARTITION = enum.auto()
    DROP_PARTITION = enum.auto()
    ROWS_REPLACED = enum.auto()
    """Rows come and go unlogged: a partition is exchanged or converted, a tablespace discarded or imported."""
    OTHER_DDL = enum.auto()
    DML = enum.auto()
    OTHER = enum.auto()


@dataclass(frozen=True, slots=True)
class Statement:
    """``tables``: (database, table) of what loses rows; a dropped database has an empty table. ``xid`` and ``one_phase``: of XA.

    ``savepoint``: the one that is set or gone back to. ``rows_follow``: the transaction goes on after this DDL with rows
    (``CREATE TABLE ... START TRANSACTION``).
    """

    kind: Kind
    tables: tuple[tuple[str, str], ...] = ()
    xid: Xid | None = None
    one_phase: bool = False
    savepoint: str = ""
    rows_follow: bool = False


# A version comment (/*!50100 ... */, /*M!100100 ... */) is read as if it were none: the server that logged it ran what is in it.
_TOKEN: Final = re.compile(
    r"""(?P<skip> \s++ | \#[^\n]*+ | --(?=\s|\Z)[^\n]*+ | /\*M?![0-9]*+ | /\*.*?(?:\*/|\Z) | \*/ )
      | (?P<quoted> `(?:[^`]|``)*+`? | "(?:[^"\\]|\\.|"")*+"? )
      | (?P<hex> [xX]'[0-9a-fA-F]*+' | 0x[0-9a-fA-F]++ )
      | (?P<string> '(?:[^'\\]|\\.|'')*+'? )
      | (?P<word> [\w$]++ )
      | (?P<other> . )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ROWS_FOLLOW: Final = re.compile(r"\bSTART\s+TRANSACTION[\s;]*\Z", re.IGNORECASE)

_DML: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "DO", "SELECT", "VALUES", "("}
)
_DDL: Final = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_XA: Final = {
    "START": Kind.XA_START,
    "BEGIN": Kind.XA_START,
    "END": Kind.XA_END,
    "PREPARE": Kind.XA_PREPARE,
    "COMMIT": Kind.XA_COMMIT,
    "ROLLBACK": Kind.XA_ROLLBACK,
}
# Two words next to each other in ALTER TABLE. As names of columns these words would have to be quoted.
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


class _Tokens:
    """The tokens of a statement, one at a time: ``kind`` is the group's name, '' at the end; ``word`` in capitals unless quoted."""

    __slots__ = ("_at", "_sql", "kind", "text", "word")

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._at = 0
        self.next()

    def next(self) -> None:
        while match := _TOKEN.match(self._sql, self._at):
            self._at = match.end()
            if match.lastgroup != "skip":
                self.kind = match.lastgroup or ""
                self.text = match[0]
                self.word = self.text.upper() if self.kind in ("word", "other") else ""
                return
        self.kind = self.text = self.word = ""

    def skip(self, *words: str) -> bool:
        """Step over those of these words, in this order, that come next; whether the first did."""
        found = self.word == words[0]
        for word in words if found else ():
            if self.word == word:
                self.next()
        return found

    def name(self) -> str:
        """An identifier, without its quotes. Raises :class:`DecodeError`."""
        text = self.text
        if self.kind == "quoted":
            text = text[1:-1].replace(text[0] * 2, text[0])
        elif self.kind != "word":
            raise DecodeError(f"a statement's name cannot be read at {text[:20]!r}: {self._sql[:200]!r}")
        self.next()
        return text

    def table(self, database: str) -> tuple[str, str]:
        """A table's name with its database."""
        name = self.name()
        if self.word != ".":
            return database, name
        self.next()
        return name, self.name()

    def tables(self, database: str) -> tuple[tuple[str, str], ...]:
        """Names with commas between them."""
        found = [self.table(database)]
        while self.skip(","):
            found.append(self.table(database))
        return tuple(found)

    def value(self) -> bytes:
        """A string, as text or in hexadecimal digits. Raises :class:`DecodeError`."""
        text = self.text
        if self.kind == "hex":
            digits = text[2:].strip("'")
            raw = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
        elif self.kind == "string":
            raw = _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]) if m[1] else "'", text[1:-1]).encode()
        else:
            raise DecodeError(f"the xid of an XA statement cannot be read: {self._sql[:200]!r}")
        self.next()
        return raw


def _xa(tokens: _Tokens) -> Statement:
    kind = _XA.get(tokens.word)
    if kind is None:
        return Statement(Kind.OTHER)
    tokens.next()
    gtrid = tokens.value()
    bqual = tokens.value() if tokens.skip(",") else b""
    format_id = 1
    if tokens.skip(","):
        if not tokens.word.isdecimal():
            raise DecodeError(f"the format of an XA statement's xid is no number: {tokens.text[:80]!r}")
        format_id = int(tokens.word[:20])
        tokens.next()
    return Statement(kind, xid=Xid(gtrid, bqual, format_id), one_phase=tokens.word == "ONE")


def _drop(tokens: _Tokens, database: str) -> Statement:
    if tokens.skip("DATABASE") or tokens.skip("SCHEMA"):
        tokens.skip("IF", "EXISTS")
        return Statement(Kind.DROP_DATABASE, ((tokens.name(), ""),))
    if tokens.skip("TABLE") or tokens.skip("TABLES"):
        tokens.skip("IF", "EXISTS")
        return Statement(Kind.DROP_TABLE, tokens.tables(database))
    return Statement(Kind.OTHER_DDL)


def _create(tokens: _Tokens, database: str, sql: str) -> Statement:
    replaces = tokens.skip("OR", "REPLACE")
    if replaces and (tokens.skip("DATABASE") or tokens.skip("SCHEMA")):
        return Statement(Kind.DROP_DATABASE, ((tokens.name(), ""),))
    if not tokens.skip("TABLE"):
        return Statement(Kind.OTHER_DDL)
    rows_follow = _ROWS_FOLLOW.search(sql) is not None
    if replaces:
        return Statement(Kind.DROP_TABLE, (tokens.table(database),), rows_follow=rows_follow)
    return Statement(Kind.OTHER_DDL, rows_follow=rows_follow)


def _alter(tokens: _Tokens, database: str) -> Statement:
    tokens.skip("ONLINE")
    tokens.skip("IGNORE")
    if not tokens.skip("TABLE"):
        return Statement(Kind.OTHER_DDL)
    tokens.skip("IF", "EXISTS")
    tables = [tokens.table(database)]
    kind = None
    # What is looked for stands alone in its ALTER, or after words like ALGORITHM=INPLACE: never behind a string.
    while tokens.kind and tokens.kind != "string":
        before = tokens.word
        tokens.next()
        kind = kind or _ALTERATIONS.get((before, tokens.word))
        if kind is Kind.ROWS_REPLACED and tokens.skip("TABLE"):
            tables.append(tokens.table(database))
    return Statement(kind, tuple(tables)) if kind else Statement(Kind.OTHER_DDL)


def _delete(tokens: _Tokens, database: str) -> Statement:
    if tokens.skip("FROM") and tokens.kind in ("word", "quoted"):
        tables = (tokens.table(database),)
        tokens.skip(";")
        if not tokens.kind:
            return Statement(Kind.TRUNCATE, tables)
    return Statement(Kind.DML)


def classify(sql: str, database: str) -> Statement:
    """What ``sql`` does when it runs in ``database``.

    Raises :class:`DecodeError` when something loses rows, is an XA statement or about a savepoint, and its name cannot be read.
    """
    tokens = _Tokens(sql)
    first = tokens.word
    tokens.next()
    if first == "SET" and tokens.word == "STATEMENT":  # MariaDB logs the variables of one statement before it
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
        return Statement(Kind.ROLLBACK_TO, savepoint=tokens.name().lower())
    if first == "SAVEPOINT":
        return Statement(Kind.SAVEPOINT, savepoint=tokens.name().lower())
    if first == "RELEASE" and tokens.word == "SAVEPOINT":
        return Statement(Kind.SAVEPOINT)
    if first == "XA":
        return _xa(tokens)
    if first == "TRUNCATE":
        tokens.skip("TABLE")
        return Statement(Kind.TRUNCATE, (tokens.table(database),))
    if first == "DROP":
        return _drop(tokens, database)
    if first == "CREATE":
        return _create(tokens, database, sql)
    if first == "ALTER":
        return _alter(tokens, database)
    if first == "DELETE":
        return _delete(tokens, database)
    if first in _DML:
        return Statement(Kind.DML)
    return Statement(Kind.OTHER_DDL if first in _DDL else Kind.OTHER)
