"""Checks whether a server can serve a log now: its settings, its slots, and whether it has the delivered log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from datastores.common.next_steps import shortened
from datastores.postgres.history.timelines import Timelines, read_timelines
from datastores.postgres.log import slots
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, connect, understood
from datastores.postgres.server.lsn import parse_delivered
from datastores.postgres.server.state import ServerState, read_state
from datastores.postgres.server.versions import FAILOVER_SINCE
from datastores.postgres.sql_text import quote_literal
from wormhole.model.errors import PositionError, SourceUnavailable, UnsupportedLog, WormholeError
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.datastore import Standing

__all__ = ["check_settings", "check_slots", "standing"]

_ASKED: Final = "SELECT pg_is_in_recovery(), (SELECT system_identifier FROM pg_control_system())"
_GETS_SLOTS: Final = (
    "SELECT current_setting('sync_replication_slots'), current_setting('hot_standby_feedback'), "
    "current_setting('primary_slot_name')"
)


def standing(address: Address, delivered: Collection[str]) -> Standing:
    """See :meth:`wormhole.ports.datastore.Datastore.standing`. The cluster's identifier identifies the server. Its
    standbys share the identifier, because a promoted standby becomes the log's server.
    """
    connection = connect(address)
    try:
        with understood(address):
            ((standby, system),) = connection.query(_ASKED)
            server = system or ""
            if standby == "t":
                lacks = _standby_lacks(connection, address)
                problem = lacks or _promoted_later(connection.version)
                return Standing(server, ready=False, problem=problem, promotable=not lacks)
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
    """Check the server's settings and the publication. Raises :class:`~wormhole.model.errors.UnsupportedLog`, or
    :class:`~wormhole.model.errors.SourceUnavailable`, with the SQL that repairs the fault.
    """
    if state.wal_level != "logical":
        raise UnsupportedLog(
            f"wal_level is {state.wal_level}: the log does not hold the rows",
            hint="set it and restart the server:\nALTER SYSTEM SET wal_level = logical;",
            code="log-unsupported",
        )
    if not state.publication:
        raise SourceUnavailable(
            f"the database {address.database} has no publication {address.publication}",
            hint=_how_to_publish(address, state.version),
            code="objects-missing",
        )


def check_slots(state: ServerState, address: Address) -> None:
    """Check that both slots exist and that one of them is readable. Raises as
    :func:`datastores.postgres.log.slots.check`.
    """
    both = {slots.held_slot(address.slot), slots.lead_slot(address.slot)} <= state.slots.keys()
    (slots.usable if both else slots.check)(state, address.slot, address.database)


def _standby_lacks(connection: Connection, address: Address) -> Problem:
    """What a standby would lack if it were promoted now, with the remedy. Before version 17 a standby gets no slots."""
    if connection.version < FAILOVER_SINCE:
        return NO_PROBLEM
    return _without_publication(connection, address) or _without_slots(connection, address)


def _promoted_later(version: int) -> Problem:
    """The problem that a standby cannot serve before its promotion. ``version``: the server's."""
    text, promote = (
        "it is a standby; it can serve once it is promoted",
        "when its primary is gone: SELECT pg_promote();",
    )
    if version >= FAILOVER_SINCE:
        return Problem(text, promote, code="copy-not-ready")
    return Problem(
        text,
        f"{promote}\nPostgreSQL {version // 10000} gives a standby no logical slots: make them before anybody writes "
        "to it (`wormholectl objects create`)",
        code="copy-not-ready",
    )


def _without_publication(connection: Connection, address: Address) -> Problem:
    found = connection.query(f"SELECT 1 FROM pg_publication WHERE pubname = {quote_literal(address.publication)}")  # noqa: S608
    if found:
        return NO_PROBLEM
    return Problem(
        f"it is a standby, and its database {address.database} has no publication {address.publication}",
        f"on the primary: {_how_to_publish(address, connection.version)}",
        code="objects-missing",
    )


def _how_to_publish(address: Address, version: int) -> str:
    statement = slots.statement_of_publication(address.publication, ["SCHEMA.TABLE"], version)
    return (
        "make it before the slots, or name another one behind the URL, ?publication=NAME. `wormholectl objects create` "
        f"lists every table that can be published; for a few:\n{statement}"
    )


def _without_slots(connection: Connection, address: Address) -> Problem:
    """The problem if the standby would lack a slot after a promotion now."""
    ((gets, feedback, own),) = connection.query(_GETS_SLOTS)
    settings = {"sync_replication_slots": gets, "hot_standby_feedback": feedback}
    off = [name for name, value in settings.items() if value != "on"]
    if off or not own:
        what = ", ".join([*(f"{name} = off" for name in off), *(() if own else ("primary_slot_name is empty",))])
        return Problem(
            f"it is a standby, and it does not get the slots of its primary ({what})",
            "\n".join(
                (
                    "let it keep them:",
                    *(f"ALTER SYSTEM SET {name} = on;" for name in off),
                    *(() if own else ("ALTER SYSTEM SET primary_slot_name = 'NAME';",)),
                    "SELECT pg_reload_conf();",
                )
            ),
            code="copy-not-ready",
        )
    names = (slots.held_slot(address.slot), slots.lead_slot(address.slot))
    rows = connection.query(
        "SELECT slot_name, temporary OR wal_status = 'lost' FROM pg_replication_slots WHERE synced AND "  # noqa: S608
        f"slot_name IN ({', '.join(map(quote_literal, names))})"
    )
    present = {str(name): goes == "t" for name, goes in rows}
    if missing := [name for name in names if name not in present]:
        return Problem(
            f"it is a standby, and it has not got the slots {', '.join(missing)} of its primary",
            "look into its own log. Its primary_conninfo needs a dbname, and the slots of the primary failover => true "
            "(`wormholectl doctor` of the primary)",
            code="copy-not-ready",
        )
    if early := [name for name in names if present[name]]:
        return Problem(
            f"it is a standby, and the slots {', '.join(early)} would be gone if it were promoted now: they begin "
            "before the log that it has for them",
            "see which flow is furthest behind (`wormholectl flows`): it keeps them once its primary's have moved on",
            code="copy-not-ready",
        )
    return NO_PROBLEM


def _lacking(state: ServerState, timelines: Timelines, delivered: Collection[str]) -> Iterator[str]:
    for text in sorted(set(delivered)):
        try:
            timeline, lsn = parse_delivered(text)
        except PositionError:  # another kind of datastore wrote it
            yield text
            continue
        if lsn > state.end or not timelines.holds(timeline or timelines.current, lsn):
            yield text
