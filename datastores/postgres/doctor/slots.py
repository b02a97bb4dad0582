"""The findings of ``doctor`` on the slots: whether and how much log they keep, and what happens at a failover."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from datastores.postgres.log import slots
from datastores.postgres.log.slot_mover import moving
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.lsn import format_lsn
from datastores.postgres.server.state import ServerState, Slot
from datastores.postgres.server.versions import FAILOVER_SINCE
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Finding, Severity

__all__ = ["OLD_CATALOGUE", "budget_findings", "is_near", "slot_findings"]

OLD_CATALOGUE: Final = 100_000_000
"""A number of transactions: half of autovacuum_freeze_max_age's default."""
_NEAR_SHARE: Final = 5  # a slot is near its limit when less than a fifth is left

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM


def is_near(slot: Slot, state: ServerState) -> bool:
    """Whether the slot is about to lose its log: less than a fifth of the log that the server keeps for slots
    is left.
    """
    return slot.safe_bytes is not None and slot.safe_bytes < state.keep_bytes // _NEAR_SHARE


def slot_findings(connection: Connection, state: ServerState, address: Address) -> Iterator[Finding]:
    """Findings on the two slots of the log.

    Raises as :meth:`~datastores.postgres.server.connection.Connection.query`.
    """
    try:
        both = slots.check(state, address.slot, address.database)
    except WormholeError as error:
        yield Finding("slots", PROBLEM, error.message, "the server keeps no log for the publisher", error.hint or "")
        return
    yield Finding("slots", OK, f"the log is kept from {format_lsn(both[0].restart)} on")
    publishers = moving(connection, address.slot) if any(slot.active_pid for slot in both) else set()
    for slot in both:
        yield from _slot(slot, taken=slot.active_pid not in {0, *publishers})
    yield from _awaited(connection, both)
    yield from _failover(state, both)


def _slot(slot: Slot, *, taken: bool) -> Iterator[Finding]:
    if taken:
        yield Finding(
            "slot_taken",
            PROBLEM,
            f"another process reads the slot {slot.name} (process {slot.active_pid})",
            "the publisher reads copies only: another program moves the slot beyond what was delivered",
            f"let that program use a slot of its own; to end it:\nSELECT pg_terminate_backend({slot.active_pid});",
        )
    if slot.wal_status == "unreserved":
        yield Finding(
            "wal_status",
            PROBLEM,
            f"{slot.name} loses its log at the next checkpoint (wal_status=unreserved)",
            "flows that are behind then report what they lose",
            "see which flow is furthest behind (`wormholectl flows`), and raise the limit now:\n"
            "ALTER SYSTEM SET max_slot_wal_keep_size = '-1';\nSELECT pg_reload_conf();",
        )
    if slot.catalog_age > OLD_CATALOGUE:
        yield Finding(
            "catalog_xmin",
            WARN,
            f"{slot.name} keeps catalogue rows of the last {slot.catalog_age} transactions",
            "the catalogues grow, and vacuum cannot freeze them",
            "see which flow is furthest behind (`wormholectl flows`)",
        )


def _awaited(connection: Connection, both: tuple[Slot, Slot]) -> Iterator[Finding]:
    if not any(slot.failover for slot in both):
        return
    standbys = slots.awaited(connection)
    found = slots.awaited_problem(standbys)
    if found:
        yield Finding(
            "synchronized_standby_slots",
            WARN if all(one.known for one in standbys) else PROBLEM,
            found.text,
            "the server keeps its log, up to max_slot_wal_keep_size, although the flows have received it",
            found.hint,
        )


def _failover(state: ServerState, both: tuple[Slot, Slot]) -> Iterator[Finding]:
    if not state.standbys:
        return
    if state.version < FAILOVER_SINCE:
        yield Finding(
            "failover",
            WARN,
            f"PostgreSQL {state.version // 10000} does not give its standbys the logical slots",
            "after a failover the new primary has none: what was not delivered is reported as lost",
            "upgrade the server to 17 or later, or make the slots on the new primary before anybody writes to it:\n"
            + "\n".join(slots.create_statements(both[0].name.removesuffix("_held"))),
        )
        return
    name = both[0].name.removesuffix("_held")
    if without := [slot.name for slot in both if slot.failover is False]:
        yield Finding(
            "failover",
            WARN,
            f"standbys are not given the slots {' and '.join(without)}",
            "after a failover the new primary has none: what was not delivered is reported as lost",
            "stop the publisher, and make the slots anew; flows that have received everything lose nothing:\n"
            + "\n".join((*slots.drop_statements(name), *slots.create_statements(name, state.version))),
        )


def budget_findings(connection: Connection, state: ServerState) -> Iterator[Finding]:
    """Findings on the amount of log that the server keeps. Raises as :func:`slot_findings`."""
    ((idle,),) = connection.query("SELECT current_setting('idle_replication_slot_timeout', true)")
    if idle not in (None, "", "0"):
        yield Finding(
            "idle_replication_slot_timeout",
            WARN,
            f"the server gives up slots that are not moved on for {idle}",
            "a flow that is behind for that long, or a publisher that is down, loses its log",
            "turn it off; max_slot_wal_keep_size bounds the disk:\n"
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0;\nSELECT pg_reload_conf();",
        )
    if not state.keep_bytes:
        yield Finding(
            "max_slot_wal_keep_size",
            WARN,
            "the server keeps its log for the slots without a limit",
            "a publisher that is down, or a flow that is held, fills the server's disk",
            "set a limit that its disk has room for; flows that are further behind then report a data loss:\n"
            "ALTER SYSTEM SET max_slot_wal_keep_size = '64GB';\nSELECT pg_reload_conf();",
        )
        return
    safe = [slot.safe_bytes for slot in state.slots.values() if slot.safe_bytes is not None]
    near = any(is_near(slot, state) for slot in state.slots.values())
    yield Finding(
        "max_slot_wal_keep_size",
        WARN if near else OK,
        f"the server keeps up to {state.keep_bytes >> 20} MiB of log for the slots"
        + (f", {max(0, min(safe)) >> 20} MiB more may be written until the first is lost" if safe else ""),
        "flows that are behind then report what they lose" if near else "",
        "see which flow is furthest behind (`wormholectl flows`), or raise max_slot_wal_keep_size" if near else "",
    )
