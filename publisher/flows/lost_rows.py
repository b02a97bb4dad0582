"""Which rows a flow lacks after a loss of log, as far as its source knows: what a repair has to read again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import LogPosition
from wormhole.ports.log_source import KeepsLostKeys, LogSource

__all__ = ["LostRows"]


class LostRows:
    """Asks the source, in a thread."""

    def __init__(self, source: LogSource) -> None:
        self._source = source if isinstance(source, KeepsLostKeys) else None

    async def known(self, shard: str, ranges: Sequence[tuple[LogPosition, LogPosition]]) -> LostKeys | str:
        """The rows of ``shard`` that changed in these ranges of the log; or why it is not known which did."""
        if self._source is None:
            return "no relay holds the log, and nothing else says which rows changed"
        parts = []
        for begin, end in ranges:
            found = await asyncio.to_thread(self._source.lost_keys, shard, begin, end)
            if found is None:
                return "the relay has not noted all of the rows that changed"
            parts.append(found)
        return LostKeys.joined(parts)

    async def keep(self, oldest: LogPosition) -> None:
        """Nobody asks for a range before ``oldest`` any more."""
        if self._source is not None:
            await asyncio.to_thread(self._source.keep_lost_keys, oldest)
