"""What the table of parked updates shows."""

from __future__ import annotations

from typing import Final

from wormhole.wire.v1 import admin_pb2
from wormholectl.show.columns import Column, Table
from wormholectl.show.printer import local, utc

__all__ = ["LETTERS"]

LETTERS: Final = Table[admin_pb2.DeadLetter](
    Column("FLOW", "flow", lambda one: one.flow),
    Column("UPDATE", "update", lambda one: one.update_id),
    Column("TABLE", "table", lambda one: one.table or None),
    Column("KEY", "key", lambda one: one.key),
    Column("OP", "op", lambda one: one.op),
    Column("PARKED", None, lambda one: one.parked_at_s, local),
    Column(None, "parked_at", lambda one: utc(one.parked_at_s)),
    Column(None, "error", lambda one: one.error),
    Column(None, "bytes", lambda one: one.bytes),
    Column(None, "retrying", lambda one: one.retrying),
    Column("PARKED BY", "parked_by", lambda one: one.parked_by or None),
    Column("ERROR", None, lambda one: f"{'(to be delivered again) ' if one.retrying else ''}{one.error}"),
)
"""An update for programs is a ``dead-letter`` of docs/cli-schema.json."""
