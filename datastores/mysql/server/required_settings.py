"""Checks the settings and privileges without which a server's log cannot be read. Pure: settings in, findings out.

The findings of :func:`fatal` prevent the source's start, with the same texts as in ``wormholectl doctor``. MySQL's
reference manual (8.0, 8.4, 9) and MariaDB's documentation describe the variables under their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from datastores.mysql.server.settings import Settings
from datastores.mysql.sql_text import account_name
from wormhole.model.errors import UnsupportedLog, UsageError
from wormhole.model.findings import Finding, Severity

__all__ = ["fatal", "grant_to", "is_rds", "refuse", "required", "to_set"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM

_NEW_FILE: Final = "FLUSH BINARY LOGS;"
_ROW: Final = "'ROW'"
_FULL: Final = "'FULL'"
_NEW_SESSIONS: Final = "sessions that are open keep the old value: let the applications reconnect"


def required(settings: Settings) -> list[Finding]:
    """A finding for each setting or privilege that correct reading of the log requires."""
    return [finding for check in _REQUIRED for finding in (check(settings),) if finding is not None]


def fatal(settings: Settings) -> list[Finding]:
    """The findings of :func:`required` that prevent the source's start."""
    return [finding for finding in required(settings) if finding.severity is PROBLEM]


def refuse(settings: Settings, server: str) -> None:
    """Raise if the log of ``server`` (its name in messages) cannot be read correctly.

    Raises :class:`~wormhole.model.errors.UsageError` if only the account or its privileges are wrong, otherwise
    :class:`~wormhole.model.errors.UnsupportedLog`. The message has every reason, and the hint every next step.
    """
    found = fatal(settings)
    if not found:
        return
    kind = UsageError if all(finding.check in ("account", "grants") for finding in found) else UnsupportedLog
    reasons = "; ".join(f"{finding.what}: {finding.because}" for finding in found)
    raise kind(f"{server}: {reasons}", hint="\n".join(finding.next_step for finding in found))


def to_set(settings: Settings, name: str, value: str, then: str = "") -> str:
    """The SQL that sets a global variable now and for the server's next start, in the server's syntax, one statement
    per line.

    ``then``: a statement to run after it.
    """
    plain = value.strip("'")
    if is_rds(settings):
        return "\n".join(filter(None, (f"in the instance's parameter group: {name} = {plain}", then)))
    if settings.mariadb:
        lines = (f"SET GLOBAL {name} = {value};", then, f"and in my.cnf under [mysqld]: {name} = {plain}")
    else:
        lines = (f"SET PERSIST {name} = {value};", then, "")
    return "\n".join(filter(None, lines))


def grant_to(settings: Settings, privileges: str, scope: str = "*.*") -> str:
    """The GRANT for the publisher's account."""
    user, _, host = settings.account.rpartition("@")
    return f"GRANT {privileges} ON {scope} TO {account_name(user, host)};"


def is_rds(settings: Settings) -> bool:
    """Whether the server runs on Amazon RDS, where variables are set elsewhere and other rules apply to its log."""
    return settings.variable("basedir").startswith("/rdsdbbin") or "aurora_version" in settings.variables


def _log_bin(settings: Settings) -> Finding:
    if settings.flag("log_bin"):
        return Finding("log_bin", OK, "the server writes a binary log")
    return Finding(
        "log_bin",
        PROBLEM,
        "the server writes no binary log (log_bin=OFF)",
        "there is nothing to tail",
        "in my.cnf under [mysqld]: log_bin = binlog and server_id = 1 (a number of its own); then restart the server",
    )


def _binlog_format(settings: Settings) -> Finding:
    value = settings.variable("binlog_format", default="ROW").upper()
    if value == "ROW":
        return Finding("binlog_format", OK, "binlog_format=ROW: the log holds rows")
    return Finding(
        "binlog_format",
        PROBLEM,
        f"binlog_format={value}: the log holds statements",
        "statements do not show which rows they changed",
        f"{to_set(settings, 'binlog_format', _ROW, _NEW_FILE)}\n({_NEW_SESSIONS})",
    )


def _binlog_row_metadata(settings: Settings) -> Finding:
    value = settings.variable("binlog_row_metadata").upper()
    if value == "FULL":
        return Finding("binlog_row_metadata", OK, "binlog_row_metadata=FULL: each table is logged with its columns")
    if not value:
        return Finding(
            "binlog_row_metadata",
            PROBLEM,
            f"version {settings.version_text} has no binlog_row_metadata",
            "rows would have to be decoded with the columns that the table has today, which is wrong after any ALTER",
            "upgrade the server to MySQL 8.0 or later, or to MariaDB 10.6 or later",
        )
    return Finding(
        "binlog_row_metadata",
        PROBLEM,
        f"binlog_row_metadata={value}: rows are logged without the names of their columns",
        "a table's updates cannot be decoded, and the flows that get them are held",
        to_set(settings, "binlog_row_metadata", _FULL, _NEW_FILE),
    )


def _server_id(settings: Settings) -> Finding:
    if settings.server_id:
        return Finding("server_id", OK, f"server_id={settings.server_id}")
    return Finding(
        "server_id",
        PROBLEM,
        "server_id=0",
        "the server sends its log to no replica",
        f"{to_set(settings, 'server_id', '1')}\n(each server of a group has a number of its own)",
    )


def _replica_logs(settings: Settings) -> Finding | None:
    galera = settings.flag("wsrep_on")
    if not settings.replicas and not galera:
        return None
    name = "log_slave_updates" if settings.mariadb or settings.version < (8, 0, 26) else "log_replica_updates"
    if settings.flag("log_replica_updates", "log_slave_updates"):
        return Finding(name, OK, "what comes from other servers is logged here too")
    other = "the cluster's other nodes" if galera else ", ".join(channel.source for channel in settings.replicas or ())
    return Finding(
        name,
        PROBLEM,
        f"{name}=OFF: what comes from {other} is not logged here",
        "no subscriber would get it",
        f"in my.cnf under [mysqld]: {name} = ON; then restart the server. Or tail the server that it comes from",
    )


def _account(settings: Settings) -> Finding | None:
    if not settings.anonymous:
        return None
    user, _, _ = settings.login.rpartition("@")
    host = settings.account[1:]
    return Finding(
        "account",
        PROBLEM,
        f"the login as {user!r} got the anonymous account {account_name('', host)} (SELECT CURRENT_USER(), USER();)",
        "the server prefers the account with the more exact host, whatever its name: the privileges of "
        f"{account_name(user, '%')} do not count",
        f"DROP USER {account_name('', host)};\n"
        "or, if it is needed, with the grants of docs/mysql.md:\n"
        f"CREATE USER {account_name(user, host)} IDENTIFIED BY ...;",
    )


def _grants(settings: Settings) -> Finding | None:
    if settings.anonymous:
        return None
    needed = ["REPLICATION SLAVE", "BINLOG MONITOR" if settings.mariadb else "REPLICATION CLIENT"]
    if settings.mariadb and settings.version < (10, 5, 2):
        needed[1] = "REPLICATION CLIENT"
    held = {privilege for grant in settings.grants if grant.scope == "*.*" for privilege in grant.privileges}
    if held & {"ALL PRIVILEGES", "ALL"}:
        return Finding("grants", OK, f"{settings.account} has all privileges")
    missing = [privilege for privilege in needed if privilege not in held]
    if not missing:
        return Finding("grants", OK, f"{settings.account} has {', '.join(needed)}")
    return Finding(
        "grants",
        PROBLEM,
        f"{settings.account} lacks {', '.join(missing)}",
        "the server sends its log, and the list of its files, only to accounts that have them",
        grant_to(settings, ", ".join(missing)),
    )


_REQUIRED: Final[tuple[Callable[[Settings], Finding | None], ...]] = (
    _log_bin,
    _binlog_format,
    _binlog_row_metadata,
    _server_id,
    _replica_logs,
    _account,
    _grants,
)
