"""Turns an error of a database into an error of the port. No message contains a value of a row."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

from subscriber_sdk import Update
from wormhole.host.tls import untrusted
from wormhole.model.errors import Fatal, TargetRefused, TargetUnavailable, WormholeError

__all__ = ["RowRefused", "database_error", "refusal"]


class RowRefused(Fatal):
    """An update cannot be applied to a row of the target. The update is parked, or its flow halts."""

    code: str = "record-refused"

    @classmethod
    def of(cls, update: Update, why: str) -> RowRefused:
        """The error for one update."""
        return cls(f"{update.op.value} of {update.table} cannot be applied: {why}")


class _Meaning(Enum):
    AWAY = "away"
    CHANGED = "changed"
    LOGIN = "login"
    RIGHTS = "rights"
    ROW = "row"


# By the first two characters of a SQLSTATE: connection, rolled back, resources, lock, cancelled, system, internal.
_AWAY_CLASSES: Final = {"08", "40", "53", "55", "57", "58", "XX"}
_SQLSTATES: Final = {
    "0A000": _Meaning.CHANGED,  # a plan of the statement is of the table as it was
    "25006": _Meaning.AWAY,  # the server is read-only
    "28000": _Meaning.LOGIN,
    "28P01": _Meaning.LOGIN,
    "3F000": _Meaning.CHANGED,
    "42501": _Meaning.RIGHTS,
    "42703": _Meaning.CHANGED,
    "42804": _Meaning.CHANGED,
    "42883": _Meaning.CHANGED,  # no operator for the column's new type
    "42P01": _Meaning.CHANGED,
    "42P10": _Meaning.CHANGED,
}
_MYSQL: Final = {
    # Room, connections, shutdown, locks, a read-only or lost node, killed or slow statements and connections.
    **dict.fromkeys((1020, 1021, 1040, 1047, 1053, 1114, 1180, 1205, 1206, 1213, 1223, 1290, 1317), _Meaning.AWAY),
    **dict.fromkeys((1792, 1836, 1874, 1927, 1969, 2006, 2013, 3024, 4031), _Meaning.AWAY),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), _Meaning.RIGHTS),
    # Password, host, plugin, an expired password, a locked account (MySQL, MariaDB), a plugin that the driver lacks.
    **dict.fromkeys((1045, 1130, 1251, 1275, 1698, 1820, 1862, 2059, 3118, 4151), _Meaning.LOGIN),
    **dict.fromkeys((1054, 1146, 1412), _Meaning.CHANGED),
}
_SQLITE: Final = {
    "SQLITE_READONLY_DBMOVED": _Meaning.AWAY,
    "SQLITE_READONLY": _Meaning.RIGHTS,
    "SQLITE_CONSTRAINT": _Meaning.ROW,
    "SQLITE_MISMATCH": _Meaning.ROW,
    "SQLITE_TOOBIG": _Meaning.ROW,
    "SQLITE_ERROR": _Meaning.CHANGED,
}
_DUCKDB: Final = {
    **dict.fromkeys(("BinderException", "CatalogException"), _Meaning.CHANGED),
    **dict.fromkeys(
        ("FatalException", "InternalException", "IOException", "OutOfMemoryException", "TransactionException"),
        _Meaning.AWAY,
    ),
}
_COLUMN: Final = re.compile(r"column [`'](?:[^`']*`\.`)*([^`']+)[`']")


# libpq keeps no SQLSTATE of a failed login, so English messages are matched. With other languages the flow only waits.
_LOGIN: Final = re.compile(
    r"authentication failed|pg_hba\.conf|role \".*\" does not exist|not permitted to log in", re.IGNORECASE
)
_UNTRUSTED: Final = "certificate verify failed"
_NO_RIGHT: Final = re.compile(r"permission denied for database")


def database_error(error: Exception, table: str) -> WormholeError:
    """The error of the port for a driver's error while rows of the target ``table`` were written or read."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy's have the driver's in them
    meaning, name = _meaning(error)
    if meaning is _Meaning.AWAY:
        return TargetUnavailable(f"{table} cannot be used: {name}")
    if meaning is _Meaning.CHANGED:
        return TargetUnavailable(f"{table} is not as it was: {name}; it is compared again")
    if meaning is _Meaning.RIGHTS:
        return TargetRefused(
            f"the account may not use {table}: {name}",
            code="account-lacks-rights",
            hint="GRANT SELECT, INSERT, UPDATE and DELETE on it, and the right to create and alter tables there "
            "(a file: write access to it and its folder); then `wormholectl flows resume APP/SHARD`",
        )
    if meaning is _Meaning.LOGIN:
        return TargetRefused(
            f"the database refuses the login: {' '.join(str(error).split())}",
            code="login-refused",
            hint="correct the account in the URL, or its password_file; then `wormholectl flows resume APP/SHARD`",
        )
    return RowRefused(f"the database refuses a row of {table}: {name}")


def refusal(error: Exception) -> TargetRefused | TargetUnavailable | None:
    """The error of the port for a driver's error while the sink connects or uses its own tables; ``None``: the error is
    temporary.
    """
    if _UNTRUSTED in (words := str(error)):
        return untrusted("the database", " ".join(words.split()))
    found = database_error(error, "wormhole_marker")
    return found if isinstance(found, TargetRefused) else None


def _meaning(error: Any) -> tuple[_Meaning, str]:
    if (diag := getattr(error, "diag", None)) is not None:
        state = error.sqlstate or ""
        if not state and any(kind.__name__ == "OperationalError" for kind in type(error).__mro__):
            return _without_state(error), type(error).__name__
        found = _SQLSTATES.get(state, _Meaning.AWAY if state[:2] in _AWAY_CLASSES else _Meaning.ROW)
        places = (("column", diag.column_name), ("constraint", diag.constraint_name))
        where = "".join(f", {what} {name}" for what, name in places if name)
        return found, f"{type(error).__name__} ({state}){where}"
    name = getattr(error, "sqlite_errorname", None)
    if name:
        known = (meaning for prefix, meaning in _SQLITE.items() if name.startswith(prefix))
        return next(known, _Meaning.AWAY), name
    if type(error).__name__ in _DUCKDB:
        return _DUCKDB[type(error).__name__], type(error).__name__
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    columns = _COLUMN.findall(str(error.args[-1])) if number else []
    where = f", column {columns[-1]}" if columns else ""  # the last one: a value may come before it
    return _MYSQL.get(number, _Meaning.ROW), f"{type(error).__name__} {number or ''}{where}".strip()


def _without_state(error: Any) -> _Meaning:
    """The meaning of a PostgreSQL error without SQLSTATE: the server could not be reached, or refused the session."""
    words = str(error)
    if _NO_RIGHT.search(words):
        return _Meaning.RIGHTS
    return _Meaning.LOGIN if _LOGIN.search(words) or getattr(error.pgconn, "needs_password", False) else _Meaning.AWAY
