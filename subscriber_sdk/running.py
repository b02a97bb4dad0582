"""A running subscriber, as :func:`~subscriber_sdk.runner.serve` yields it."""

from __future__ import annotations

import asyncio

from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.dialler import PublisherDialler
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.server.stream import Streams
from subscriber_sdk.work.shards import Shards

__all__ = ["Running"]


class Running:
    """A running subscriber."""

    def __init__(self, options: Options, shards: Shards, streams: Streams, door: PushServer | PublisherDialler) -> None:
        self.options = options
        self._shards = shards
        self._streams = streams
        self._door = door
        self._stop = asyncio.Event()

    @property
    def address(self) -> str:
        """The address at which publishers dial this subscriber; empty: this subscriber dials the publishers."""
        return self._door.address

    @property
    def id(self) -> str:
        """Name of this instance."""
        return self.options.instance

    def flows(self) -> tuple[str, ...]:
        """One line for each flow: shard, epoch, state, place."""
        return tuple(map(repr, self._shards.workers()))

    def stop(self) -> None:
        """Make :func:`run` leave the application and return. May be called from a signal handler of the loop."""
        self._stop.set()

    async def stopped(self) -> None:
        """Wait until :meth:`stop` was called."""
        await self._stop.wait()
