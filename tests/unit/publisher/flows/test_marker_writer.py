"""Datamarkers: those that are written, and those that an operator asks for."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from datastores.memory.source import MemorySource
from publisher.flows.lag_and_headroom import LogWatch
from publisher.flows.marker_target import by_text, by_time, distance, located
from publisher.flows.marker_writer import MarkerWriter
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.clocks import ScriptedClock
from tests.support.eventually import PATIENCE_S, eventually
from wormhole.model.errors import (
    CoordinationLost,
    MarkerStoreError,
    PositionError,
    PositionPurged,
    SourceUnavailable,
    WormholeError,
)
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.values import Op
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.marker_store import FlowKey, MarkerWrite
from wormhole.push.peer_threads import PeerThreads

# --- Storing markers: grouped, tried again, and never more than one waiting per flow


ONE, TWO = ("app", "one"), ("app", "two")


def marker(offset: int) -> Datamarker:
    order = LogPosition(1, 1, offset)
    return Datamarker(order, str(offset), order)


class Store(MemoryMarkerStore):
    """Counts its groups; fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[MarkerWrite]] = []
        self.failure: WormholeError | None = None
        self.open()
        for flow in (ONE, TWO):
            self.register(flow, marker(0), "earliest")

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        if self.failure is not None:
            raise self.failure
        self.groups.append(list(writes))
        return super().store(writes)


class Desk:
    def __init__(self) -> None:
        self.store = Store()
        self.stored: list[MarkerWrite] = []
        self.refused: list[MarkerWrite] = []
        self.writer = MarkerWriter(self.store, self.stored.append, self.refused.append, clock=ScriptedClock().clock)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_the_newest_marker_of_each_flow_goes_in_one_group(desk: Desk) -> None:
    newest = [MarkerWrite(ONE, 0, marker(3), "f"), MarkerWrite(TWO, 0, marker(5))]
    for write in (MarkerWrite(ONE, 0, marker(1)), MarkerWrite(ONE, 0, marker(2)), *newest):
        desk.writer.put(write)
    await desk.writer.flush()
    assert desk.store.groups == [newest]
    assert desk.stored == newest
    assert desk.store.load()[ONE].marker == marker(3)
    assert desk.store.load()[ONE].filter_hash == "f"


async def test_nothing_waiting_writes_nothing(desk: Desk) -> None:
    desk.writer.put(MarkerWrite(ONE, 0, marker(1)))
    desk.writer.drop(ONE)
    desk.writer.drop(TWO)
    await desk.writer.flush()
    assert desk.store.groups == []


async def test_a_refused_write_is_reported_and_forgotten(desk: Desk) -> None:
    desk.store.raise_epoch(ONE)
    old = MarkerWrite(ONE, 0, marker(1))
    desk.writer.put(old)
    desk.writer.put(MarkerWrite(TWO, 0, marker(1)))
    await desk.writer.flush()
    assert desk.refused == [old]
    assert [write.flow for write in desk.stored] == [TWO]
    await desk.writer.flush()
    assert len(desk.store.groups) == 1


async def test_a_failed_write_is_kept_and_replaced_by_newer_ones(desk: Desk) -> None:
    desk.writer.put(MarkerWrite(ONE, 0, marker(1)))
    desk.store.failure = MarkerStoreError("the disk is full")
    with pytest.raises(MarkerStoreError, match="the disk is full"):
        await desk.writer.flush()
    assert desk.stored == []
    desk.writer.put(MarkerWrite(ONE, 0, marker(2)))
    desk.store.failure = None
    await desk.writer.flush()
    assert desk.store.load()[ONE].marker == marker(2)


@pytest.mark.parametrize("failure", [MarkerStoreError("the disk is full"), CoordinationLost("nobody answers")])
async def test_a_failing_store_is_reported_once_and_tried_until_it_works(
    desk: Desk, failure: WormholeError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.store.failure = failure
    desk.writer.put(MarkerWrite(ONE, 0, marker(1)))
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(desk.writer.run())
        await eventually(lambda: desk.writer.problem, "the problem is shown")
        await asyncio.sleep(0.02)
        desk.store.failure = None
        await eventually(lambda: desk.stored, "stored")
        await eventually(lambda: not desk.writer.problem, "the problem is gone")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    told = [record.getMessage() for record in caplog.records if "cannot be stored" in record.getMessage()]
    assert len(told) == 1
    assert failure.message in told[0]
    assert "datamarkers are stored again" in caplog.text


async def test_a_marker_put_while_the_group_is_written_is_not_forgotten(desk: Desk) -> None:
    desk.writer.put(MarkerWrite(ONE, 0, marker(1)))
    flushing = asyncio.create_task(desk.writer.flush())
    await asyncio.sleep(0)
    desk.writer.put(MarkerWrite(ONE, 0, marker(2)))
    await flushing
    await desk.writer.flush()
    assert desk.store.load()[ONE].marker == marker(2)


async def test_datamarkers_are_stored_while_every_thread_of_letters_and_of_the_loop_is_busy(desk: Desk) -> None:
    go_on, busy = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        busy.release()
        assert go_on.wait(PATIENCE_S)

    letters = PeerThreads("letters")
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    runs = [asyncio.create_task(letters.run("mad", work, lambda seconds: None)), asyncio.to_thread(work)]
    try:
        others = asyncio.gather(*runs)
        await eventually(lambda: busy.acquire(blocking=False), "one is busy")
        await eventually(lambda: busy.acquire(blocking=False), "the other one is busy")
        desk.writer.put(MarkerWrite(ONE, 0, marker(3), "f"))
        async with asyncio.timeout(PATIENCE_S):
            await desk.writer.flush()
        assert [write.flow for write in desk.stored] == [ONE]
    finally:
        go_on.set()
        await others
        letters.close()


# --- Where a marker can be set, and what lies between


NOON_US = 1_000_000_000_000_000


def source() -> MemorySource:
    """Three transactions, a minute apart."""
    clock = [NOON_US]
    made = MemorySource("log", now_us=lambda: clock[0])
    for _ in range(3):
        made.commit([(Op.UPSERT, "t", b"k", {"value": b"v"})])
        clock[0] += 60_000_000
    return made


def at(offset: int, us: int = 0) -> Datamarker:
    place = LogPosition(1, 1, offset)
    return Datamarker(place, "", place, None, us)


async def test_by_text_and_by_time() -> None:
    log = source()
    assert await located(log, by_text(log, "latest")) == log.latest()
    assert await located(log, by_time(log, NOON_US / 1e6 + 61, NOON_US / 1e6 + 500)) == log.locate("seq:2")


@pytest.mark.parametrize("at_s", [0.0, -5.0, float("nan"), float("inf"), 101.0])
def test_a_time_that_never_was_is_refused(at_s: float) -> None:
    with pytest.raises(PositionError, match="no time in the past"):
        by_time(source(), at_s, 100.0)


async def test_what_is_gone_says_what_there_is() -> None:
    log = source()
    log.purge(log.locate("seq:2"))
    there = f"the log begins at {log.earliest()}, about 2001-09-09 01:47:40 UTC"
    with pytest.raises(PositionPurged) as caught:
        await located(log, by_text(log, "seq:1"))
    assert caught.value.message.endswith(f"; {there}")
    assert caught.value.last_missing == "2"
    with pytest.raises(PositionPurged) as caught:
        await located(log, by_time(log, 1.0, 2.0))
    assert caught.value.message == there
    assert "mass replay" in str(caught.value.hint)


async def test_what_else_is_wrong_is_raised_as_it_is() -> None:
    log = source()
    with pytest.raises(PositionError):
        await located(log, by_text(log, "nowhere"))
    log.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        await located(log, by_text(log, "latest"))


def test_the_distance_is_reported_as_far_as_it_is_known() -> None:
    watch = LogWatch()
    assert distance(watch, "log", at(0), at(50), 0.0) == [
        "what lies between (it is not known how much): jumped over, never delivered"
    ]
    watch.measured(SourceStatus(LogPosition(1, 1, 100), LogPosition(1, 1, 0), 0, files=((1, 100),)), 0.0)
    assert distance(watch, "log", at(10), at(50), 0.0) == ["40 bytes of log: jumped over, never delivered"]
    assert distance(watch, "log", at(50), at(10), 0.0) == ["40 bytes of log: delivered again, marked as replayed"]
    assert "there already" in distance(watch, "log", at(50), at(50), 0.0)[0]
