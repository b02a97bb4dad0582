"""Reads the facts about a server that existing rows require, and prepares the session in which the rows are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.existing_rows.snapshot import MariaSnapshots, MySqlSnapshots, Snapshots
from datastores.mysql.server.connection import query, reading_answers
from datastores.mysql.server.settings import parse_version
from datastores.mysql.server.table_names import show_all
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["Server", "ask_server", "prepare_session"]

_IDENTITY: Final = "SELECT CONCAT(@@GLOBAL.server_id, '/', {}) AS identity"
_SESSION: Final = (
    # Texts arrive in their column's character set, and are decoded as those in the log.
    "character_set_results = NULL",
    "lock_wait_timeout = 2",
)
_NOW: Final = "SET SESSION system_versioning_asof = DEFAULT"
"""Shows the present rows, even if the server's default is to show the rows of another time."""
_PACKET_ROOM: Final = 64 << 10
_NO_GTIDS: Final = Problem(
    "gtid_mode is {} on this server: a snapshot's place in the log cannot be known without GTIDs",
    "SET PERSIST enforce_gtid_consistency = ON; then SET PERSIST gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE and ON, one "
    "after the other",
    code="copy-not-ready",
)


@dataclass(frozen=True, slots=True)
class Server:
    """``identity``: see `datastores.mysql.server.state`. ``account``: the publisher's, ``user@host``. ``most_packet``:
    the most bytes of a row's values. ``refused``: why no table can be read.
    """

    mariadb: bool
    identity: str
    account: str
    most_packet: int
    snapshots: Snapshots
    refused: Problem = NO_PROBLEM


def ask_server(connection: Connection[Any]) -> Server:
    """Raises :class:`~wormhole.model.errors.WormholeError`."""
    with reading_answers("the server's version"):
        row = query(
            connection,
            "SELECT VERSION() AS version, CURRENT_USER() AS account, @@GLOBAL.max_allowed_packet AS packet",
        )[0]
        flavour, version = parse_version(str(row["version"]))
        account, packet = str(row["account"]), max(_PACKET_ROOM, int(row["packet"]) - _PACKET_ROOM)
        if flavour == "mariadb":
            uid = query(connection, "SHOW GLOBAL VARIABLES LIKE 'server\\_uid'")
            identity = query(connection, _IDENTITY.format("@@GLOBAL.server_uid" if uid else "''"))[0]["identity"]
            return Server(True, str(identity), account, packet, MariaSnapshots())
        row = query(connection, "SELECT @@GLOBAL.server_uuid AS identity, @@GLOBAL.gtid_mode AS gtids")[0]
        gtids = str(row["gtids"]).upper()
        refused = (
            NO_PROBLEM
            if gtids == "ON"
            else Problem(_NO_GTIDS.text.format(gtids), _NO_GTIDS.hint, code="copy-not-ready")
        )
        return Server(False, str(row["identity"]), account, packet, MySqlSnapshots(version), refused)


def prepare_session(connection: Connection[Any], server: Server) -> None:
    """Raises :class:`~wormhole.model.errors.WormholeError`."""
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    show_all(connection)
    query(connection, f"SET SESSION {', '.join(_SESSION)}")
    if server.mariadb:
        query(connection, _NOW)
