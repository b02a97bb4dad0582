"""Splits a statement into words, names and strings like the server that logged it.

The meaning of a character depends on the server (`Dialect`): MariaDB has comments that only MariaDB runs, ``sql_mode``
determines the meaning of double quotes and backslashes, and in some single-byte character sets the no-break space is
white space. ``tests/integration/test_mysql_statements.py`` compares this with both servers. The server accepted every
statement in its log, so the lexer does not look for errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from datastores.mysql.decode.name_folding import fold
from wormhole.model.errors import DecodeError

__all__ = ["Dialect", "Name", "Tokens"]

_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
_NO_ENGINE_SUBSTITUTION: Final = 1 << 30

Name = tuple[str | None, str | None]
"""Database and table; ``None``: a name that cannot be read."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The facts that determine how the server read a statement.

    ``mariadb``: whether it is MariaDB. ``sql_mode``: the number in the statement's event. ``spaces``: characters beyond
    ASCII that are white space in the client's character set. ``folds``: ``lower_case_table_names`` is not 0, so names
    are returned in lower case.
    """

    mariadb: bool = False
    sql_mode: int = 0
    spaces: str = ""
    folds: bool = False

    @property
    def substitutes_engines(self) -> bool:
        """Whether the table may have the default engine instead of the statement's engine. In MariaDB BLACKHOLE is a
        plugin."""
        return self.mariadb and not self.sql_mode & _NO_ENGINE_SUBSTITUTION


@lru_cache(maxsize=64)
def _pattern(mariadb: bool, ansi_quotes: bool, backslashes: bool, spaces: str) -> re.Pattern[str]:
    # The text in a version comment (/*!50100 ... */, MariaDB also /*M!100100 ... */) is read. A version comment that
    # the server did not run is logged as an ordinary comment.
    version = r"/\*M?!(?:[0-9]{5,6})?" if mariadb else r"/\*!(?:[0-9]{5,6})?"
    escape = r"\\.|" if backslashes else ""
    plain = r"\\" if backslashes else ""
    name = rf"(?![{spaces}])[0-9A-Za-z_$\x80-\U0010ffff]" if spaces else r"[0-9A-Za-z_$\x80-\U0010ffff]"
    double = rf'"(?:[^"{plain}]|{escape}"")*+"?'
    return re.compile(
        rf"""(?P<skip> [\x09-\x0d\x20{spaces}]++ | \#[^\n]*+ | --(?=[\x00-\x20\x7f]|\Z)[^\n]*+ | {version} | /\*.*?(?:\*/|\Z) | \*/ )
          | (?P<quoted> `(?:[^`]|``)*+`? {'| "(?:[^"]|"")*+"?' if ansi_quotes else ""} )
          | (?P<hex> [xX]'[0-9a-fA-F]*+' | 0x[0-9a-fA-F]++(?!{name}) )
          | (?P<string> '(?:[^'{plain}]|{escape}'')*+'? {"" if ansi_quotes else "| " + double} )
          | (?P<word> (?:{name})++ )
          | (?P<other> . )""",  # noqa: E501
        re.VERBOSE | re.DOTALL,
    )


_ESCAPE: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_UNREADABLE: Final = re.compile("[\ud800-\udfff]")
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")


_MOST_NAMES: Final = 1 << 16


class Tokens:
    """The tokens of a statement, one at a time. ``kind``: the name of the token's group; empty at the end. ``word``: in
    capitals unless quoted.

    Bytes that are no text in the client's character set are lone surrogates in ``sql``. A name with such a byte cannot
    be read.
    """

    __slots__ = ("_at", "_match", "dialect", "kind", "sql", "text", "word")

    def __init__(self, sql: str, dialect: Dialect) -> None:
        self.sql = sql
        self.dialect = dialect
        mode = dialect.sql_mode
        self._match = _pattern(
            dialect.mariadb, bool(mode & _ANSI_QUOTES), not mode & _NO_BACKSLASH_ESCAPES, dialect.spaces
        ).match
        self._at = 0
        self.next()

    def next(self) -> None:
        """Skip a token."""
        while match := self._match(self.sql, self._at):
            self._at = match.end()
            if match.lastgroup != "skip":
                self.kind = match.lastgroup or ""
                self.text = match[0]
                self.word = self.text.upper() if self.kind in ("word", "other") else ""
                return
        self.kind = self.text = self.word = ""

    def skip(self, *words: str) -> bool:
        """Skip the next words while they are ``words``, in this order. Returns whether the first one matched."""
        found = self.word == words[0]
        for word in words if found else ():
            if self.word == word:
                self.next()
        return found

    def rest(self) -> str:
        """The text from the present token on, unchanged."""
        return self.sql[self._at - len(self.text) :]

    def name(self) -> str | None:
        """Read an identifier and return it without quotes; ``None``: there is none, or it cannot be read."""
        text = self.text
        if self.kind == "quoted" or text[:1] == '"':  # SET STATEMENT sql_mode = ... may change their meaning
            text = text[1:-1].replace(text[0] * 2, text[0])
        elif self.kind not in ("word", "hex"):
            return None
        self.next()
        if _UNREADABLE.search(text):
            return None
        text = _BEYOND_BMP.sub("?", text)  # MySQL stores such a character as ?, and MariaDB refuses it
        return fold(text) if self.dialect.folds else text

    def table(self, database: str) -> Name:
        """Read a table's name with its database."""
        self.skip(".")  # in MariaDB a name without a database may begin with a point
        if self.kind in ("", "string", "other") and self.text[:1] != '"':
            # This is no name, so the grammar is unknown. Without a point after it the table is in the default database.
            return (None if "." in self.rest() else database), None
        name = self.name()
        if self.word != ".":
            return database, name
        self.next()
        return name, self.name()

    def tables(self, database: str) -> list[Name]:
        """Read names separated by commas. After the first 65,536 one unreadable name stands for all others."""
        found = [self.table(database)]
        while self.skip(","):
            if len(found) == _MOST_NAMES:
                found.append((None, None))
                break
            found.append(self.table(database))
        return found

    def value(self) -> bytes:
        """Read a string, as text or in hexadecimal digits. Raises :class:`DecodeError`."""
        text = self.text
        if self.kind == "hex":
            digits = text[2:].strip("'")
            raw = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
        elif self.kind == "string":
            raw = _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]) if m[1] else "'", text[1:-1]).encode(
                errors="surrogatepass"
            )
        else:
            raise DecodeError("the xid cannot be read")
        self.next()
        return raw
