"""What a publisher needs in the database, publication and slots: the SQL that makes what is missing, and that drops
what is there. Nothing is made or dropped without the operator's yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from publisher.sources.postgres import slots
from publisher.sources.postgres.address import Address
from publisher.sources.postgres.connection import Connection, ServerError, connect, quote_identifier, quote_literal
from publisher.sources.postgres.doctor_publication import wanted_publication
from publisher.sources.postgres.lsn import format_lsn
from publisher.sources.postgres.server_state import ServerState, read_state
from publisher.sources.postgres.table_identities import read_tables
from wormhole.model.errors import SourceUnavailable
from wormhole.ports.datastore import ServerObjects

__all__ = ["find", "find_names", "run"]

_MAKES_S: Final = 60  # a slot is made once every transaction that is open has ended
_TIMED_OUT: Final = "57014"
_REFUSED: Final = "42501"


def find(address: Address) -> ServerObjects:
    """What is there and what is not. Raises as :func:`publisher.sources.postgres.doctor.check`."""
    names = (slots.held_slot(address.slot), slots.lead_slot(address.slot))
    connection = connect(address)
    try:
        state = read_state(connection, address.publication, {name: name for name in names})
        tables = [] if state.publication else read_tables(connection, address.publication)
        made = dict(zip(names, slots.create_statements(address.slot, state.version), strict=True))
        drops = dict(zip(reversed(names), slots.drop_statements(address.slot), strict=True))
        missing = [statement for name, statement in made.items() if name not in state.slots]
        present = [statement for name, statement in drops.items() if name in state.slots]
        if state.publication:
            present.append(f"DROP PUBLICATION {quote_identifier(address.publication)};")
        else:
            missing.insert(0, wanted_publication(address.publication, tables))
        return ServerObjects(tuple(missing), tuple(present), _in_use(connection, address), _kept(state, names[0]))
    finally:
        connection.close()


def run(address: Address, statements: Sequence[str]) -> None:
    """Run them in order. Raises :class:`~wormhole.model.errors.SourceUnavailable` with those that were not run."""
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
    """The address with the names that this database's only pair of slots has, and with its only publication if the one
    of that name is not there. For a command that knows no log; what the URL names stays.
    """
    name, publication = address.slot, address.publication
    if not address.names_slot:
        pairs = connection.query(
            "SELECT DISTINCT left(h.slot_name, -5) FROM pg_replication_slots h JOIN pg_replication_slots l "  # noqa: S608
            "ON l.slot_name = left(h.slot_name, -5) || '_lead' "
            f"WHERE h.slot_name LIKE '%\\_held' AND h.database = {quote_literal(address.database)} "
            f"AND h.plugin = {quote_literal(slots.PLUGIN)} LIMIT 2"
        )
        name = (pairs[0][0] or name) if len(pairs) == 1 else name
    if not address.names_publication:
        published = {str(one) for (one,) in connection.query("SELECT pubname FROM pg_publication")}
        publication = next(iter(published)) if len(published) == 1 and name not in published else name
    return replace(address, slot=name, publication=publication)


def _in_use(connection: Connection, address: Address) -> str:
    """A reader has a copy of a slot, whose name begins with theirs."""
    copies = quote_literal(f"^{address.slot}_[0-9]+_")
    rows = connection.query(
        f"SELECT slot_name, active_pid FROM pg_replication_slots WHERE slot_name ~ {copies} AND active "  # noqa: S608
        "ORDER BY 1 LIMIT 1"
    )
    return "".join(f"a publisher reads the log (the slot {name}, process {pid})" for name, pid in rows)


def _kept(state: ServerState, name: str) -> str:
    slot = state.slots.get(name)
    if slot is None or slot.lost:
        return ""
    kept = max(0, state.end - slot.confirmed) >> 20
    return (
        f"{name} keeps the log from {format_lsn(slot.confirmed)} on for the oldest datamarker ({kept} MiB): a "
        "flow that has not received all of it reports a loss when it goes on"
    )
