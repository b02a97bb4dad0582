"""Paces the writes to streams: a late event loop, or a costly round of writes, makes the interval longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from caravan.fleet import Fleet
from publisher.flows.assigner import Assigner
from publisher.flows.part_reports import Row
from publisher.push.pacing import RoundCost, gather_interval
from wormhole.host.clock import Clock
from wormhole.metrics import catalogue as c

__all__ = ["LoopPace"]

_EVERY_S = 0.1


class LoopPace:
    """Measures the event loop. ``delay``: how late it is, in seconds. A round writes one segment to the streams."""

    def __init__(self, clock: Clock) -> None:
        self.delay = 0.0
        self._clock = clock
        self._rounds = 0  # segments read
        self._cost = RoundCost()
        self._served = 0  # streams

    def count_round(self) -> None:
        """Count a segment that was read."""
        self._rounds += 1

    def gather_s(self) -> float:
        """Seconds between two writes of a busy stream. They grow with the delay and with the cost of a round."""
        return gather_interval(self._served, self.delay, self._cost.seconds)

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        yield c.PUBLISHER_LOOP_DELAY, self.delay

    async def run(self, assigner: Assigner, fleet: Fleet) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self.delay = 0.5 * self.delay + 0.5 * max(0.0, loop.time() - due)
            streams, lead = assigner.streams(), fleet.lead
            reading_s = sum(stream.traffic.reading_s for stream in streams)
            self._cost.measured(self._clock.processor() - reading_s, self._rounds)
            # Streams of flows that catch up receive another caravan's segments, at the pace of that caravan.
            connected = sum(stream.connected for stream in streams)
            self._served = connected if lead is None else min(connected, len(lead.flows))
