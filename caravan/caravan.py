"""A caravan: one reader of a datastore's log, and the flows that take updates from its buffer.

The reader blocks, so it has a thread of its own; everything else happens on the event loop. Before each read it waits
for its target rate and for the cap of all caravans. Backpressure: the buffer is bounded (``budget`` bytes); when it is
full the caravan either waits for its slowest flow or leaves it behind:

* no flow has taken everything that was read: waiting delays no flow, so the reader waits;
* otherwise the flows at the oldest segment are left behind (they get a caravan of their own when they can take more).
  The reader waits too if the fleet reports that there is no other caravan for them (``may_leave`` false). Inside a
  transaction that the buffer does not hold completely it waits first (:mod:`caravan.patience`).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from caravan.buffer import ChangeBuffer
from caravan.flow import CaravanFlow, CaravanFlowState
from caravan.patience import Patience
from caravan.rate import RateCap
from wormhole.host.waiting import wait_at_most
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader

__all__ = ["Caravan", "CaravanSettings", "RowsWatch"]

_WAIT_S = 0.25  # at the end of the log a reader checks this often whether it should stop
_SHORT_PAUSE_S = 0.02
_PATIENCE_S = 0.05  # interval between two checks of the flows for which the reader waits
_RATE_WINDOW_S = 5.0
_LONGEST_PAUSE_S = 0.25  # a target rate may rise while its reader pays for one huge update


class CaravanSettings(Protocol):
    """The settings and answers that a caravan gets from its fleet."""

    read_bytes: int
    """Target size of one segment: bytes of encoded updates."""

    total_cap: RateCap
    """The cap of all caravans together."""

    def budget(self, caravan: Caravan) -> int:
        """Limit in bytes of the caravan's buffer."""
        ...

    def kept_for_lead(self, caravan: Caravan) -> int:
        """Bytes of ``total_cap`` that the caravan must leave to the lead."""
        ...

    def gather_s(self) -> float:
        """Minimum time between two reads at the live end, so that each write to a subscriber carries several
        updates.
        """
        ...

    def may_leave(self, caravan: Caravan) -> bool:
        """Whether another caravan may take a slow flow."""
        ...

    def left(self, caravan: Caravan, flow: CaravanFlow) -> None:
        """A flow was left behind. ``flow.cause`` is the reason."""
        ...

    def advanced(self, caravan: Caravan, segment: Segment) -> None:
        """A segment was read; the caravan's ``marker`` is still the one before."""
        ...


class RowsWatch(Protocol):
    """The reader of existing rows beside the log. Called on the event loop; must not block."""

    def advanced(self, caravan: Caravan, segment: Segment) -> None:
        """A caravan read a segment; its ``marker`` is still the one before."""
        ...

    def moved(self) -> None:
        """A flow was added or took a piece, so it may take more rows."""
        ...


class Caravan:
    """One reader and its flows, as the module describes.

    ``number`` is unique in the process; ``cause`` is why it was started; ``read_bytes`` counts bytes of log. ``waits``:
    it does not read at the moment because its buffer is full or a cap is reached. ``appends``: a lock, held while a
    segment is added to the buffer.
    """

    def __init__(
        self, number: int, start: Datamarker, reader: LogReader, settings: CaravanSettings, rate: float, cause: str
    ) -> None:
        self.number = number
        self.cause = cause
        self.flows: set[CaravanFlow] = set()
        self._of_shard: dict[str, set[CaravanFlow]] = {}
        self._ahead: set[CaravanFlow] = set()  # flows whose places were ahead of the reader when they boarded
        self.buffer = ChangeBuffer(start.order)
        self.marker = start
        self.read_bytes = 0
        self.waits = False
        self.appends = asyncio.Lock()
        self._reader = reader
        self._settings = settings
        self._pace = RateCap(rate)
        self._patience = Patience()
        self._room = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"caravan-{number}")
        self._reads: deque[tuple[float, int]] = deque()
        self._stopped = asyncio.Event()

    @property
    def _closing(self) -> bool:
        return self._stopped.is_set()

    def board(self, flow: CaravanFlow, cursor: int) -> None:
        """Add the flow to the caravan, from segment ``cursor`` of the buffer."""
        self.flows.add(flow)
        self._of_shard.setdefault(flow.shard, set()).add(flow)
        self._ahead.add(flow)
        flow.board(self.buffer, cursor)

    def leave(self, flow: CaravanFlow, state: CaravanFlowState, cause: str) -> None:
        """Remove the flow from the caravan."""
        self.flows.discard(flow)
        self._ahead.discard(flow)
        self._of_shard.get(flow.shard, set()).discard(flow)
        self._patience.forget(flow)
        flow.leave(state, cause)
        self.moved()

    def moved(self) -> None:
        """A flow advanced or left: the buffer may have space."""
        self._room.set()

    @property
    def ahead(self) -> Collection[CaravanFlow]:
        """Its flows whose places are ahead of all that it read. After it reached a flow, this flow is never ahead
        again.
        """
        if self._ahead:
            self._ahead = {flow for flow in self._ahead if flow.place > self.buffer.place}
        return self._ahead

    @property
    def target(self) -> float:
        """Bytes of log per second that it may read now; 0: without a limit."""
        return self._pace.rate

    def aim(self, rate: float, now: float) -> None:
        """Read at most ``rate`` bytes of log per second from now on (``math.inf``: without a limit)."""
        self._pace.change(0.0 if rate == math.inf else rate, now)

    def bytes_per_s(self, now: float) -> float:
        """Log read per second, over the last few seconds."""
        while self._reads and self._reads[0][0] < now - _RATE_WINDOW_S:
            self._reads.popleft()
        return sum(size for _, size in self._reads) / _RATE_WINDOW_S

    async def run(self, clock: Callable[[], float]) -> None:
        """Read until :meth:`close`. Raises the errors of the reader; the fleet decides what follows."""
        loop = asyncio.get_running_loop()
        last_read = 0.0
        was_small = False
        while True:
            await self._make_room(clock)
            asked = await self._allowance(last_read, clock)
            if self._closing:
                return
            self.waits = False
            segment = await loop.run_in_executor(self._pool, self._reader.read, asked, _WAIT_S)
            now = clock()
            self._pay(0 if segment is None else segment.log_bytes, asked, now)
            if segment is None:
                continue
            # A full segment means backlog: the next read does not wait for more updates to gather. A source may divide
            # its loaded updates into a full segment and a rest, so a single small segment does not show the live end.
            small = segment.size < asked // 2
            last_read = now if small and was_small else 0.0
            was_small = small
            self._reads.append((now, segment.log_bytes))
            self.read_bytes += segment.log_bytes
            async with self.appends:
                self.buffer.append(segment)
                self._settings.advanced(self, segment)
                if segment.marker is not None:
                    self.marker = segment.marker
            self._wake_flows(segment)

    def add_rows(self, segment: Segment) -> None:
        """Add existing rows at the end of the buffer, which is between transactions."""
        self.buffer.append(segment)
        self._wake_flows(segment)

    def _wake_flows(self, segment: Segment) -> None:
        """Wake the flows that the segment concerns.

        The other flows pass over it the next time that they are looked at: of a thousand flows most are not concerned
        by most segments.
        """
        if segment.concerns_all:
            woken = tuple(self.flows)
        else:
            woken = tuple(flow for shard in segment.runs for flow in self._of_shard.get(shard, ()))
        for flow in woken:
            flow.wake()

    async def _allowance(self, last_read: float, clock: Callable[[], float]) -> int:
        """Wait until the next read is due and allowed. Returns how many bytes it may request.

        The bytes are taken from both caps before the read, so that concurrent readers never exceed a cap together.
        """
        total, settings = self._settings.total_cap, self._settings
        while True:
            now = clock()
            asked = min(settings.read_bytes, self._pace.piece, total.piece)
            capped = max(self._pace.delay(asked, now), total.delay(asked + settings.kept_for_lead(self), now))
            self.waits = capped > 0
            delay = max(capped, last_read + settings.gather_s() - now)
            if delay <= 0 or self._closing:
                self._pace.take(asked, now)
                total.take(asked, now)
                return asked
            await self._pause(min(delay, _LONGEST_PAUSE_S))

    def _pay(self, read: int, asked: int, now: float) -> None:
        for cap in (self._pace, self._settings.total_cap):
            cap.take(read - asked, now)

    async def _pause(self, seconds: float) -> None:
        """Sleep. :meth:`stop` ends a long sleep at once."""
        if seconds < _SHORT_PAUSE_S:
            # Hundreds of times a second at the live end, where a timeout would cost ten times as much.
            await asyncio.sleep(seconds)
            return
        await wait_at_most(self._stopped, seconds)

    async def _make_room(self, clock: Callable[[], float]) -> None:
        budget = self._settings.budget(self)
        buffer = self.buffer
        while buffer.size > budget and not self._closing:
            tail = self._tail()
            if not tail:
                self.trim(budget)
                continue
            held_up = any(flow.cursor == buffer.end for flow in self.flows)
            self._room.clear()
            self.waits = True
            if held_up and self._settings.may_leave(self):
                if slow := self._patience.ends(tail):
                    self._leave_behind(slow, "slower than its caravan: left behind")
                    continue
                since = clock()
                await wait_at_most(self._room, _PATIENCE_S)
                self._patience.wait(tail, clock() - since)
                continue
            await self._room.wait()

    def trim(self, budget: int) -> None:
        """Drop the oldest segments that no flow needs, as long as the buffer takes more than ``budget`` bytes."""
        while self.buffer.size > budget and not self._tail():
            self.buffer.drop_oldest()

    def shrink(self, size: int) -> int:
        """Free about ``size`` bytes of the buffer. Returns the number of freed bytes.

        The newest segment stays, because a flow at it would have to read it again.
        """
        before = self.buffer.size
        while before - self.buffer.size < size and self.buffer.end - self.buffer.first > 1:
            tail = self._tail()
            if tail:
                if not self._settings.may_leave(self) or len(self._patience.ends(tail)) < len(tail):
                    break
                self._leave_behind(tail, "evicted: furthest behind when the change buffers were over their budget")
            self.buffer.drop_oldest()
        return before - self.buffer.size

    def _tail(self) -> list[CaravanFlow]:
        """The flows that have not taken all of the oldest segment."""
        at_tail = [flow for flow in self.flows if flow.cursor == self.buffer.first]
        for flow in at_tail:
            flow.pass_over()
        return [flow for flow in at_tail if flow.cursor == self.buffer.first]

    def _leave_behind(self, flows: list[CaravanFlow], cause: str) -> None:
        for flow in flows:
            flow.go_back()
            self.leave(flow, CaravanFlowState.WAITING, cause)
            self._settings.left(self, flow)

    def stop(self) -> None:
        """End :meth:`run` soon; a waiting read returns early."""
        self._stopped.set()
        self._room.set()
        self._reader.close()

    def close(self) -> None:
        """Close the reader and the thread, after :meth:`run` has ended."""
        self._reader.close()
        self._pool.shutdown(wait=False)

    def __repr__(self) -> str:
        return f"<Caravan {self.number} at {self.buffer.place}, {len(self.flows)} flows>"
