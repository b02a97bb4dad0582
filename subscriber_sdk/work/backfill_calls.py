"""Calls ``on_range`` and ``on_scan_end``, by which an application learns that a backfill read a range or a table."""

from __future__ import annotations

import logging

from subscriber_sdk.backfill import Key, ScanEnd, key_range
from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Epoch
from subscriber_sdk.calls.gate import Gate
from wormhole.model.schema import Schema
from wormhole.wire.v1 import push_pb2

__all__ = ["BackfillCalls"]

log = logging.getLogger("subscriber_sdk")


class BackfillCalls:
    """The calls in one epoch. ``overridden``: names of the callbacks that the application overrides; ``generation``:
    the generation of the flow's backfill.
    """

    def __init__(
        self, epoch: Epoch, overridden: frozenset[str], callbacks: Callbacks, gate: Gate, generation: int
    ) -> None:
        self._epoch = epoch
        self._overridden = overridden
        self._callbacks = callbacks
        self._gate = gate
        self._generation = generation

    async def range_end(self, frame: bytes, schema: Schema) -> None:
        """Handle the end of a range: every row of it arrived, and every earlier callback has returned."""
        if "on_range" not in self._overridden:
            return
        if (parked := self._parked("on_range", schema.table)) is None:
            return
        epoch, end = self._epoch, push_pb2.ChunkEnd.FromString(frame)
        ended = key_range(
            end, schema, shard=epoch.shard, epoch=epoch.number, generation=self._generation, parked=parked
        )
        if ended is not None:
            await self._callbacks.call("on_range", ended)

    async def scan_end(self, table: str, rows: int) -> None:
        """Handle the end of a table: every row of it arrived, and every earlier callback has returned."""
        if "on_scan_end" not in self._overridden or (parked := self._parked("on_scan_end", table)) is None:
            return
        epoch = self._epoch
        end = ScanEnd(table, epoch.shard, epoch.number, self._generation, parked, rows)
        await self._callbacks.call("on_scan_end", end)

    def _parked(self, callback: str, table: str) -> frozenset[Key] | None:
        """The keys of the table whose updates are parked; ``None``: an update of the whole table is parked."""
        parked = self._gate.held_keys(table)
        if parked is None:
            log.warning(
                "flow %s: %s is not called for table %s, because an operation on the whole table is parked. Next: "
                "deliver or discard it (`wormholectl dead-letters`), then begin the backfill again",
                self._epoch.shard,
                callback,
                table,
            )
        return parked
