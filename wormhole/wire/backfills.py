"""The text about the progress of a flow's backfill, the same in all outputs that show flows."""

from __future__ import annotations

from typing import Final

from wormhole.model.visible import few
from wormhole.wire.v1 import admin_pb2

__all__ = ["backfill_text", "has_ended", "refused_tables"]

_ENDED: Final = frozenset({"done", "cancelled"})


def has_ended(status: admin_pb2.BackfillStatus) -> bool:
    """Whether no more rows follow."""
    return status.state in _ENDED


def refused_tables(status: admin_pb2.BackfillStatus) -> list[admin_pb2.BackfillTable]:
    """The tables whose rows cannot be read."""
    return [table for table in status.progress if table.state == "refused"]


def backfill_text(flow: admin_pb2.FlowStatus) -> str:
    """The progress of the flow's backfill and why it waits; empty without one, and when it has ended with every
    table.
    """
    status = flow.backfill
    if has_ended(status):
        refused = refused_tables(status)
        what = "verification" if status.verify else "backfill"
        return f"{what} {status.state} without {few([table.table for table in refused])}" if refused else ""
    if not flow.HasField("backfill"):
        return ""
    share = f" {status.share:.0%}" if status.HasField("share") else ""
    rows = "1 row" if status.rows == 1 else f"{status.rows:,} rows"
    why = f"paused by {status.paused}" if status.paused else status.waits.text
    what, done = ("verification", "compared") if status.verify else ("backfill", "sent")
    return f"{what} {status.state}{share}, {rows} {done}{f': {why}' if why else ''}"
