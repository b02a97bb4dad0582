from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from datastores.memory.source import MemorySource
from wormhole.model.errors import DecodeError, Diverged, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormholectl.logs import segment_stream
from wormholectl.logs.segment_stream import End, read_segments, whole_log

Silent = Callable[[LogPosition, LogPosition | None], None]


class Paused:
    """A reader that returns nothing after its first segment until ``go_on`` is set; small pieces, so that there are
    several."""

    def __init__(self, source: MemorySource, marker: Datamarker) -> None:
        self._reader = source.open(marker)
        self._first = True
        self.go_on = threading.Event()
        self.empty_reads = 0

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        if self._first:
            self._first = False
            return self._reader.read(1, wait_s)
        if not self.go_on.wait(0.001):
            self.empty_reads += 1
            return None
        return self._reader.read(1, wait_s)

    def close(self) -> None:
        self._reader.close()


class Undecodable(MemorySource):
    """Its end is not known while ``broken``."""

    broken = True

    def latest(self) -> Datamarker:
        if self.broken:
            raise DecodeError("the last record is no valid batch")
        return super().latest()


def unexpected(place: LogPosition, end: LogPosition | None) -> None:
    pytest.fail(f"silent at {place}, before {end}")


S = TypeVar("S", bound=MemorySource)


def filled(source: S, count: int = 5) -> S:
    source.start()
    for number in range(count):
        source.commit([(Op.UPSERT, "default", b"%d" % number, {"value": b"v"})])
    return source


def test_time_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_stream, "SILENCE_S", 0.05)
    source = filled(MemorySource())
    reader = Paused(source, source.earliest())
    said: list[tuple[LogPosition, LogPosition | None]] = []

    def silent(place: LogPosition, end: LogPosition | None) -> None:
        said.append((place, end))
        assert reader.empty_reads
        reader.go_on.set()

    end = End(source)
    filled(source)  # what is committed later is not asked for
    segments = list(read_segments(reader, source.earliest(), end, silent))
    assert sum(segment.updates for segment in segments) == 5
    assert said == [(segments[0].end, end.place)]


def test_what_is_at_the_end_already_reads_nothing() -> None:
    source = filled(MemorySource())
    latest = source.latest()
    assert list(read_segments(source.open(latest), latest, End(source), unexpected)) == []


def test_an_end_that_cannot_be_read_is_the_readers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_stream, "SILENCE_S", 0.05)
    source = filled(Undecodable())
    reader = source.open(source.earliest())
    plain = reader.read

    def read(max_bytes: int, wait_s: float) -> Segment | None:
        segment = plain(max_bytes, 0.0)
        if segment is None:
            source.latest()
        return segment

    monkeypatch.setattr(reader, "read", read)
    seen: list[Segment] = []
    with pytest.raises(DecodeError):
        seen.extend(read_segments(reader, source.earliest(), End(source), unexpected))


def test_an_end_that_becomes_known_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_stream, "SILENCE_S", 0.05)
    source = filled(Undecodable())
    end = End(source)
    source.broken = False
    said: list[LogPosition | None] = []
    segments = read_segments(source.open(source.earliest()), source.earliest(), end, lambda place, to: said.append(to))
    assert sum(segment.updates for segment in segments) == 5
    assert said == [source.latest().order]


def test_an_end_of_another_history_is_never_reached() -> None:
    source = filled(MemorySource())
    end = End(source)
    assert end.place is not None
    with pytest.raises(Diverged, match="is in incarnation 2 now"):
        end.reached(LogPosition(2, end.place.file, 0))


def test_the_whole_log_waits_for_its_end_and_tells_what_breaks_on_the_way() -> None:
    source = filled(MemorySource())
    assert sum(segment.updates for segment in whole_log(source)) == 5
    source.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        list(whole_log(source))
