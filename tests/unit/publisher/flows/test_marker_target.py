"""Where a marker can be set, and what lies between."""

from __future__ import annotations

import pytest

from datastores.memory.source import MemorySource
from publisher.flows.lag_and_headroom import LogWatch
from publisher.flows.marker_target import by_text, by_time, distance, located
from wormhole.model.errors import PositionError, PositionPurged, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.values import Op
from wormhole.ports.log_source import SourceStatus

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
