"""Stores acknowledged datamarkers in groups, at most once a second per flow.

A marker is written only after its ack. So a store that fails or lags never loses an update, but makes a restart repeat
more updates. While the store fails, the newest marker of each flow is kept here and written later. A separate thread
writes the markers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.waiting import in_turns
from wormhole.metrics import Histogram, catalogue
from wormhole.model.errors import Retryable, WormholeError
from wormhole.ports.marker_store import FlowKey, MarkerStore, MarkerWrite

__all__ = ["MarkerWriter"]

_log = logging.getLogger(__name__)

_EVERY_S = 1.0


class MarkerWriter:
    """``problem``: why the last write failed; empty if it succeeded. ``stored``: called when a write is durable.
    ``refused``: called when the store has a newer epoch of the flow. Both are called on the event loop.

    ``held``: whether the writes of an application have to wait.
    """

    def __init__(
        self,
        store: MarkerStore,
        stored: Callable[[MarkerWrite], None],
        refused: Callable[[MarkerWrite], None],
        held: Callable[[str], bool] = lambda application: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self.problem = ""
        self._store = store
        self._stored = stored
        self._refused = refused
        self._held = held
        self._pending: dict[FlowKey, MarkerWrite] = {}
        self.write_times = Histogram(catalogue.MARKER_WRITE)
        self._lock = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, "markers")

    @property
    def waiting(self) -> int:
        """How many datamarkers are not stored yet."""
        return len(self._pending)

    def put(self, write: MarkerWrite) -> None:
        """Store the write with the next group. It replaces a waiting write of the same flow. Count pages that only the
        waiting write has are kept.
        """
        waiting = self._pending.get(write.flow)
        if waiting is not None and waiting.epoch == write.epoch:
            write = replace(write, counts={**waiting.counts, **write.counts})
        self._pending[write.flow] = write

    def drop(self, flow: FlowKey) -> None:
        """Discard the waiting write of the flow."""
        self._pending.pop(flow, None)

    async def run(self) -> None:
        """Write until cancelled. After a failure of the store it tries again."""
        while True:
            await self._clock.sleep(_EVERY_S)
            try:
                await self.flush()
            except WormholeError as error:
                if self.problem != str(error):
                    log = _log.warning if isinstance(error, Retryable) else _log.error
                    log("datamarkers cannot be stored, deliveries go on and will repeat after a restart: %s", error)
                self.problem = str(error)
            else:
                if self.problem:
                    _log.info("datamarkers are stored again")
                self.problem = ""

    def close(self) -> None:
        """Store nothing from now on."""
        self._pool.shutdown(wait=False)

    async def flush(self) -> None:
        """Store the waiting writes that are not held. Raises the store's errors; the writes then stay waiting."""
        async with self._lock:
            held = {name for name in {application for application, _ in self._pending} if self._held(name)}
            writes = [write for write in self._pending.values() if write.flow[0] not in held]
            if not writes:
                return
            began = self._clock.monotonic()
            loop = asyncio.get_running_loop()
            refused = frozenset(await loop.run_in_executor(self._pool, self._store.store, writes))
            self.write_times.observe(self._clock.monotonic() - began)
            async for write in in_turns(writes):
                if self._pending.get(write.flow) is write:
                    del self._pending[write.flow]
                if write.flow in refused:
                    self._refused(write)
                else:
                    self._stored(write)
