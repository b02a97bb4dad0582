"""Reads a server's settings once, for the doctor's checks and the source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from datastores.mysql.server.connection import query, reading_answers
from datastores.mysql.sql_text import quoted
from wormhole.model.errors import UsageError

__all__ = [
    "BinaryLog",
    "Grant",
    "LogPlace",
    "ReplicaChannel",
    "Settings",
    "one_line",
    "parse_grant",
    "parse_version",
    "read_settings",
]

Flavour = Literal["mysql", "mariadb"]

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_GRANT: Final = re.compile(
    r"GRANT (?P<what>.+?) ON (?:(?:TABLE|FUNCTION|PROCEDURE) )?(?P<scope>.+?) TO (?P<public>PUBLIC\b)?", re.DOTALL
)
# The form in `mandatory_roles` and CURRENT_ROLE(): a name, perhaps quoted, and a host if it is not %.
_QUOTED: Final = r"""`[^`]*`|'[^']*'|"[^"]*"|[^`'",@\s]+"""
_ROLE: Final = re.compile(rf"(?P<name>{_QUOTED})(?:@(?P<host>{_QUOTED}))?")


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """A file of the log: its name, such as ``binlog.000042``, and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place at which the server writes now, and the databases that its filters include or exclude (empty: no
    filter)."""

    file: str
    offset: int
    do_db: str = ""
    ignore_db: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaChannel:
    """The server as a replica of another one: whether its threads run, and its lag in seconds (``None``: unknown)."""

    name: str
    source: str
    running: bool
    lag_s: int | None


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges of the publisher's account, upper case, on ``scope``: ``*.*``, ``db.*`` or ``db.table``, without
    quotes.

    ``public``: every account of the server has them, by MariaDB's ``PUBLIC`` or MySQL's ``mandatory_roles``.
    """

    privileges: frozenset[str]
    scope: str
    public: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings at one moment. ``variables``: the global variables by lower-case name, as the server prints them.

    ``gtid_executed`` and ``gtid_purged`` are MySQL's sets. On MariaDB they are empty, and ``gtid_binlog_pos`` (last
    GTID per domain) and ``gtid_binlog_state`` (last per domain and server) are filled. ``place`` is ``None`` and
    ``logs`` empty without a log, or if the account may not see them. ``denied``: the statements that were refused.
    ``replicas``: ``None`` if the account may not see whether the server is a replica. ``tls``: the connection's cipher;
    empty: no TLS. ``account``: ``user@host`` of the account that the server chose. ``login``: the account that the
    client named. ``grant_lines``: the lines of ``SHOW GRANTS`` for the account and its active roles.
    """

    flavour: Flavour
    version: tuple[int, int, int]
    version_text: str
    variables: Mapping[str, str]
    server_uuid: str = ""
    server_id: int = 0
    gtid_executed: str = ""
    gtid_purged: str = ""
    gtid_binlog_pos: str = ""
    gtid_binlog_state: str = ""
    place: LogPlace | None = None
    logs: tuple[BinaryLog, ...] = ()
    replicas: tuple[ReplicaChannel, ...] | None = ()
    grants: tuple[Grant, ...] = ()
    grant_lines: tuple[str, ...] = ()
    semi_sync_clients: int = 0
    account: str = ""
    login: str = ""
    tls: str = ""
    denied: tuple[str, ...] = field(default=())

    @property
    def mariadb(self) -> bool:
        """Whether the server is MariaDB."""
        return self.flavour == "mariadb"

    @property
    def anonymous(self) -> bool:
        """Whether the server chose an account without a name. Such an account precedes accounts with more general
        hosts."""
        return self.account.startswith("@")

    def variable(self, *names: str, default: str = "") -> str:
        """The value of the first of these variables that the server has. Names differ between versions."""
        return next((self.variables[name] for name in names if name in self.variables), default)

    def flag(self, *names: str) -> bool:
        """Whether the first of these variables is on."""
        return self.variable(*names).upper() in ("ON", "1", "YES")

    def number(self, *names: str, default: int = 0) -> int:
        """The first of these variables as a whole number; ``default`` if the server has none or it is no number."""
        text = self.variable(*names).partition(".")[0]
        return int(text) if text.lstrip("-").isdigit() else default


def parse_version(text: str) -> tuple[Flavour, tuple[int, int, int]]:
    """The server's kind and version in a version text. Raises ``ValueError``."""
    numbers = _VERSION.search(text)
    if not numbers:
        raise ValueError(f"its version is {text!r:.80}")
    version = (int(numbers[1]), int(numbers[2]), int(numbers[3]))
    return "mariadb" if "mariadb" in text.lower() else "mysql", version


def parse_grant(text: str) -> Grant | None:
    """Parse a line of ``SHOW GRANTS``; ``None``: the line grants roles or proxies."""
    found = _GRANT.match(text)
    if not found:
        return None
    # Columns in parentheses limit a privilege to a part of a table. Such privileges are ignored.
    names = re.sub(r"\w+(?: \w+)* \([^)]*\)", "", found["what"])
    privileges = frozenset(name.strip().upper() for name in names.split(",") if name.strip())
    return Grant(privileges, found["scope"].replace("`", ""), public=bool(found["public"]))


def read_settings(connection: Connection[DictCursor]) -> Settings:
    """Read the settings from the server. Statements that the account may not run are recorded and raise no error.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if the connection breaks or the answers are malformed.
    """
    with reading_answers("the server's settings"):
        return _Reading(connection).settings()


class _Reading:
    def __init__(self, connection: Connection[DictCursor]) -> None:
        self._connection = connection
        self._denied: list[str] = []
        self._grant_lines: dict[str, None] = {}

    def settings(self) -> Settings:
        rows = query(self._connection, "SHOW GLOBAL VARIABLES")
        variables = {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}
        text = variables.get("version", "")
        flavour, version = parse_version(text)
        mariadb = flavour == "mariadb"
        logging = variables.get("log_bin", "").upper() in ("ON", "1")
        accounts = query(self._connection, "SELECT CURRENT_USER() AS account, USER() AS login")[0]
        return Settings(
            flavour=flavour,
            version=version,
            version_text=text,
            variables=variables,
            server_uuid="" if mariadb else variables.get("server_uuid", ""),
            server_id=int(variables.get("server_id", "0") or 0),
            gtid_executed="" if mariadb else one_line(variables.get("gtid_executed", "")),
            gtid_purged="" if mariadb else one_line(variables.get("gtid_purged", "")),
            gtid_binlog_pos=variables.get("gtid_binlog_pos", "") if mariadb else "",
            gtid_binlog_state=one_line(variables.get("gtid_binlog_state", "")) if mariadb else "",
            place=self._place(flavour, version) if logging else None,
            logs=self._logs() if logging else (),
            replicas=self._replicas(flavour, version),
            grants=self._grants(str(accounts["account"]), None if mariadb else variables.get("mandatory_roles", "")),
            grant_lines=tuple(self._grant_lines),
            semi_sync_clients=self._semi_sync_clients(),
            account=str(accounts["account"]),
            login=str(accounts["login"]),
            tls=self._tls(),
            denied=tuple(self._denied),
        )

    def _allowed(self, sql: str) -> list[dict[str, Any]] | None:
        try:
            return query(self._connection, sql)
        except UsageError:
            self._denied.append(sql)
            return None

    def _place(self, flavour: Flavour, version: tuple[int, int, int]) -> LogPlace | None:
        # MySQL has the new name from 8.2 on, and only the new name from 8.4 on.
        new = flavour == "mysql" and version >= (8, 2, 0)
        rows = self._allowed("SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS")
        if not rows:
            return None
        row = rows[0]
        return LogPlace(
            str(row["File"]), int(row["Position"]), row.get("Binlog_Do_DB") or "", row.get("Binlog_Ignore_DB") or ""
        )

    def _logs(self) -> tuple[BinaryLog, ...]:
        rows = self._allowed("SHOW BINARY LOGS")
        return tuple(BinaryLog(str(row["Log_name"]), int(row["File_size"])) for row in rows or ())

    def _replicas(self, flavour: Flavour, version: tuple[int, int, int]) -> tuple[ReplicaChannel, ...] | None:
        if flavour == "mariadb":
            rows = self._allowed("SHOW ALL SLAVES STATUS")
        else:
            rows = self._allowed("SHOW REPLICA STATUS" if version >= (8, 0, 22) else "SHOW SLAVE STATUS")
        return None if rows is None else tuple(_channel(row) for row in rows)

    def _grants(self, account: str, mandatory: str | None) -> tuple[Grant, ...]:
        """The grants of the account. ``mandatory``: the roles that MySQL grants to every account; ``None``: MariaDB."""
        if mandatory is None:
            return self._shown_grants("SHOW GRANTS")
        # Privileges of an active role are shown only if the role is named, and then as the account's own.
        active = str(query(self._connection, "SELECT CURRENT_ROLE() AS role")[0]["role"])
        if active == "NONE":
            return self._shown_grants("SHOW GRANTS")
        effective = self._shown_grants(f"SHOW GRANTS FOR CURRENT_USER() USING {active}")
        roles, everybodys = _roles(active), _roles(mandatory)
        if not roles.keys() & everybodys.keys():
            return effective
        using = ",".join(role for named, role in roles.items() if named not in everybodys)
        # Only a statement that names the account excludes the active roles.
        own = self._shown_grants(f"SHOW GRANTS FOR {_quoted(account)}{using and f' USING {using}'}")
        return (*own, *(replace(one, public=True) for one in effective))

    def _shown_grants(self, sql: str) -> tuple[Grant, ...]:
        lines = [str(next(iter(row.values()), "")) for row in self._allowed(sql) or ()]
        self._grant_lines |= dict.fromkeys(lines)
        return tuple(grant for grant in map(parse_grant, lines) if grant is not None)

    def _semi_sync_clients(self) -> int:
        rows = query(self._connection, "SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_%\\_clients'")
        return sum(int(row["Value"]) for row in rows)

    def _tls(self) -> str:
        rows = query(self._connection, "SHOW SESSION STATUS LIKE 'Ssl\\_cipher'")
        return str(rows[0]["Value"]) if rows else ""


def _roles(text: str) -> dict[tuple[str, str], str]:
    """The roles in a list, by name and host."""
    return {(one["name"].strip("`'\""), (one["host"] or "%").strip("`'\"")): one[0] for one in _ROLE.finditer(text)}


def _quoted(account: str) -> str:
    user, _, host = account.rpartition("@")
    return f"{quoted(user)}@{quoted(host)}"


def _channel(row: Mapping[str, Any]) -> ReplicaChannel:
    def value(*names: str) -> Any:
        return next((row[name] for name in names if name in row), None)

    running = (
        value("Replica_IO_Running", "Slave_IO_Running") == "Yes"
        and value("Replica_SQL_Running", "Slave_SQL_Running") == "Yes"
    )
    lag = value("Seconds_Behind_Source", "Seconds_Behind_Master")
    return ReplicaChannel(
        name=str(value("Channel_Name", "Connection_name") or ""),
        source=f"{value('Source_Host', 'Master_Host')}:{value('Source_Port', 'Master_Port')}",
        running=running,
        lag_s=None if lag is None else int(lag),
    )


def one_line(gtids: object) -> str:
    """GTIDs from a server's answer, without line ends and blanks."""
    return str(gtids or "").replace("\n", "").replace(" ", "")
