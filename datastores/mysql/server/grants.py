"""Determines from ``SHOW GRANTS`` the tables from which the publisher's account may SELECT. Pure.

A server shows a table only to accounts with a privilege on it. So an account cannot list the tables that it may not
read, and its grants must be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from datastores.mysql.decode.name_folding import fold
from datastores.mysql.server.settings import Settings
from datastores.mysql.sql_text import quoted

__all__ = ["SelectGrants", "grant_for", "parse_select_grants", "select_grants"]

_NAME: Final = r'`(?:[^`]|``)*`|"(?:[^"]|"")*"|[^\s`".]+'
_LINE: Final = re.compile(
    rf"(?P<verb>GRANT|REVOKE) (?P<what>(?:`(?:[^`]|``)*`|[^`])*?) ON "
    rf"(?:TABLE )?(?P<database>{_NAME})\.(?P<table>{_NAME}) (?:TO|FROM) "
)
_QUOTED: Final = re.compile(r'`(?:[^`]|``)*`|"(?:[^"]|"")*"')
_SPECIAL: Final = re.compile(r"\\(.)|(.)", re.DOTALL)
_ANY: Final = frozenset({"*", "?", "["})


@dataclass(frozen=True, slots=True)
class SelectGrants:
    """``everywhere``: SELECT on ``*.*``, except in the databases ``revoked``. ``databases``: each pattern of databases
    with a privilege, and whether SELECT is included. ``tables``: tables with SELECT. ``columns``: tables with SELECT on
    some columns only. ``literal``: ``_`` and ``%`` in a grant are not wildcards (MySQL's ``partial_revokes``).
    ``folds``: the server ignores case in names.
    """

    everywhere: bool = False
    revoked: frozenset[str] = frozenset()
    databases: tuple[tuple[str, bool], ...] = ()
    tables: frozenset[tuple[str, str]] = frozenset()
    columns: frozenset[tuple[str, str]] = frozenset()
    literal: bool = False
    folds: bool = False

    def covers_database(self, database: str) -> bool:
        """Whether every table of ``database`` may be read."""
        name = self._folded(database)
        if self.everywhere and name not in map(self._folded, self.revoked):
            return True
        # The server uses only one pattern: the pattern with the longest part before its first wildcard.
        found = [one for one in self.databases if self._matches(one[0], name)]
        return bool(found) and max(found, key=lambda one: self._exactness(one[0]))[1]

    def covers_table(self, database: str, table: str) -> bool:
        """Whether the whole table may be read."""
        held = {(self._folded(of), self._folded(name)) for of, name in self.tables}
        return self.covers_database(database) or (self._folded(database), self._folded(table)) in held

    def lacking(self, patterns: Iterable[str]) -> list[str]:
        """The ``patterns`` (as in ``tables`` of an application) that may include tables which the account may not read
        or see.
        """
        return [pattern for pattern in patterns if not self._covers(pattern)]

    def __str__(self) -> str:
        """The tables that may be read, for messages."""
        names = [f"{name}.*" for name, selects in self.databases if selects]
        return ", ".join([*names, *sorted(".".join(name) for name in self.tables)]) or "nothing"

    def _covers(self, pattern: str) -> bool:
        database, _, table = pattern.partition(".")
        if not table or _ANY & set(database):
            return self.everywhere and not self.revoked
        return self.covers_database(database) if _ANY & set(table) else self.covers_table(database, table)

    def _folded(self, name: str) -> str:
        return fold(name) if self.folds else name

    def _matches(self, pattern: str, database: str) -> bool:
        pattern = self._folded(pattern)
        return pattern == database if self.literal else re.fullmatch(_regex(pattern), database, re.DOTALL) is not None

    def _exactness(self, pattern: str) -> float:
        plain = re.sub(r"\\.", "xx", pattern)
        wild = [] if self.literal else [at for at, sign in enumerate(plain) if sign in "_%"]
        return min(wild, default=float("inf"))


def select_grants(settings: Settings) -> SelectGrants:
    """The grants in the server's settings."""
    return parse_select_grants(
        settings.grant_lines,
        literal=settings.flag("partial_revokes"),
        folds=settings.number("lower_case_table_names") != 0,
    )


def parse_select_grants(lines: Sequence[str], *, literal: bool = False, folds: bool = False) -> SelectGrants:
    """The grants in all lines of ``SHOW GRANTS``, including those of roles."""
    everywhere = False
    revoked, tables, columns = set(), set(), set()
    databases: dict[str, bool] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue  # a role, a proxy, a procedure
        whole, some = _selects(found["what"])
        database, table = _plain(found["database"]), _plain(found["table"])
        if found["verb"] == "REVOKE":
            revoked |= {database} if whole else set()
        elif found["database"] == "*":
            everywhere |= whole
        elif found["table"] == "*":
            databases[database] = databases.get(database, False) or whole
        elif whole:
            tables.add((database, table))
        elif some:
            columns.add((database, table))
    return SelectGrants(
        everywhere,
        frozenset(revoked),
        tuple(databases.items()),
        frozenset(tables),
        frozenset(columns - tables),
        literal,
        folds,
    )


def grant_for(pattern: str, *, literal: bool = False) -> str:
    """The text after ``ON`` in a GRANT that lets the account see and read the tables of ``pattern``."""
    database, _, table = pattern.partition(".")
    if not table or _ANY & set(database):
        return "*.*"
    if _ANY & set(table):
        escaped = database if literal else re.sub(r"([\\_%])", r"\\\1", database)
        return f"{quoted(escaped)}.*"
    return f"{quoted(database)}.{quoted(table)}"


def _selects(what: str) -> tuple[bool, bool]:
    """Whether the privileges include SELECT, and whether they include it for some columns only."""
    names = _QUOTED.sub("x", what).upper()
    whole = {name.strip() for name in re.sub(r"\([^)]*\)", "()", names).split(",")}
    return bool(whole & {"SELECT", "ALL PRIVILEGES", "ALL"}), "SELECT ()" in whole


def _plain(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0]) if name[0] in '`"' else name


def _regex(pattern: str) -> str:
    parts = []
    for escaped, sign in _SPECIAL.findall(pattern):
        parts.append(re.escape(escaped) if escaped else {"_": ".", "%": ".*"}.get(sign, re.escape(sign)))
    return "".join(parts)
