"""Declares the columns of the table of parked updates."""

from __future__ import annotations

from typing import Final

from wormhole.wire.v1 import admin_pb2
from wormholectl.show.columns import ShownColumn, ShownTable
from wormholectl.show.printer import local, utc

__all__ = ["LETTERS"]

LETTERS: Final = ShownTable[admin_pb2.DeadLetter](
    ShownColumn("FLOW", "flow", lambda one: one.flow),
    ShownColumn("UPDATE", "update", lambda one: one.update_id),
    ShownColumn("TABLE", "table", lambda one: one.table or None),
    ShownColumn("KEY", "key", lambda one: one.key),
    ShownColumn("OP", "op", lambda one: one.op),
    ShownColumn("PARKED", None, lambda one: one.parked_at_s, local),
    ShownColumn(None, "parked_at", lambda one: utc(one.parked_at_s)),
    ShownColumn(None, "error", lambda one: one.error),
    ShownColumn(None, "bytes", lambda one: one.bytes),
    ShownColumn(None, "retrying", lambda one: one.retrying),
    ShownColumn("PARKED BY", "parked_by", lambda one: one.parked_by or None),
    ShownColumn("ERROR", None, lambda one: f"{'(to be delivered again) ' if one.retrying else ''}{one.error}"),
)
"""The table of parked updates. In JSON, an item is a ``dead-letter`` of docs/cli-schema.json."""
