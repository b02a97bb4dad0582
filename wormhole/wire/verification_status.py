"""Adds up the results of verifications that publishers report, and judges whether the rows are equal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from wormhole.wire.backfills import refused_tables
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["are_equal", "has_no_table", "is_settled", "remaining", "together", "verifies"]

_COUNTS = ("compared", "not_compared", "differs", "missing", "extra", "repaired", "removed")


def verifies(status: admin_pb2.BackfillStatus) -> bool:
    """Whether the backfill's rows are compared instead of being delivered."""
    return status.verify != push_pb2.VERIFY_NONE


def remaining(table: admin_pb2.TableVerification) -> int:
    """How many differences were found and not repaired."""
    return max(0, table.differs + table.missing - table.repaired) + max(0, table.extra - table.removed)


def is_settled(status: admin_pb2.BackfillStatus) -> bool:
    """Whether the application's rows equal those of its tables: all were compared, and no difference is left."""
    return (
        status.state == "done"
        and not refused_tables(status)
        and bool(status.verified)
        and all(
            one.ended and not remaining(one) and not one.not_compared and not one.trouble.text
            for one in status.verified
        )
    )


def has_no_table(status: admin_pb2.BackfillStatus) -> bool:
    """Whether the flow wants none of the existing tables, as a flow of another database. Its publisher then reports a
    share and no table. False after a restart of the publisher, which then reports no share.
    """
    return status.state == "done" and status.HasField("share") and not status.progress and not status.verified


def are_equal(statuses: Collection[admin_pb2.BackfillStatus]) -> bool:
    """Whether an application's flows equal their tables: a flow has a table, and each such flow is settled."""
    compared = [status for status in statuses if not has_no_table(status)]
    return bool(compared) and all(map(is_settled, compared))


def together(statuses: Iterable[admin_pb2.BackfillStatus]) -> list[admin_pb2.TableVerification]:
    """The counts of each table over all flows, by name; without the differences."""
    found: dict[str, admin_pb2.TableVerification] = {}
    for status in statuses:
        for one in status.verified:
            of_table = found.setdefault(one.table, admin_pb2.TableVerification(table=one.table, ended=True))
            for name in _COUNTS:
                setattr(of_table, name, getattr(of_table, name) + getattr(one, name))
            of_table.ended &= one.ended
    return [found[table] for table in sorted(found)]
