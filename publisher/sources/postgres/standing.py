"""Whether a log can be served from a server now: its settings, its slots, and what it has of what was delivered."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from publisher.sources.lacking import shortened
from publisher.sources.postgres import slots
from publisher.sources.postgres.address import Address
from publisher.sources.postgres.connection import Connection, connect, understood
from publisher.sources.postgres.lsn import parse_delivered
from publisher.sources.postgres.server_state import ServerState, read_state
from publisher.sources.postgres.timelines import Timelines, read_timelines
from wormhole.model.errors import PositionError, SourceUnavailable, UnsupportedLog, WormholeError
from wormhole.model.problem import Problem
from wormhole.ports.datastore import Standing

__all__ = ["check_settings", "check_slots", "standing"]

_ASKED: Final = "SELECT pg_is_in_recovery(), (SELECT system_identifier FROM pg_control_system())"


def standing(address: Address, delivered: Collection[str]) -> Standing:
    """See :meth:`wormhole.ports.datastore.Datastore.standing`. The server is the cluster's identifier, which its
    standbys have too: one of them is the server behind the log once it is promoted.
    """
    connection = connect(address)
    try:
        with understood(address):
            ((standby, system),) = connection.query(_ASKED)
            server = system or ""
            if standby == "t":
                return Standing(server, ready=False, problem=_standby(connection))
            try:
                names = {name: name for name in (slots.held_slot(address.slot), slots.lead_slot(address.slot))}
                state = read_state(connection, address.publication, names)
                check_settings(state, address)
                check_slots(state, address)
            except WormholeError as error:
                if not connection.is_open:
                    raise
                return Standing(server, ready=False, problem=error.problem)
    finally:
        connection.close()
    timelines = read_timelines(address, state.timeline)
    return Standing(server, lacking=shortened(", ".join(_lacking(state, timelines, delivered))))


def check_settings(state: ServerState, address: Address) -> None:
    """Raises :class:`~wormhole.model.errors.UnsupportedLog`, or
    :class:`~wormhole.model.errors.SourceUnavailable`, with the SQL that repairs it.
    """
    if state.wal_level != "logical":
        raise UnsupportedLog(
            f"wal_level is {state.wal_level}: the log does not hold the rows",
            hint="set it and restart the server:\nALTER SYSTEM SET wal_level = logical;",
        )
    if not state.publication:
        raise SourceUnavailable(
            f"the database {address.database} has no publication {address.publication}",
            hint="make it, or name another one behind the URL, ?publication=NAME:\n"
            + slots.statement_of_publication(address.publication),
        )


def check_slots(state: ServerState, address: Address) -> None:
    """Both slots are there, and one of them can be read. Raises as
    :func:`publisher.sources.postgres.slots.check`.
    """
    both = {slots.held_slot(address.slot), slots.lead_slot(address.slot)} <= state.slots.keys()
    (slots.usable if both else slots.check)(state, address.slot, address.database)


def _standby(connection: Connection) -> Problem:
    text = "it is a standby; it can serve once it is promoted"
    promote = "when its primary is gone: SELECT pg_promote();"
    if connection.version < slots.FAILOVER_SINCE:
        version = connection.version // 10000
        return Problem(
            text,
            f"{promote}\nPostgreSQL {version} gives a standby no logical slots: make them before anybody writes to it "
            "(`wormholectl objects create`)",
        )
    if connection.query("SELECT current_setting('sync_replication_slots')") == [("on",)]:
        return Problem(text, promote)
    return Problem(
        f"{text}, and it does not get the slots of its primary (sync_replication_slots = off)",
        "let it keep them:\nALTER SYSTEM SET sync_replication_slots = on;\nSELECT pg_reload_conf();",
    )


def _lacking(state: ServerState, timelines: Timelines, delivered: Collection[str]) -> Iterator[str]:
    for text in sorted(set(delivered)):
        try:
            timeline, lsn = parse_delivered(text)
        except PositionError:  # of another kind of datastore
            yield text
            continue
        if lsn > state.end or not timelines.holds(timeline or timelines.current, lsn):
            yield text
