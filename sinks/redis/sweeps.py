"""Looks at every key of a database or every field of a hash, in several callbacks where one is too short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from sinks.redis.store import Command, Store
from subscriber_sdk import ShardNotice
from wormhole.model.errors import TargetUnavailable

__all__ = ["Sweeps"]

# Seconds after which a sweep goes on in the next callback. The SDK cancels a callback after 30 s (handler_timeout).
_TURN_S: Final = 12.0


class Sweeps:
    """Where the sweeps of shards have come. A shard has one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[str, int]] = {}  # by shard the sweep, and its cursor
        self._epochs: dict[str, tuple[int, int]] = {}  # by shard the epoch, and the number of the last move

    def assigned(self, notice: ShardNotice) -> None:
        """An epoch begins. The sweep is repeated from its beginning if another process may have had the shard."""
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
        """What the command finds with each cursor: everything that is there all the time. Some may come twice.

        ``what``: an id of the sweep. ``run`` returns when what was done with earlier portions is confirmed. ``ends``:
        whether the sweep ends with its turn.

        Raises :class:`~wormhole.model.errors.TargetUnavailable` when it has to go on in another attempt.
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
