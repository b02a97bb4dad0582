"""The replication slots of a log: two permanent ones, and temporary copies of them for the readers.

``<name>_held`` stays at the oldest datamarker, so the server keeps the log from there on. ``<name>_lead`` follows the
furthest reader, so a copy of it decodes little before it reaches new log.

Each reader has a temporary copy, which the server drops at the end of the reader's session. So any number of readers
can read at the same time, and a killed publisher leaves no slot in use.

A slot never sends log before its confirmed place. To open a place, the server must send the commit of the place's
anchor again. So both permanent slots are confirmed at most up to that commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from datastores.postgres.server.connection import Connection, ServerError
from datastores.postgres.server.lsn import format_lsn, parse_lsn
from datastores.postgres.server.state import ServerState, Slot
from datastores.postgres.server.versions import FAILOVER_SINCE, GENERATED_SINCE
from datastores.postgres.sql_text import quote_identifier, quote_literal
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = [
    "PLUGIN",
    "Awaited",
    "advance",
    "awaited",
    "awaited_problem",
    "check",
    "check_owner",
    "copy",
    "create_statements",
    "create_temporary",
    "drop_statements",
    "held_slot",
    "lead_slot",
    "nearest",
    "repair_statements",
    "rest_s",
    "statement_of_publication",
    "usable",
]

PLUGIN: Final = "pgoutput"
_WHY_LOST: Final = {
    "": "the server removed what it needed (max_slot_wal_keep_size)",
    "rows_removed": "the server removed rows of catalogues that it needed",
    "wal_level_insufficient": "wal_level was lowered",
    "idle_timeout": "it was not moved on for longer than idle_replication_slot_timeout",
}
_ADVANCE_S: Final = 600.0  # seconds; a move decodes all log up to its place, and a new slot waits for open transactions
# The pause after moves is this many times as long as the moves took (see rest_s).
_REST: Final = 20.0
_LONGEST_REST_S: Final = 300.0
_IN_USE: Final = "55006"
# Names of slots have no capital letters.
_AWAITED: Final = (
    "SELECT name, slot_name IS NOT NULL, coalesce(active, false), restart_lsn FROM "
    "(SELECT lower(btrim(part, ' \"')) AS name FROM "
    "regexp_split_to_table(current_setting('synchronized_standby_slots'), ',') AS part) AS named "
    "LEFT JOIN pg_replication_slots ON slot_name = name AND slot_type = 'physical' WHERE name <> ''"
)


@dataclass(frozen=True, slots=True)
class Awaited:
    """A standby for which the server's slots wait (``synchronized_standby_slots``).

    ``slot``: the slot of the standby. ``known``: whether the server has this slot. ``connected``: whether the standby
    reads it. ``has``: the place up to which the standby has the log.
    """

    slot: str
    known: bool
    connected: bool
    has: int


def held_slot(name: str) -> str:
    """The slot at the oldest datamarker."""
    return f"{name}_held"


def lead_slot(name: str) -> str:
    """The slot that follows the furthest reader."""
    return f"{name}_lead"


def create_statements(name: str, version: int = 0) -> tuple[str, str]:
    """The SQL that creates both slots, for an operator to run. ``version``: the server's.

    From version 17 on the statements let standbys have the slots. A copied slot cannot have that permission, so both
    are created.
    """
    held, lead = quote_literal(held_slot(name)), quote_literal(lead_slot(name))
    if version >= FAILOVER_SINCE:
        made = f"SELECT pg_create_logical_replication_slot({{}}, '{PLUGIN}', failover => true);"
        return made.format(held), made.format(lead)
    return (
        f"SELECT pg_create_logical_replication_slot({held}, '{PLUGIN}');",
        f"SELECT pg_copy_logical_replication_slot({held}, {lead});",
    )


def drop_statements(name: str) -> tuple[str, str]:
    """The SQL that drops both slots. Without a publisher they would keep log until the server's disk is full."""
    return (
        f"SELECT pg_drop_replication_slot({quote_literal(lead_slot(name))});",
        f"SELECT pg_drop_replication_slot({quote_literal(held_slot(name))});",
    )


def statement_of_publication(publication: str, tables: Sequence[str], version: int) -> str:
    """The SQL that creates the publication with ``tables``, names as SQL. ``version``: the server's; from 18 on it can
    send generated columns.

    Tables created later are not included, because the server refuses every UPDATE and DELETE of a published table
    without a key. Partitions are published under the name of their root.
    """
    what = f" FOR TABLE {', '.join(tables)}" if tables else ""
    generated = ", publish_generated_columns = stored" if version >= GENERATED_SINCE else ""
    options = f"publish_via_partition_root = true{generated}"
    return f"CREATE PUBLICATION {quote_identifier(publication)}{what} WITH ({options});"


def check(state: ServerState, name: str, database: str) -> tuple[Slot, Slot]:
    """The held and the lead slot. If one is missing, has lost its log, or is of another database or plugin, raises
    :class:`~wormhole.model.errors.SourceUnavailable` with the SQL that repairs it.
    """
    held, lead = held_slot(name), lead_slot(name)
    made = dict(zip((held, lead), create_statements(name, state.version), strict=True))
    if (other := state.slots.get(lead)) is not None and not other.lost:
        # A new slot would begin at the end of the log. Once the lead slot moves, no slot would keep the log that slower
        # flows need.
        made[held] = _copy_of(lead, held)
    missing = [statement for wanted, statement in made.items() if wanted not in state.slots]
    found: list[Slot] = []
    for wanted in made:
        slot = state.slots.get(wanted)
        if slot is None:
            raise SourceUnavailable(
                f"the server has no replication slot {wanted}, which keeps its log for the publisher",
                hint="\n".join((f"make it, in the database {database}:", *missing)),
                code="objects-missing",
            )
        check_owner(slot, database)
        if slot.lost:
            raise SourceUnavailable(
                f"the replication slot {wanted} has lost its log: {_WHY_LOST.get(slot.invalid, _WHY_LOST[''])}",
                hint=_how_to_repair(state, name),
                code="slot-lost",
            )
        found.append(slot)
    return found[0], found[1]


def check_owner(slot: Slot, database: str) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` for a slot of another program or database.

    A server has a single list of slots for all databases and programs.
    """
    if slot.plugin != PLUGIN or slot.database != database:
        raise UsageError(
            f"the replication slot {slot.name} is of the plugin {slot.plugin or 'none'} and the database "
            f"{slot.database or 'none'}, not of {PLUGIN} and {database}",
            hint="give the log another name, or name its slots behind the URL: ?slot=NAME",
            code="objects-missing",
        )


def usable(state: ServerState, name: str, database: str) -> tuple[Slot, ...]:
    """The readable slots: held and lead, or one of them. Raises as :func:`check` if none is readable."""
    try:
        return check(state, name, database)
    except SourceUnavailable:
        left = tuple(slot for slot in state.slots.values() if not slot.lost and slot.database == database)
        if not left:
            raise
        return left


def repair_statements(state: ServerState, name: str) -> list[str]:
    """The SQL that replaces slots that have lost their log; empty if none has."""
    lost = [one for one in (held_slot(name), lead_slot(name)) if one in state.slots and state.slots[one].lost]
    if not lost:
        return []
    kept = [one.name for one in state.slots.values() if not one.lost]
    if not kept:
        present = dict(zip((lead_slot(name), held_slot(name)), drop_statements(name), strict=True))
        return [
            *(statement for one, statement in present.items() if one in state.slots),
            *create_statements(name, state.version),
        ]
    return [
        f"SELECT pg_drop_replication_slot({quote_literal(lost[0])});",
        _copy_of(kept[0], lost[0]),
    ]


def _copy_of(slot: str, name: str) -> str:
    return f"SELECT pg_copy_logical_replication_slot({quote_literal(slot)}, {quote_literal(name)});"


def _how_to_repair(state: ServerState, name: str) -> str:
    from_other = "make it anew from the other one; flows that were behind that report the range that is lost:"
    both = "make both anew; flows report the range that is lost:"
    heading = both if all(slot.lost for slot in state.slots.values()) else from_other
    return "\n".join((heading, *repair_statements(state, name)))


def nearest(slots: Iterable[Slot], begin: int) -> Slot | None:
    """The slot from which the server decodes the least log before ``begin``.

    ``None``: every slot is confirmed beyond ``begin``.
    """
    return max((slot for slot in slots if slot.confirmed <= begin), key=lambda slot: slot.confirmed, default=None)


def create_temporary(walsender: Connection, name: str) -> None:
    """Create a slot that is dropped with the session. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
    walsender.query(
        f"CREATE_REPLICATION_SLOT {quote_identifier(name)} TEMPORARY LOGICAL {PLUGIN} NOEXPORT_SNAPSHOT",
        timeout_s=_ADVANCE_S,
    )


def copy(walsender: Connection, slot: Slot, name: str) -> None:
    """Create a copy that is dropped with the session. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
    try:
        walsender.query(
            f"SELECT pg_copy_logical_replication_slot({quote_literal(slot.name)}, {quote_literal(name)}, true)"
        )
    except ServerError as error:
        if error.sqlstate != "53400":
            raise
        raise SourceUnavailable(
            f"{error.message}: each reader of the log needs one for itself",
            hint="raise max_replication_slots (10 is the default), which takes a restart of the server, or lower "
            "caravans.max of the dataset",
            code="limit-too-low",
        ) from None


def advance(connection: Connection, slot: Slot, to: int) -> bool:
    """Confirm a slot up to ``to``. Returns whether that was possible; false: a session reads the slot.

    Raises :class:`~wormhole.model.errors.SourceUnavailable`.
    """
    if to <= slot.confirmed:
        return False
    try:
        connection.query(
            f"SELECT pg_replication_slot_advance({quote_literal(slot.name)}, {quote_literal(format_lsn(to))})",
            timeout_s=_ADVANCE_S,
        )
    except ServerError as error:
        if error.sqlstate == _IN_USE:
            return False
        raise
    return True


def awaited(connection: Connection) -> list[Awaited]:
    """The standbys that slots with ``failover`` wait for. Raises as
    :meth:`~datastores.postgres.server.connection.Connection.query`.
    """
    if connection.version < FAILOVER_SINCE:
        return []
    rows = connection.query(_AWAITED)
    return [Awaited(name or "", known == "t", on == "t", parse_lsn(has) if has else 0) for name, known, on, has in rows]


def awaited_problem(standbys: Iterable[Awaited]) -> Problem:
    """The problem of the standbys that hold the slots back until an operator acts; empty: none."""
    away = [one for one in standbys if not one.connected]
    if not away:
        return NO_PROBLEM
    unknown = [one.slot for one in away if not one.known]
    names, what = (unknown, "the server does not have") if unknown else ([one.slot for one in away], "no standby reads")
    return Problem(
        f"synchronized_standby_slots names {', '.join(names)}, which {what}: the replication slots wait for that",
        "start the standby. After a failover, or where the standby is gone, name the slots of those that there are:\n"
        "ALTER SYSTEM SET synchronized_standby_slots = '';\nSELECT pg_reload_conf();",
        code="copy-not-ready",
    )


def rest_s(took_s: float) -> float:
    """The pause in seconds after moves that took ``took_s``.

    At each move the server decodes its log again from the beginning of the oldest open transaction. The moves should
    use at most a twentieth of a processor.
    """
    return min(_REST * took_s, _LONGEST_REST_S)
