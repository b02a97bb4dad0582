from __future__ import annotations

import logging

import pytest

from datastores.memory.source import MemorySource
from publisher.relay.reader import RelayedReader
from publisher.relay.source import RelayedSource
from publisher.sources.supervised import SupervisedSource
from scripts.prepare import ROOT
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.log_source import LogReader, LogRelay, LogSource


class Failing(MemorySource):
    """Does not start while there are ``faults``; ``asked`` is raised by `latest`."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__()
        self.faults = list(faults)
        self.asked: Exception | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        if self.faults:
            raise self.faults.pop(0)

    def latest(self) -> Datamarker:
        if self.asked is not None:
            raise self.asked
        return super().latest()


def test_until_it_starts_each_question_is_answered_with_the_reason() -> None:
    now = [0.0]
    inner = Failing(UsageError("no CURRENT file", hint="name the directory"), SourceUnavailable("empty"))
    source = SupervisedSource(inner, clock=lambda: now[0])
    with pytest.raises(UsageError):
        source.start()
    for ask in (source.latest, source.earliest, source.status, source.shards):
        with pytest.raises(SourceUnavailable, match="the log cannot be opened: no CURRENT file") as caught:
            ask()
        assert caught.value.hint == "name the directory"
    assert inner.starts == 1
    now[0] += 2
    with pytest.raises(SourceUnavailable, match="cannot be opened: empty"):
        source.latest()
    now[0] += 2
    assert source.latest() == inner.latest()
    assert inner.starts == 3


def test_a_source_that_was_stopped_is_not_started_by_a_late_question() -> None:
    inner = Failing(SourceUnavailable("away"))
    source = SupervisedSource(inner)
    with pytest.raises(SourceUnavailable):
        source.start()
    source.stop()
    with pytest.raises(SourceUnavailable):
        source.latest()
    assert inner.starts == 1


@pytest.mark.parametrize("fault", [PermissionError(13, "denied"), ValueError("invalid literal")])
def test_what_nobody_foresaw_is_an_answer_too(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    inner = Failing()
    source = SupervisedSource(inner)
    source.start()
    inner.asked = fault
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(SourceUnavailable, match="the log cannot be read"):
                source.latest()
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == (1 if isinstance(fault, ValueError) else 0), "once each"


class _Relay:
    def __init__(self) -> None:
        self.asked: list[object] = []

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        self.asked.append((shard, begin, end))
        return LostKeys({})

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        self.asked.append(oldest)

    def trim(self, keep_bytes: int) -> None:
        self.asked.append(keep_bytes)


def test_a_relay_answers_through_it_once_its_source_is_started() -> None:
    inner, relay = Failing(), _Relay()
    source = SupervisedSource(inner, relay)
    assert source.relay is not None
    place = LogPosition(1, 2, 3)
    with pytest.raises(SourceUnavailable):
        source.relay.trim(7)
    source.start()
    assert source.relay.lost_keys("s", place, place) == LostKeys({})
    source.relay.keep_lost_keys(place)
    source.relay.trim(7)
    assert relay.asked == [("s", place, place), place, 7]
    assert SupervisedSource(inner).relay is None


def _methods(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("wrapper", "port"),
    [(SupervisedSource, LogSource), (RelayedSource, LogSource), (RelayedSource, LogRelay), (RelayedReader, LogReader)],
)
def test_what_stands_around_an_object_has_every_method_of_its_port(wrapper: type, port: type) -> None:
    assert _methods(port) <= _methods(wrapper)


def test_no_ability_is_looked_for_in_an_object_that_another_one_may_stand_around() -> None:
    """A publisher gets what only some logs have as an argument of its own: `isinstance` of a protocol finds nothing
    behind a wrapper, and nothing else notices that."""
    product = (
        ROOT / part for part in ("caravan", "publisher", "wormhole", "subscriber_sdk", "monitor", "spark_replay")
    )
    files = [file for part in product for file in part.rglob("*.py")]
    assert files
    assert [file for file in files if "runtime_checkable" in file.read_text()] == []
