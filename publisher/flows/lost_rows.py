"""Which rows changed in lost log, as far as the log's relay knows. A repair reads these rows again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from wormhole.model.errors import WormholeError
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import LogPosition
from wormhole.ports.log_source import LogRelay

__all__ = ["LostRows"]


class LostRows:
    """Queries the log's relay in a thread. Without a relay no rows are known."""

    def __init__(self, relay: LogRelay | None) -> None:
        self._relay = relay

    async def known(self, shard: str, ranges: Sequence[tuple[LogPosition, LogPosition]]) -> LostKeys | str:
        """The rows of ``shard`` that changed in these ranges of the log, or why they are not known."""
        if self._relay is None:
            return "no relay holds the log, and nothing else shows which rows changed"
        parts = []
        for begin, end in ranges:
            try:
                found = await asyncio.to_thread(self._relay.lost_keys, shard, begin, end)
            except WormholeError as error:
                return f"the relay cannot be asked: {error.message}"
            if found is None:
                return "the relay has not noted all of the rows that changed"
            parts.append(found)
        return LostKeys.joined(parts)

    async def keep(self, oldest: LogPosition) -> None:
        """Let the relay forget the rows before ``oldest``, which no later request names."""
        if self._relay is not None:
            await asyncio.to_thread(self._relay.keep_lost_keys, oldest)
