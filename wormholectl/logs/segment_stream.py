"""Reads a log's segments in a thread, without end or up to the place where the log ended when reading began.

Only the place decides when the reading ends, and never a timeout. A silent reader may not have reached the end, because
a slow server, a stopped process and a stalled network are silent too.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final

from wormhole.model.errors import DecodeError, Diverged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, LogSource

__all__ = ["SILENCE_S", "End", "read_segments", "whole_log"]

_SEGMENT_BYTES: Final = 256 << 10
_WAIT_S: Final = 0.25
_QUEUED: Final = 4
SILENCE_S: Final = 10.0
"""Seconds of silence before the log's end that are reported. The reading goes on."""


class End:
    """The end of a log when this object was made. ``place``: ``None`` while the end is not known.

    The end is not known if the log's last record is whole but cannot be decoded. A reader raises the error at that
    record, so reading ends there. :meth:`ask` tries again, because the log may have grown after the record.
    """

    def __init__(self, source: LogSource) -> None:
        """Raises :class:`~wormhole.model.errors.WormholeError`, but no :class:`~wormhole.model.errors.DecodeError`."""
        self._source = source
        self.place: LogPosition | None = None
        self.ask()

    def ask(self) -> None:
        """Determine the place again if it is not known. Raises the errors of the constructor."""
        if self.place is None:
            try:
                self.place = self._source.latest().order
            except DecodeError:
                pass

    def reached(self, place: LogPosition) -> bool:
        """Whether ``place`` is at or after the end.

        Raises :class:`~wormhole.model.errors.Diverged` for another history.
        """
        if self.place is None:
            return False
        if place.incarnation != self.place.incarnation:
            raise Diverged(
                f"the log is in incarnation {place.incarnation} now, and the end to read to is {self.place}: "
                "the server or the database was replaced or restored meanwhile",
                hint="start again",
            )
        return place >= self.place


def read_segments(
    reader: LogReader, marker: Datamarker, end: End | None, silent: Callable[[LogPosition, LogPosition | None], None]
) -> Generator[Segment, None, None]:
    """Segments of a reader that was opened at ``marker``, up to ``end``; ``None``: without end. The reader is closed
    when the generator ends.

    ``silent``: called with the place and the end if no segment came for 10 s before the end. Raises the reader's
    errors.
    """
    arrived: queue.Queue[Segment | BaseException] = queue.Queue(_QUEUED)
    stopping = threading.Event()

    def read() -> None:
        try:
            while not stopping.is_set():
                segment = reader.read(_SEGMENT_BYTES, _WAIT_S)
                if segment is not None:
                    _put(arrived, segment, stopping)
        except BaseException as error:  # noqa: BLE001  # raised again by the thread that asks
            _put(arrived, error, stopping)

    thread = threading.Thread(target=read, name="tail-reader", daemon=True)
    thread.start()
    place = marker.order
    try:
        while end is None or not end.reached(place):
            try:
                item = arrived.get(timeout=SILENCE_S)
            except queue.Empty:
                if end is not None:
                    end.ask()
                    silent(place, end.place)
                continue
            if isinstance(item, BaseException):
                raise item
            yield item
            place = item.end
    finally:
        stopping.set()
        reader.close()
        thread.join(timeout=5)


def whole_log(
    source: LogSource, silent: Callable[[LogPosition, LogPosition | None], None] = lambda place, end: None
) -> Generator[Segment, None, None]:
    """Every segment from the earliest place to the present end of the log. ``silent``: see :func:`read_segments`.

    Raises :class:`~wormhole.model.errors.WormholeError` if the log cannot be read to that end.
    """
    end = End(source)
    earliest = source.earliest()
    with closing(read_segments(source.open(earliest), earliest, end, silent)) as segments:
        yield from segments


def _put(
    arrived: queue.Queue[Segment | BaseException], item: Segment | BaseException, stopping: threading.Event
) -> None:
    while not stopping.is_set():
        try:
            arrived.put(item, timeout=_WAIT_S)
        except queue.Full:
            continue
        return
