"""What one large transaction costs to read: real caravans over a log in memory, in virtual time, flows of any speed.

The bytes of log that all readers read are bounded by the log and the number of flows, whatever the change buffer holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caravan import patience as patience_module
from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.flow import CaravanFlow, CaravanFlowState
from datastores.memory.source import MemorySource
from subscriber_sdk.testing.clock import FakeTimeLoop
from tests.support.seed import examples
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.log_source import LogReader

_ROW: Final = 4 << 10
_READ_ROWS_PER_S: Final = 400.0
_OPENING_S: Final = 0.01
_SHARD: Final = "log"


class _Loop(FakeTimeLoop):
    """What runs in a thread takes the time that :class:`_Reader` says, and nothing else happens in it."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            found = func(*args)
        except Exception as error:
            self.call_later(_OPENING_S, _settle, future, None, error)
        else:
            rows = found.log_bytes / _ROW if isinstance(found, Segment) else 0.0
            self.call_later(rows / _READ_ROWS_PER_S or _OPENING_S, _settle, future, found, None)
        return future


def _settle(future: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class _Source(MemorySource):
    """Its readers never wait: time passes in the loop."""

    def open(self, marker: Datamarker) -> LogReader:  # type: ignore[override]
        reader = super().open(marker)
        read = reader.read
        reader.read = lambda max_bytes, wait_s: read(max_bytes, 0.0)  # type: ignore[method-assign]
        return reader


class _Rider:
    """A flow whose subscriber takes ``speed`` rows a second."""

    def __init__(self, fleet: Fleet, number: int, marker: Datamarker, speed: float) -> None:
        self._fleet, self._speed = fleet, speed
        self._woken = asyncio.Event()
        self.taken = 0
        self.flow = CaravanFlow(f"app{number}", _SHARD, Filter.parse(None), marker, 1, self._woken.set)

    async def run(self) -> None:
        fleet, flow = self._fleet, self.flow
        fleet.add(flow)
        while True:
            await self._woken.wait()
            self._woken.clear()
            if flow.blocked:
                fleet.moved(flow)
            while flow.state is CaravanFlowState.TRAVELLING and (piece := flow.peek()) is not None:
                updates = 0 if piece.body is None else piece.body.updates
                flow.take()
                fleet.moved(flow)
                if updates:
                    self.taken += updates
                    await asyncio.sleep(updates / self._speed)
            if flow.blocked:
                self._woken.set()


@dataclass(frozen=True)
class _Scene:
    """``rows``: of the transaction; ``buffer``: rows that all change buffers hold; ``speeds``: of the flows."""

    rows: int
    buffer: int
    caravans: int
    speeds: tuple[float, ...]

    def read_per_byte(self) -> float:
        """Bytes that all readers read until every flow had the transaction and what follows, per byte of log."""
        source = _Source(log=_SHARD, sharding=Sharding("log"))
        start = source.latest()
        row = (Op.UPSERT, "t", b"k", {"value": b"v" * _ROW})
        for size in (1, self.rows, 1):
            end = source.commit([row] * size)
        limits = Limits(caravans=self.caravans, buffer_bytes=self.buffer * _ROW, read_bytes=_ROW)

        async def main() -> float:
            loop = asyncio.get_running_loop()
            clock = Clock(monotonic=loop.time, sleep=asyncio.sleep)
            fleet = Fleet(source, limits, FleetEvents(_fails, lambda *_: None), lambda: 0.0, clock=clock)
            riders = [_Rider(fleet, number, start, speed) for number, speed in enumerate(self.speeds)]
            tasks = [asyncio.create_task(rider.run()) for rider in riders]
            tasks.append(asyncio.create_task(fleet.run(start)))
            while any(rider.flow.place < end.order for rider in riders):
                await asyncio.sleep(0.5)
                assert loop.time() < 100_000, "not arrived"
            read = fleet.read_bytes_total
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            assert [rider.taken for rider in riders] == [self.rows + 2] * len(riders), "each row once"
            return read / ((self.rows + 2) * _ROW)

        return _in_virtual_time(main())


def _fails(flow: CaravanFlow, error: Exception) -> None:
    raise AssertionError(f"{flow} is held: {error}")


def _in_virtual_time(main: Coroutine[Any, Any, float]) -> float:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


@st.composite
def _scenes(draw: st.DrawFn) -> _Scene:
    speeds = st.sampled_from([10.0, 40.0, 100.0, 250.0, 1000.0])
    return _Scene(
        draw(st.sampled_from([50, 100, 200])),
        draw(st.sampled_from([2, 4, 16, 64])),
        draw(st.integers(1, 5)),
        tuple(draw(st.lists(speeds, min_size=1, max_size=8))),
    )


@pytest.fixture(autouse=True)
def in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading again is as fast in this log as reading."""
    monkeypatch.setattr(patience_module, "_BYTES_PER_S", _READ_ROWS_PER_S * _ROW)


@examples(12)
@given(_scenes())
def test_the_log_is_read_a_bounded_number_of_times_whatever_the_buffer(scene: _Scene) -> None:
    assert scene.read_per_byte() <= 1 + 2 * len(scene.speeds)


@pytest.mark.parametrize("buffer", [4, 64])
@pytest.mark.parametrize("caravans", [2, 4])
def test_flows_of_one_speed_read_it_together(buffer: int, caravans: int) -> None:
    assert _Scene(200, buffer, caravans, (90.0, 91.0, 92.0, 93.0) * 4).read_per_byte() <= 2.5


def test_a_slow_flow_is_left_behind_in_a_transaction_as_elsewhere() -> None:
    assert 1.0 < _Scene(400, 16, 4, (400.0, 400.0, 5.0)).read_per_byte() <= 2.1
