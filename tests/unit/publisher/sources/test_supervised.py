from __future__ import annotations

import logging

import pytest

from publisher.sources.memory.source import MemorySource
from publisher.sources.supervised import SupervisedSource
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.position import Datamarker


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
