"""The SQL that creates missing objects of a publisher in the database and drops existing ones: publication and slots.
An operator confirms each run.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from datastores.postgres.doctor.publication import addition_to, wanted_publication
from datastores.postgres.log import slots
from datastores.postgres.log.slot_mover import movers
from datastores.postgres.server.address import NAME_PREFIX, Address
from datastores.postgres.server.connection import Connection, ServerError, connect
from datastores.postgres.server.lsn import format_lsn
from datastores.postgres.server.state import ServerState, read_state
from datastores.postgres.sql_text import quote_identifier, quote_literal
from datastores.postgres.tables.identities import TableIdentity, named, read_tables
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.ports.datastore import ServerObjects

__all__ = ["Publishing", "copies_of", "find", "find_names", "plan_publication", "run"]

_MAKES_S: Final = 60  # seconds; creating a slot waits for every open transaction
_TIMED_OUT: Final = "57014"
_REFUSED: Final = "42501"


def find(address: Address, tables: Sequence[str] = ()) -> ServerObjects:
    """The existing and the missing objects. ``tables``: patterns of table names (``schema.table``) for the publication.
    Without patterns an existing publication is not changed, and a new one gets every table without an obstacle. Raises
    as :func:`datastores.postgres.doctor.examination.check`.
    """
    names = (slots.held_slot(address.slot), slots.lead_slot(address.slot))
    connection = connect(address)
    try:
        state = read_state(connection, address.publication, {name: name for name in names})
        for slot in state.slots.values():
            slots.check_owner(slot, address.database)
        publishing = plan_publication(
            read_tables(connection, address.publication), tables, is_there=state.publication, log=address.publication
        )
        made = dict(zip(names, slots.create_statements(address.slot, state.version), strict=True))
        drops = dict(zip(reversed(names), slots.drop_statements(address.slot), strict=True))
        lost = slots.repair_statements(state, address.slot)
        missing = lost or [statement for name, statement in made.items() if name not in state.slots]
        present = [statement for name, statement in drops.items() if name in state.slots]
        if state.publication:
            present.append(f"DROP PUBLICATION {quote_identifier(address.publication)};")
            if publishing.tables:
                missing.append(addition_to(address.publication, publishing.tables))
        else:
            missing.insert(0, wanted_publication(address.publication, publishing.tables, state.version))
        mover = movers(connection, address.slot)
        publisher = f"a publisher moves the slots {address.slot}_* ({mover})" if mover else ""
        return ServerObjects(
            tuple(missing),
            tuple(present),
            publisher,
            publisher or _reader(connection, address),
            _kept(state, names[0]),
            tuple(f"slot={name}" for name in _names_of_logs(connection, address) if name != address.slot),
            publishing.left_out,
        )
    finally:
        connection.close()


class Publishing(NamedTuple):
    """``tables``: the tables to add to the publication. ``left_out``: the tables that are not added, and why."""

    tables: tuple[TableIdentity, ...]
    left_out: str


def plan_publication(
    known: Sequence[TableIdentity], patterns: Sequence[str], *, is_there: bool, log: str
) -> Publishing:
    """Plan the publication's tables. Raises :class:`~wormhole.model.errors.UsageError` for a pattern that no table
    matches.
    """
    for pattern in patterns:
        if not any(_matches(one, [pattern]) for one in known):
            raise UsageError(
                f"no table of the database is called {pattern}", hint="give it as schema.table", code="table-unknown"
            )
    missing = [one for one in known if not one.published]
    meant = [one for one in missing if _matches(one, patterns or ["*"])]
    wanted = [one for one in meant if not one.obstacle]
    offered = is_there and not patterns
    parts = [f"{named(wanted)} (add them: --tables 'SCHEMA.TABLE')"] if offered and wanted else []
    parts += [
        f"{named([one for one in meant if one.obstacle == obstacle])} ({obstacle})"
        for obstacle in dict.fromkeys(one.obstacle for one in meant if one.obstacle)
    ]
    left_out = f"{log} leaves out {'; '.join(parts)}" if parts else ""
    return Publishing(() if offered else tuple(wanted), left_out)


def _matches(table: TableIdentity, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(f"{table.schema}.{table.name}", pattern) for pattern in patterns)


def run(address: Address, statements: Sequence[str]) -> None:
    """Run the statements in order. Raises :class:`~wormhole.model.errors.SourceUnavailable` with the statements that
    were not run."""
    connection = connect(address)
    try:
        connection.query(f"SET statement_timeout = '{_MAKES_S}s'")
        for number, statement in enumerate(statements):
            try:
                connection.query(statement, timeout_s=_MAKES_S + 30.0)
            except ServerError as error:
                why = error.message
                if error.sqlstate == _TIMED_OUT:
                    why = f"{address}: transactions that are open did not end within {_MAKES_S} s"
                hint = {
                    _REFUSED: "run these as a superuser, or as the owner of the tables",
                    _TIMED_OUT: "look for the oldest in pg_stat_activity (xact_start), end it, and run these",
                }.get(error.sqlstate, "correct that, and run these")
                raise SourceUnavailable(why, hint="\n".join((f"{hint}:", *statements[number:]))) from None
    finally:
        connection.close()


def find_names(connection: Connection, address: Address) -> Address:
    """Complete the address for a command without a log: the slots' name is that of the only log in this database.

    If the log's publication does not exist, the name of the only other publication is used. Names in the URL are kept.
    Raises :class:`~wormhole.model.errors.UsageError` if several logs have slots.
    """
    name, publication = address.slot, address.publication
    if not address.names_slot:
        known = _names_of_logs(connection, address)
        if len(known) > 1:
            raise UsageError(
                f"{address}: several logs have slots in this database: {', '.join(known)}",
                hint=f"name one: --log NAME, or behind the URL ?slot={known[0]}&publication=NAME",
                code="wrong-request",
            )
        name = known[0] if known else name
    if not address.names_publication:
        published = {str(one) for (one,) in connection.query("SELECT pubname FROM pg_publication")}
        publication = name
        if name not in published:
            # If the log has slots, another publication is not this log's.
            others = [one for one in published if name == address.slot or not one.startswith(NAME_PREFIX)]
            publication = others[0] if len(others) == 1 else name
    return replace(address, slot=name, publication=publication)


def _names_of_logs(connection: Connection, address: Address) -> list[str]:
    """The common prefixes of the slots of this database's logs, without ``_held`` and ``_lead``."""
    rows = connection.query(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ '_(held|lead)$' AND NOT temporary AND "  # noqa: S608
        f"database = {quote_literal(address.database)} AND plugin = {quote_literal(slots.PLUGIN)}"
    )
    found = {str(name) for (name,) in rows}
    # Another program's slot may have this suffix too. With our prefix as well, one of the two slots is enough.
    return sorted(
        name
        for name in {slot[:-5] for slot in found}
        if name.startswith(NAME_PREFIX) or {slots.held_slot(name), slots.lead_slot(name)} <= found
    )


def copies_of(name: str) -> str:
    """The pattern of the names of a log's slot copies. It matches no other log's copies, even if one log's name begins
    with the other's."""
    return f"^{name}_[0-9]+_[0-9a-f]{{4}}_[0-9]+$"


def _reader(connection: Connection, address: Address) -> str:
    copies = quote_literal(copies_of(address.slot))
    rows = connection.query(
        f"SELECT slot_name, active_pid FROM pg_replication_slots WHERE slot_name ~ {copies} AND active "  # noqa: S608
        "ORDER BY 1 LIMIT 1"
    )
    return "".join(f"a publisher or a tail reads the log (the slot {name}, process {pid})" for name, pid in rows)


def _kept(state: ServerState, name: str) -> str:
    slot = state.slots.get(name)
    if slot is None or slot.lost:
        return ""
    kept = max(0, state.end - slot.confirmed) >> 20
    return (
        f"{name} keeps the log from {format_lsn(slot.confirmed)} on for the oldest datamarker ({kept} MiB): a "
        "flow that has not received all of it reports a loss when it goes on"
    )
