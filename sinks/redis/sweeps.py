"""Scans every key of a database or every field of a hash, in several callbacks if one does not suffice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from sinks.redis.store import Command, Store
from subscriber_sdk import ShardNotice
from wormhole.model.errors import TargetUnavailable

__all__ = ["Sweeps"]

# Seconds after which a sweep continues in the next callback. The SDK cancels a callback after 30 s (handler_timeout).
_TURN_S: Final = 12.0


class Sweeps:
    """The progress of the sweeps of all shards. A shard has one sweep at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[str, int]] = {}  # by shard the sweep, and its cursor
        self._epochs: dict[str, tuple[int, int]] = {}  # by shard the epoch, and the number of the last move

    def assigned(self, notice: ShardNotice) -> None:
        """Begin an epoch. The sweep restarts from its beginning if another process may have had the shard."""
        epoch, move = self._epochs.get(notice.shard, (0, 0))
        if (epoch + 1, move) != (notice.epoch, notice.move):
            self._kept.pop(notice.shard, None)
        self._epochs[notice.shard] = notice.epoch, notice.move

    async def portions(
        self,
        shard: str,
        what: str,
        command: Callable[[int], Command],
        run: Callable[..., Awaitable[list[Any]]],
        *,
        ends: bool = True,
    ) -> AsyncIterator[Any]:
        """Yield the results of a SCAN command, cursor by cursor. Keys that exist during the whole sweep are included,
        and some may come twice.

        ``what``: an id of the sweep. ``command``: the command for a cursor. ``run``: runs a command after earlier
        writes are confirmed. ``ends``: whether the sweep may be interrupted when the time of this callback is over.

        Raises :class:`~wormhole.model.errors.TargetUnavailable` when the sweep has to continue in another attempt.
        """
        (info,) = await self._store.run(("INFO", "server"))
        name = f"{info['run_id']} {what}"  # a server that was restarted has other cursors
        kept, cursor = self._kept.pop(shard, ("", 0))
        if kept != name:
            cursor = 0
        now = asyncio.get_running_loop().time
        begin, until = cursor, now() + _TURN_S
        while True:
            ((after, found),) = await run(command(cursor))
            if ends and cursor != begin and now() >= until:
                self._kept[shard] = name, cursor
                where = self._store.where
                raise TargetUnavailable(f"{where} has many keys: the others are looked at in another attempt")
            yield found
            cursor = after
            if not cursor:
                return
