"""The log: :class:`~wormhole.ports.log_source.LogSource` over a file of JSON lines."""

from __future__ import annotations

import threading
from pathlib import Path

from wormhole.model.errors import Diverged, PositionError, PositionPurged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.changes import Change, ChangeEncoder
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.log_times import begins_later
from wormhole.wire.runs import RunsBuilder
from wormhole_jsonlines.lines import File, Line

__all__ = ["JsonLinesSource"]

_POLL_S = 0.05


class JsonLinesSource:
    """See the port. Each method opens the file again, because a writer may have replaced it."""

    def __init__(self, path: Path, log: str, sharding: Sharding) -> None:
        self._path = path
        self.encoder = ChangeEncoder(log, sharding)
        self.lock = threading.Lock()

    def start(self) -> None:
        self.file().__exit__()

    def stop(self) -> None:
        pass

    def file(self) -> File:
        return File(self._path)

    def earliest(self) -> Datamarker:
        with self.file() as file:
            return file.begin

    def latest(self) -> Datamarker:
        with self.file() as file:
            return self._markers(file)[-1]

    def locate(self, text: str) -> Datamarker:
        with self.file() as file:
            markers = self._markers(file)
        if text in ("earliest", "latest"):
            return markers[0 if text == "earliest" else -1]
        if text.startswith("seq:") and text[4:].isdecimal():
            known = [m for m in markers if int(m.delivered) <= int(text[4:])]
            ahead = int(text[4:]) > int(markers[-1].delivered)
        else:
            place = LogPosition.parse(text)
            known = [m for m in markers if m.order <= place]
            ahead = place > markers[-1].order
        if ahead:
            raise PositionError(f"{text} is ahead of the log, which ends at {markers[-1].order}", hint="use latest")
        if not known:
            raise self.purged(markers[0], text, "")
        return known[-1]

    def locate_time(self, at_us: int) -> Datamarker:
        with self.file() as file:
            first = next(file.lines(file.begin), None)
            markers = self._markers(file)
        if first is not None and first.at_us > at_us:
            raise begins_later(markers[0], first.at_us)
        return [m for m in markers if m.committed_at_us <= at_us][-1]

    def open(self, marker: Datamarker) -> JsonLinesReader:
        with self.file() as file:
            if marker.order < file.begin.order:
                raise self.purged(file.begin, str(marker.order), str(int(marker.delivered) + 1))
            if marker.order == file.begin.order:
                return JsonLinesReader(self, marker)
            known = marker.anchor and marker.order.file == file.number and file.line_at(marker.anchor.begin)
            if not known or known.marker != marker:
                raise Diverged(
                    f"the line before {marker.order} is not the one that the datamarker names",
                    position=str(marker.order),
                    hint="find out what happened to the file, then start the flow anew from a chosen position",
                )
        return JsonLinesReader(self, marker)

    def shards(self) -> frozenset[str]:
        with self.lock:
            return self.encoder.shards()

    def release(self, oldest: LogPosition) -> None:
        pass

    def status(self) -> SourceStatus:
        with self.file() as file:
            end = self._markers(file)[-1].order
            return SourceStatus(end, file.begin.order, 0, files=((file.number, file.size()),))

    @staticmethod
    def _markers(file: File) -> list[Datamarker]:
        return [file.begin, *(line.marker for line in file.lines(file.begin))]

    @staticmethod
    def purged(begin: Datamarker, place: str, first: str) -> PositionPurged:
        return PositionPurged(
            f"the file begins at {begin.order} and no longer holds what follows {place}",
            first_missing=first,
            last_missing=begin.delivered,
            position=place,
            hint="start from earliest, or replay the range from the archive",
        )


class JsonLinesReader:
    """See the port."""

    def __init__(self, source: JsonLinesSource, marker: Datamarker) -> None:
        self._source = source
        self._marker = marker
        self._line: Line | None = None  # a line of which only a part was returned
        self._change = 0  # the next change of this line
        self._runs = RunsBuilder()
        self._closed = threading.Event()

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        waited = 0.0
        while not self._closed.is_set():
            if (segment := self._segment(max_bytes)) is not None:
                return segment
            if waited >= wait_s:
                return None
            self._closed.wait(_POLL_S)
            waited += _POLL_S
        return None

    def close(self) -> None:
        self._closed.set()

    def _segment(self, max_bytes: int) -> Segment | None:
        begin = self._marker.order
        segment = Segment(begin, begin, {}, None, 0)
        with self._source.file() as file:
            if self._marker.order.file != file.number:
                self.close()
                raise self._source.purged(file.begin, str(begin), str(int(self._marker.delivered) + 1))
            lines = iter([self._line]) if self._line is not None else file.lines(self._marker)
            for line in lines:
                if not self._take(line, max_bytes, segment):
                    segment.marker = None
                    break
                if self._runs.size >= max_bytes:
                    break
        if segment.marker is None and self._line is None:
            return None
        segment.runs = self._runs.take()
        return segment

    def _take(self, line: Line, max_bytes: int, segment: Segment) -> bool:
        """Whether the line ended."""
        if self._line is None:
            self._runs.begin("jsonlines", line.seq, line.at_us, line.begin)
            self._change = 0
        self._line = line
        segment.end = line.begin
        while self._change < len(line.changes):
            if self._runs.size >= max_bytes:
                return False
            op, table, key, *value = line.changes[self._change]
            after = {"value": value[0].encode()} if op == "put" else None
            change = Change(Op.UPSERT if op == "put" else Op.DELETE, table, key.encode(), after)
            with self._source.lock:
                encoded = self._source.encoder.encode(change)
            for one in encoded:
                self._runs.add(one.shards, one.schema, one.row)
                segment.log_bytes += len(one.row)
            self._change += 1
        self._runs.end(line.marker.order)
        self._line = None
        self._marker = segment.marker = line.marker
        segment.end, segment.newest_us = line.marker.order, line.at_us
        return True
