"""The record of each flow in the store: its epoch, a version that rises with each write, and its datamarker.

Every write of a flow ends with a new version of its record, or begins with it in the same script. The server takes it
only if the record is as the flow knows it. So a process that lost the shard changes no record any more. And a server
that lost its last writes, because it was restored, restarted or replaced by a replica, is noticed before the next
datamarker is acknowledged: the flow is assigned again, and goes on from the datamarker that the server still has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sinks.redis.store import Command, Store
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice
from subscriber_sdk.transactional.marker_row import MarkerRow, row_key, start_of
from wormhole.model.errors import ProtocolError, TargetRefused, TargetUnavailable
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = ["FlowRecords"]

_STORE: Final = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if (found[1] or '') ~= ARGV[1] or (found[2] or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
return 1
"""
_FIELDS: Final = ("epoch", "version", "move", "marker")


class FlowRecords:
    """Those of the flows of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._flows: dict[str, tuple[str, MarkerRow]] = {}  # the key of the record, and what was stored last

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """An epoch begins. Returns the stored datamarker, where delivery begins; ``None``: at the publisher's.

        Raises :class:`~wormhole.model.errors.EpochRefused` if the shard has been in a later epoch.
        """
        key = f"wormhole:flow:{row_key(notice).hex()}"
        (found,) = await self._store.run(("HMGET", key, *_FIELDS))
        row = self._read(key, found)
        # A store without a record is an empty cache, which holds nothing that is out of date.
        start = start_of(row, replace(notice, acknowledged=False))
        await self._replace(notice.shard, key, row, start.row)
        return start.have

    async def write(self, shard: str, *commands: Command) -> None:
        """Run the commands, and then raise the version."""
        key, row = self._flows[shard]
        await self._replace(shard, key, row, replace(row, version=row.version + 1), *commands)

    async def marked(self, marker: Datamarker) -> None:
        """Store the datamarker."""
        key, row = self._flows[marker.shard]
        if row.marker != marker_to_bytes(marker):  # an idle flow offers the same one again
            await self._replace(marker.shard, key, row, row.advanced(marker, ()))

    def revoked(self, shard: str) -> None:
        """The epoch is over."""
        self._flows.pop(shard, None)

    async def _replace(
        self, shard: str, key: str, before: MarkerRow | None, after: MarkerRow, *commands: Command
    ) -> None:
        """Run the commands, and then store ``after`` if the record is still ``before``. If this is cancelled, the
        record may be either. A write that expects the wrong one is refused.
        """
        expected = ("", "") if before is None else (before.epoch, before.version)
        fields = ("epoch", after.epoch, "version", after.version, "move", after.move, "marker", after.marker)
        *_, stored = await self._store.run(*commands, ("EVAL", _STORE, 1, key, *expected, *fields))
        if not stored:
            raise TargetUnavailable(
                f"the record {key} in {self._store.where} is not in epoch {after.epoch} with the version that this "
                "flow stored: another process has the shard, or the server lost its last writes"
            )
        self._flows[shard] = key, after

    def _read(self, key: str, found: list[bytes | None]) -> MarkerRow | None:
        if found[0] is None and found[1] is None:
            return None
        try:
            epoch, version, move = (int(number or b"") for number in found[:3])
            marker_from_bytes(found[3] or b"")
        except (ValueError, ProtocolError):
            raise TargetRefused(
                f"the record {key} in {self._store.where} was changed by hand: it holds no datamarker that can be read",
                hint=f"remove it (DEL {key}): the flow then begins at the publisher's datamarker",
            ) from None
        return MarkerRow(epoch, version, move, found[3] or b"")
